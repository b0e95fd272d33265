"""Which groups and responses are trained on, and how much each response weighs. All tensors are [B], one a response.

A filter returns True for what is kept. One that looks at groups gives all responses of a group the same answer.
"""

from __future__ import annotations

import torch
from torch import Tensor


def unequal_groups(values: Tensor, groups: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Keep groups whose unbiased standard deviation is above ``threshold``; a group of one is kept. bool [B].

    Source: dynamic sampling, DAPO, arXiv:2503.14476; the group of one as in verl and ROLL.
    """
    inverse, counts, means = _groups(values, groups)
    squares = (values.double() - means[inverse]).square()
    variance = squares.new_zeros(len(counts)).index_add(0, inverse, squares) / (counts - 1).clamp(min=1)
    spread_out = variance.sqrt() > max(threshold, 1e-9)  # the rounding of a mean is no difference
    return (spread_out | (counts == 1))[inverse]


def group_mean_between(values: Tensor, groups: Tensor, *, low: float, high: float) -> Tensor:
    """Keep groups with low < mean < high. bool [B].

    Source: mean_filter in ROLL's user_defined_rollout_loop.py, and difficulty_mask in its functionals.py.
    """
    inverse, _, means = _groups(values, groups)
    return ((means > low) & (means < high))[inverse]


def short_or_right(lengths: Tensor, right: Tensor, *, max_tokens: int) -> Tensor:
    """Keep responses that are right, or shorter than ``max_tokens``. bool [B].

    Source: error_max_len_clip in ROLL's functionals.py.
    """
    return right | (lengths < max_tokens)


def difficulty_weights(difficulty: Tensor) -> Tensor:
    """Return 0.5 + 1.5 * difficulty, with the difficulty cut to 0..1. [B].

    Source: compute_sample_weights in ROLL's actor_worker.py.
    """
    return 0.5 + 1.5 * difficulty.clamp(0.0, 1.0)


def length_weights(lengths: Tensor) -> Tensor:
    """Return 1.5 - (length - shortest) / (longest - shortest): 1.5 for the shortest response, 0.5 for the longest. [B].

    Source: compute_sample_weights in ROLL's actor_worker.py, which takes the shortest and longest of a micro-batch.
    """
    if not len(lengths):
        return torch.zeros(0)
    shortest, longest = lengths.min(), lengths.max()
    return 1.5 - (lengths - shortest) / (longest - shortest + 1e-8)


def mean_one(weights: Tensor) -> Tensor:
    """Scale weights to a mean of 1. [B]."""
    return weights * (len(weights) / (weights.sum() + 1e-8))


def _groups(values: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each response's group, the groups' sizes, and their means in float64."""
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    wide = values.double()
    return inverse, counts, wide.new_zeros(len(counts)).index_add(0, inverse, wide) / counts
