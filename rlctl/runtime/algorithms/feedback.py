"""Preference feedback: the responses of a step are drawn anew, with replacement, by how they scored."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

SMALLEST = 1e-8
"""Weight of a response that scores nothing, so that a step in which all do can be drawn from."""


def feedback_weights(
    scores: Tensor, *, reweight: Literal["pow", "max_min", "max_random"] = "pow", power: float = 2.0
) -> Tensor:
    """Return how likely each response is drawn, not normalised. [B], above 0.

    pow: |score|^power. max_min: 1 for the best and the worst of the step, else 0. max_random: 0.4 for the best, else 0.1.
    All plus 1e-8.

    Source: preference-feedback PPO, arXiv:2409.06957; rules and numbers as in verl's core_algos.py.
    """
    if reweight == "pow":
        weights = scores.abs().pow(power)
    elif reweight == "max_min":
        weights = ((scores == scores.max()) | (scores == scores.min())).to(scores.dtype)
    else:
        weights = torch.where(scores == scores.max(), 0.4, 0.1).to(scores.dtype)
    return weights + SMALLEST


def drawn_anew(weights: Tensor, seed: int) -> list[int]:
    """Return as many responses as there are weights, drawn with replacement, as indices."""
    generator = torch.Generator().manual_seed(seed)
    found: list[int] = torch.multinomial(weights, len(weights), replacement=True, generator=generator).tolist()
    return found
