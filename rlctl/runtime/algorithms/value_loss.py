"""The critic's loss, one number a token before aggregation, and how well it foresees."""

from __future__ import annotations

import torch
from torch import Tensor

from rlctl.runtime.algorithms.packed import PerTokenLoss


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Return 1 - var(R - V) / (var(R) + 1e-5), unbiased variances: 1 of a perfect critic, 0 of one that says a constant.

    0 for a single token. All [N].

    Source: ``vf_explained_var`` in verl's metric_utils.py.
    """
    if len(values) < 2:
        return 0.0
    return 1 - float((returns - values).var() / (returns.var() + 1e-5))


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, *, clip: float | None = 0.5
) -> PerTokenLoss:
    """Return max((V - R)^2, (V clipped to old V +- clip - R)^2) / 2. All [N]; ``clip`` in units of value, None is off.

    Metric ``clip_fraction``: 1 where the clipped error is the larger one (the token then has no gradient).

    Source: Baselines' PPO2, https://github.com/openai/baselines; the factor 1/2 as in verl's core_algos.py.
    """
    plain = (values - returns).square()
    if clip is None:
        return PerTokenLoss(0.5 * plain)
    clipped = (values.clamp(old_values - clip, old_values + clip) - returns).square()
    metrics = {"clip_fraction": (clipped > plain).to(plain.dtype)}
    return PerTokenLoss(0.5 * torch.maximum(plain, clipped), metrics)
