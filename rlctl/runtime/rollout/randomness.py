"""Random numbers that depend on what is drawn, not on what is drawn beside it: one uniform per (seed, response, position).

A counter-based generator: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)
read at any point of its stream. All arithmetic is modulo 2**64 on int64 tensors, whose multiplication wraps.
"""

from __future__ import annotations

import torch

STREAM = "rlctl_stream"
"""The name under which a request to vLLM carries its stream's state."""


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def splitmix64(states: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return output number ``positions`` (from 0) of the SplitMix64 streams seeded with ``states``; all int64."""
    mixed = states + (positions + 1) * _GAMMA
    mixed = (mixed ^ _shift_right(mixed, 30)) * _MIX_1
    mixed = (mixed ^ _shift_right(mixed, 27)) * _MIX_2
    return mixed ^ _shift_right(mixed, 31)


def stream_keys(seeds: list[int], responses: list[int]) -> torch.Tensor:
    """Return int64 [rows]: the state of the stream of response ``responses[i]`` of the request seeded ``seeds[i]``."""
    outer = torch.tensor([_signed(seed) for seed in seeds], dtype=torch.int64)
    return splitmix64(splitmix64(outer, torch.zeros_like(outer)), torch.tensor(responses, dtype=torch.int64))


def uniforms(keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return float64 [rows] in [0, 1): the draw for response token ``positions`` of each stream, a multiple of 2**-52.

    52 bits, not 53: times any total the result stays below the total in float64, so an inverse CDF never runs past its end.
    """
    return _shift_right(splitmix64(keys, positions), 12).double() * 2.0**-52


def _shift_right(value: torch.Tensor, bits: int) -> torch.Tensor:
    # int64 shifts copy the sign bit; the mask clears those copies.
    return (value >> bits) & ((1 << (64 - bits)) - 1)
