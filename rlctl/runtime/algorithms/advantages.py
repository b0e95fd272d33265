"""Advantages: how much better a response, or a token of it, was than expected.

Two grains. An estimator that reads ``rewards`` [B] gives one advantage a response; one that reads ``token_rewards`` [N]
gives one a token. ``estimate`` calls either by name and returns tokens. Statistics (a group's mean, whitening) are over
the batch handed in, so hand in the whole step, never a micro-batch. Small sums are taken in float64: a group of equal
rewards has advantages of 0, not the rounding noise of its mean over the epsilon.

To add one: see ``rlctl.runtime.algorithms``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlctl.runtime.algorithms.packed import discounted_sum, last_tokens, sequence_sum, spread
from rlctl.runtime.algorithms.table import Algorithm, lookup


def grpo(rewards: Tensor, groups: Tensor, *, normalize_by_std: bool = True, epsilon: float = 1e-6) -> Tensor:
    """Return A = (r - mean of its group) / (std of its group + epsilon). [B].

    The std is the unbiased one (over n - 1). A group of one has mean 0 and std 1: its reward stays what it is, up to
    epsilon. Without ``normalize_by_std`` this is Dr. GRPO (arXiv:2503.20783).

    Source: DeepSeekMath, arXiv:2402.03300; the unbiased std and the group of one are as in verl's core_algos.py.
    """
    centered, counts, inverse = _centered(rewards, groups)
    if normalize_by_std:
        variance = _group_sum(centered**2, inverse, counts) / (counts - 1).clamp(min=1)
        std = torch.where(counts > 1, variance.sqrt(), 1.0)
        centered = centered / (std[inverse] + epsilon)
    return centered.to(rewards.dtype)


def rloo(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return A = r - mean of the *other* rewards of its group, which is n / (n - 1) * (r - mean of the group). [B].

    A group of one has no others: its reward stays what it is.

    Source: Ahmadian et al., Back to Basics, arXiv:2402.14740.
    """
    centered, counts, inverse = _centered(rewards, groups)
    scale = counts / (counts - 1).clamp(min=1)
    return (centered * scale[inverse]).to(rewards.dtype)


def reinforce_plus_plus_baseline(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return A = r - mean of its group, before whitening over the batch (the table says so). [B].

    Source: REINFORCE++, arXiv:2501.03262, the variant with a group baseline.
    """
    return grpo(rewards, groups, normalize_by_std=False)


def reinforce(token_rewards: Tensor, lengths: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Return the discounted return A_t = sum_k gamma^k r_{t+k}, no baseline. [N].

    Source: Williams, Simple statistical gradient-following algorithms, 1992. Whitened over the batch (the table says
    so) it is REINFORCE++, arXiv:2501.03262.
    """
    return discounted_sum(token_rewards, lengths, gamma)


def gae(token_rewards: Tensor, values: Tensor, lengths: Tensor, *, gamma: float = 1.0, lambda_: float = 1.0) -> Tensor:
    """Return A_t = sum_k (gamma lambda)^k d_{t+k} with d_t = r_t + gamma V_{t+1} - V_t, before whitening. [N].

    V is 0 past a sequence's end. Tokens that are not counted are skipped, as if the response went on without them.

    Source: Schulman et al., arXiv:1506.02438.
    """
    next_values = values.roll(-1)
    next_values[last_tokens(lengths)] = 0.0
    return discounted_sum(token_rewards + gamma * next_values - values, lengths, gamma * lambda_)


@dataclass(frozen=True)
class Estimator(Algorithm):
    """An advantage estimator of the table."""

    whiten: bool = False
    """Whether its source whitens the result over the batch's tokens; the caller may say otherwise."""

    @property
    def per_token(self) -> bool:
        """Whether its result is [N] rather than [B]."""
        return "token_rewards" in self.reads

    @property
    def needs_values(self) -> bool:
        """Whether there must be a critic."""
        return "values" in self.reads

    @property
    def needs_groups(self) -> bool:
        """Whether it compares the responses of a prompt."""
        return "groups" in self.reads


ADVANTAGES: dict[str, Estimator] = {
    "gae": Estimator(gae, whiten=True),
    "grpo": Estimator(grpo),
    "reinforce": Estimator(reinforce),
    "reinforce_plus_plus": Estimator(reinforce, whiten=True),
    "reinforce_plus_plus_baseline": Estimator(reinforce_plus_plus_baseline, whiten=True),
    "rloo": Estimator(rloo),
}


@dataclass(frozen=True, slots=True)
class Advantages:
    """What ``estimate`` returns."""

    tokens: Tensor
    """[N], as the policy loss takes them."""
    returns: Tensor | None
    """[N], what the critic learns: advantages before whitening, plus values. None where there is no critic."""


@torch.no_grad()
def estimate(
    name: str,
    rewards: Tensor,
    lengths: Tensor,
    *,
    groups: Tensor | None = None,
    values: Tensor | None = None,
    token_penalties: Tensor | None = None,
    whiten: bool | None = None,
    **options: Any,
) -> Advantages:
    """Return the advantages of every token of a step, by the estimator called ``name``.

    ``rewards`` [B] are the responses' rewards, ``token_penalties`` [N] what each token costs (the KL in the reward):
    subtracted before any statistic, a response's reward counts at its last token. ``groups`` [B] int64: equal for
    responses to one prompt. ``values`` [N]: the critic's. ``whiten`` None: as the estimator's source does.

    Raises:
        ConfigError: no such estimator, or a tensor that it reads is missing.
    """
    estimator = lookup(ADVANTAGES, name, "advantage estimator")
    penalties = rewards.new_zeros(int(lengths.sum())) if token_penalties is None else token_penalties
    tensors = {
        "rewards": rewards - sequence_sum(penalties, lengths),
        "token_rewards": token_rewards(rewards, penalties, lengths),
        "lengths": lengths,
        "groups": groups,
        "values": values,
    }
    result = estimator(tensors, **options)
    advantages = result if estimator.per_token else spread(result, lengths)
    returns = advantages + values if estimator.needs_values and values is not None else None
    return Advantages(whitened(advantages) if (estimator.whiten if whiten is None else whiten) else advantages, returns)


def token_rewards(rewards: Tensor, token_penalties: Tensor, lengths: Tensor) -> Tensor:
    """Return -penalty at every token, plus the response's reward at its last one. [B], [N] to [N]."""
    result = -token_penalties
    result[last_tokens(lengths)] += rewards[lengths > 0]
    return result


def whitened(values: Tensor) -> Tensor:
    """Return (x - mean) / sqrt(unbiased variance + 1e-8). [N]; a single number gives 0.

    Source: masked_whiten in verl's torch_functional.py, where a single number is an error.
    """
    centered = values.double() - values.double().mean()
    variance = (centered**2).sum() / max(centered.numel() - 1, 1)
    return (centered * torch.rsqrt(variance + 1e-8)).to(values.dtype)


def _centered(rewards: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rewards minus their group's mean (0 for a group of one), groups' sizes, each response's group; float64."""
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    wide = rewards.double()
    means = torch.where(counts > 1, _group_sum(wide, inverse, counts) / counts, 0.0)
    return wide - means[inverse], counts, inverse


def _group_sum(values: Tensor, inverse: Tensor, counts: Tensor) -> Tensor:
    return values.new_zeros(len(counts)).index_add(0, inverse, values)
