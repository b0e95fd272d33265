"""Random streams have no state to save: a seed is a function of the run's seed and of what it is for."""

from __future__ import annotations

import hashlib

from rlctl.runtime.seeds import derive_seed


def test_it_is_the_hash_of_its_parts() -> None:
    digest = hashlib.sha256(b"42:rollout:3:17").digest()
    assert derive_seed(42, "rollout", 3, 17) == int.from_bytes(digest[:8], "little") >> 2


def test_other_parts_give_other_seeds_within_range() -> None:
    seeds = {derive_seed(base, "rollout", step, row) for base in range(4) for step in range(8) for row in range(32)}
    assert len(seeds) == 4 * 8 * 32
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert derive_seed(1, "a", "b") != derive_seed(1, "b", "a")
