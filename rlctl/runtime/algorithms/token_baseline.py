"""Optimal token baselines: what is expected at each place of a group's responses, weighed by how much of the gradient is noise.

    A_t = G_t - B_t        B_t = sum of W_t G_t / (sum of W_t + epsilon), over the group's responses that have a token at place t

G_t is the reward from t on. W_t is the sum up to t of rho^2 (1 - 2 p + sum of squared probabilities), which stands for the
squared norm of the gradient; rho is the weight of the rollout correction. Tokens that the correction rejects (``passed`` is
false) have no reward and no weight. A group of one has no baseline, nor, under ``handle_zero_tail``, what its longest response
has beyond the second-longest.

Source: Optimal Token Baseline, arXiv:2602.07078; as in verl's core_algos.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlctl.runtime.algorithms.packed import discounted_sum, marked, spread


def optimal_token_baseline(
    token_rewards: Tensor,
    groups: Tensor,
    lengths: Tensor,
    old_log_probs: Tensor,
    old_squared_probabilities: Tensor,
    correction_weights: Tensor,
    passed: Tensor,
    *,
    handle_zero_tail: bool = True,
    epsilon: float = 1e-8,
) -> Tensor:
    """Return A_t, with places counted over all tokens of a response. [N]."""
    energy = 1 - 2 * old_log_probs.double().exp() + old_squared_probabilities.double()
    places, weights = _sums_to_here(lengths, energy * correction_weights.double().square() * passed)
    weights, returns = weights * passed, discounted_sum(token_rewards.double() * passed, lengths, 1.0)
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    width = int(lengths.max()) if len(lengths) else 0
    cells = spread(inverse, lengths) * width + places

    def over_group(values: Tensor) -> Tensor:
        """At each token, the sum over the group's tokens at its place."""
        return values.new_zeros(len(counts) * width).index_add(0, cells, values)[cells]

    baselines = over_group(weights * returns) / (over_group(weights) + epsilon)
    has_baseline = spread(counts[inverse] > 1, lengths)
    if handle_zero_tail:
        counted = marked(passed, lengths)
        second = _second_longest(counted, inverse, counts)[inverse]
        has_baseline &= ~spread(counted > second, lengths) | (places < spread(second, lengths))
    return ((returns - torch.where(has_baseline, baselines, 0.0)) * passed).to(token_rewards.dtype)


def tir_optimal_token_baseline(
    token_rewards: Tensor,
    groups: Tensor,
    lengths: Tensor,
    old_log_probs: Tensor,
    old_squared_probabilities: Tensor,
    correction_weights: Tensor,
    passed: Tensor,
    *,
    handle_zero_tail: bool = True,
    epsilon: float = 1e-8,
) -> Tensor:
    """Return A_t, with places counted over the tokens that pass, and responses of which none does left out of groups. [N].

    verl has it for responses with a tool's output in them. Without one, and where nothing is rejected, it is
    ``optimal_token_baseline``.
    """
    counted = marked(passed, lengths)
    some = counted > 0
    of_tokens = (old_log_probs, old_squared_probabilities, correction_weights, passed)
    found = optimal_token_baseline(
        token_rewards[passed],
        groups[some],
        counted[some],
        *(each[passed] for each in of_tokens),
        handle_zero_tail=handle_zero_tail,
        epsilon=epsilon,
    )
    return torch.zeros_like(token_rewards).masked_scatter(passed, found)


def _sums_to_here(lengths: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The place of each token in its response, from 0, and the sum of ``values`` from the response's first token to it. [N]."""
    starts = spread(lengths.cumsum(0) - lengths, lengths)
    sums = torch.cat((values.new_zeros(1), values.cumsum(0)))
    return torch.arange(len(values)) - starts, sums[1:] - sums[starts]


def _second_longest(lengths: Tensor, inverse: Tensor, counts: Tensor) -> Tensor:
    """The length of the second-longest response of each group; 0 of a group of one. int64 [groups]."""
    order = torch.argsort(lengths, descending=True, stable=True)
    by_group = order[torch.argsort(inverse[order], stable=True)]  # group after group, the longest of each first
    second = (counts.cumsum(0) - counts + 1).clamp(max=max(len(lengths) - 1, 0))
    return torch.where(counts > 1, lengths[by_group][second], 0)
