"""Random streams by name: a seed for each purpose, derived from the run's, so that no stream has a state to save."""

from __future__ import annotations

import hashlib


def derive_seed(base: int, *parts: int | str) -> int:
    """A seed in [0, 2**62) for the purpose that ``parts`` name; other parts give an unrelated one.

    Example: ``derive_seed(run.seed, "rollout", step, prompt.index)``
    """
    text = ":".join(str(part) for part in (base, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 2
