"""The random streams are SplitMix64's, and each depends on its seed, response and position only."""

from __future__ import annotations

import torch

from rlctl.runtime.rollout.randomness import splitmix64, stream_keys, uniforms


def test_the_generator_is_splitmix64() -> None:
    """The first outputs for seed 1234567, as published with the reference implementation's ports (rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64)."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = torch.full((5,), 1234567, dtype=torch.int64)
    outputs = splitmix64(states, torch.arange(5)).tolist()
    assert [value % 2**64 for value in outputs] == published


def test_uniforms_are_uniform_over_seeds_responses_and_positions() -> None:
    keys = stream_keys([s for s in range(200) for _ in range(8)], list(range(8)) * 200)
    assert len(set(keys.tolist())) == 1600
    drawn = torch.stack([uniforms(keys, torch.full_like(keys, position)) for position in range(50)])
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = torch.histc(drawn.float(), bins=100, min=0, max=1)
    # 80,000 draws in 100 bins: chi-square with 99 degrees of freedom is below 149 but for one time in a thousand.
    assert ((counts - 800) ** 2 / 800).sum() < 149
    neighbours = torch.corrcoef(torch.stack([drawn[:-1].flatten(), drawn[1:].flatten()]))[0, 1]
    responses = drawn.T.reshape(200, 8, 50)
    siblings = torch.corrcoef(torch.stack([responses[:, :-1].flatten(), responses[:, 1:].flatten()]))[0, 1]
    assert abs(neighbours) < 0.015
    assert abs(siblings) < 0.015


def test_any_integer_is_a_seed() -> None:
    seeds = [0, -1, 2**63, 2**64 - 1, 10**40]
    keys = stream_keys(seeds, [0] * 5)
    assert keys[1] == keys[3], "seeds count modulo 2**64"
    assert len(set(keys.tolist())) == 4
