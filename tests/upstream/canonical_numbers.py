"""The numbers of a canonical config in the shape that a driver answers with: rlctl's arithmetic, schedules, losses and KL."""

from __future__ import annotations

from typing import Any

import torch

from rlctl.config import Config
from rlctl.config.sections.train import LrScheduler
from rlctl.planning import arithmetic
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.train.losses import Weights
from rlctl.runtime.train.schedule import curve_of


def learning_rates(schedule: LrScheduler, peak: float, steps: int, each: int, at: list[int]) -> list[float]:
    """The rate of the first optimizer step of each given step.

    Args:
        schedule: of one role.
        peak: the optimizer's learning rate.
        steps: steps of the run.
        each: optimizer steps of a step.
        at: steps, from 0.
    """
    ticks = each if schedule.step_unit == "optimizer_step" else 1
    curve = curve_of(schedule, peak=peak, scheduler_steps=steps * ticks)
    return [curve.rate(step * ticks) for step in at]


def policy_loss(
    config: Config, log_ratio: list[list[float]], advantages: list[list[float]], mask: list[list[float]]
) -> Any:
    """The policy loss of a mini-batch of a few tokens; None for a loss that rlctl only translates."""
    choice = config.algorithm.policy_loss
    name = choice.choice
    if name not in POLICY_LOSSES:
        return None
    counted = torch.tensor(mask).bool()
    new, gains = torch.tensor(log_ratio)[counted], torch.tensor(advantages)[counted]
    lengths = counted.sum(dim=1)
    tensors = {"log_probs": new, "old_log_probs": torch.zeros_like(new), "advantages": gains, "lengths": lengths}
    options = {key: value for key, value in vars(choice).items() if key in POLICY_LOSSES[name].options}
    found = POLICY_LOSSES[name](tensors, **options)
    aggregation = config.algorithm.loss_aggregation
    factor = aggregation.scale_factor
    if aggregation.mode == "seq_mean_token_sum_norm" and factor is None:
        factor = float(len(mask[0]))
    weights = Weights(aggregation.mode, factor if aggregation.mode == "seq_mean_token_sum_norm" else None)
    return float(weights.total(found.values, lengths, Totals.of(lengths)))


def kl(name: str, log_ratio: list[list[float]]) -> list[list[float]]:
    """The KL of each token."""
    ratio = torch.tensor(log_ratio)
    values: list[list[float]] = KL_ESTIMATORS[name](ratio, torch.zeros_like(ratio)).tolist()
    return values


def micro(section: Any) -> dict[str, Any] | None:
    """How a role's batch is cut; None where it follows the policy's."""
    return None if section is None else {"unit": section.unit, "size": section.size}


def steps_of(config: Config, rows: int) -> int:
    """Steps of the run."""
    steps = arithmetic.total_steps(config, rows)
    assert steps is not None
    return steps
