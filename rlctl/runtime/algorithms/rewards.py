"""Rewards of responses before they become advantages: penalties on length, and shifting and scaling by statistics.

All tensors are [B], one number a response. Statistics are over the responses handed in, so hand in the whole step (or
one domain of it), never a micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Scope = Literal["batch", "group", "running"]

NORMAL_EPSILON = 1e-6
"""Added to a standard deviation, and the smallest that is divided by, as in ROLL."""


def overlong_penalty(lengths: Tensor, *, limit: int, buffer: int, factor: float = 1.0, clamp: bool = False) -> Tensor:
    """Return min(0, (limit - buffer - length) / buffer * factor), with ``clamp`` never below -``factor``. [B].

    It is 0 up to ``limit - buffer`` tokens and -``factor`` at the limit; add it to the reward.

    Source: DAPO, arXiv:2503.14476, equation 13; unclamped as in verl's reward_manager/dapo.py, clamped as in
    Trinity-RFT's dapo_reward.py.
    """
    penalty = ((limit - buffer - lengths) / buffer * factor).clamp(max=0.0)
    return penalty.clamp(min=-factor) if clamp else penalty


def length_penalty(lengths: Tensor, *, limit: int, coefficient: float) -> Tensor:
    """Return -coefficient * length / limit; add it to the reward. [B]."""
    return -coefficient * lengths / limit


@dataclass
class RunningMoments:
    """Mean and unbiased standard deviation of everything seen so far.

    Source: Chan et al., Updating formulae and a pairwise algorithm for computing sample variances, 1979.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean."""

    @property
    def std(self) -> float:
        """0 for fewer than two numbers."""
        return (self.squares / (self.count - 1)) ** 0.5 if self.count > 1 else 0.0

    def update(self, values: Tensor) -> None:
        """Take in more numbers."""
        wide = values.double()
        count = self.count + wide.numel()
        if wide.numel() == 0:
            return
        mean = float(wide.mean())
        delta = mean - self.mean
        self.squares += float((wide - mean).square().sum()) + delta**2 * self.count * wide.numel() / count
        self.mean += delta * wide.numel() / count
        self.count = count


def normalized(
    rewards: Tensor,
    groups: Tensor,
    *,
    mean: Scope | None,
    std: Scope | None,
    running: RunningMoments | None = None,
) -> Tensor:
    """Return (r - mean) / (std + 1e-6), each over the batch, the response's group, or all so far; None leaves it out. [B].

    The std is the unbiased one. Where it is below 1e-6, or there is one number only, there is nothing to compare with and
    the result is 0. ``running`` has to be given, and has taken in these rewards, where a scope is ``running``.

    Source: reward_norm in ROLL's functionals.py, and agentic_reward_norm for what is 0.
    """
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    wide = rewards.double()

    def over(scope: Scope, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and count of the values around each response."""
        if scope == "batch":
            return values.mean().expand_as(values), torch.full_like(inverse, len(values))
        sums = values.new_zeros(len(counts)).index_add(0, inverse, values)
        return (sums / counts)[inverse], counts[inverse]

    center: Tensor | float = 0.0
    if mean == "running":
        center = _known(running).mean
    elif mean is not None:
        center, _ = over(mean, wide)
    centered = wide - center
    if std is None:
        return centered.to(rewards.dtype)
    if std == "running":
        deviation = torch.full_like(wide, _known(running).std)
    else:
        own_mean, count = over(std, wide)
        variance, _ = over(std, (wide - own_mean).square())
        deviation = (variance * count / (count - 1).clamp(min=1)).sqrt()
    result = torch.where(deviation > NORMAL_EPSILON, centered / (deviation + NORMAL_EPSILON), 0.0)
    return result.to(rewards.dtype)


def _known(running: RunningMoments | None) -> RunningMoments:
    assert running is not None, "a running scope needs its moments"
    return running
