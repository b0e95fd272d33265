"""Schedules of learning rate and weight decay: functions of the step, so that the step is all the state there is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.train import LrScheduler, Optimizer


@dataclass(frozen=True, slots=True)
class Curve:
    """A schedule in steps. ``rate(0)`` is the learning rate of the first optimizer step."""

    name: str
    peak: float
    lowest: float
    """As a share of the peak."""
    start: float
    """Where the warm-up begins, as a share of the peak."""
    warmup: int
    total: int
    """The step of the lowest point; after it the rate stays."""
    cycles: float = 0.5
    decay: int = 0
    """Steps of the last part of wsd."""
    decay_shape: str = "exponential"

    def rate(self, step: int) -> float:
        """Return the learning rate at ``step``."""
        if step < self.warmup:
            return self.peak * (self.start + (1 - self.start) * step / self.warmup)
        return self.peak * SHAPES[self.name](self, step)

    def progress(self, step: int) -> float:
        """Return the share of the way from the peak to the lowest point, 0 to 1."""
        return min((step - self.warmup) / max(1, self.total - self.warmup), 1.0)

    def between(self, share: float) -> float:
        """Return the point that is ``share`` of the way from the lowest to the peak, as a share of the peak."""
        return self.lowest + (1 - self.lowest) * share


def _constant(curve: Curve, step: int) -> float:
    return 1.0


def _linear(curve: Curve, step: int) -> float:
    return curve.between(1 - curve.progress(step))


def _cosine(curve: Curve, step: int) -> float:
    return curve.between(0.5 * (1 + math.cos(2 * math.pi * curve.cycles * curve.progress(step))))


def _inverse_sqrt(curve: Curve, step: int) -> float:
    """Square root of warm-up over step, to the end of the decay, as in Megatron-core; without a warm-up, the time scale of
    10,000 that Transformers takes."""
    if curve.total and step > curve.total:
        return curve.lowest
    scale = curve.warmup or 10_000
    return max(curve.lowest, math.sqrt(scale / (step + scale - curve.warmup)))


def _polynomial(curve: Curve, step: int) -> float:
    """Of power 1, to ``POLYNOMIAL_END`` where the lowest point is not above it, as in Transformers."""
    lowest = max(curve.lowest, min(POLYNOMIAL_END / curve.peak, 1.0) if curve.peak > 0 else 0.0)
    return lowest + (1 - lowest) * (1 - curve.progress(step))


def _wsd(curve: Curve, step: int) -> float:
    begin = curve.total - curve.decay
    if step < begin:
        return 1.0
    return curve.between(DECAYS[curve.decay_shape](min((step - begin) / max(1, curve.decay), 1.0)))


POLYNOMIAL_END = 1e-7
"""The learning rate that Transformers' polynomial schedule ends at, where nothing else is said."""

SHAPES: dict[str, Callable[[Curve, int], float]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "inverse_sqrt": _inverse_sqrt,
    "wsd": _wsd,
    "polynomial": _polynomial,
}
"""After the warm-up, as a share of the peak. Sources: the schedules of the same names in transformers/optimization.py,
with a lowest point as in verl's get_cosine_schedule_with_warmup; wsd, MiniCPM, arXiv:2404.06395."""

DECAYS: dict[str, Callable[[float], float]] = {
    "linear": lambda x: 1 - x,
    "cosine": lambda x: 0.5 * (1 + math.cos(math.pi * x)),
    "exponential": lambda x: 2 * 0.5**x - 1,
    "minus_sqrt": lambda x: 1 - math.sqrt(x),
}
"""The last part of wsd from 1 to 0. Source: optimizer_param_scheduler.py of Megatron-core."""


def curve_of(schedule: LrScheduler, *, peak: float, scheduler_steps: int | None) -> Curve:
    """Read a schedule from the config.

    Args:
        peak: ``optimizer.lr``.
        scheduler_steps: steps of the run, as the plan has it; None while unknown.

    Raises:
        PlanError: a shape that is not computed, or one that needs the length of the run where it is not known.
    """
    if schedule.type not in SHAPES:
        raise PlanError(
            said(
                "train.lr_scheduler.type is {type}, which rlctl does not support; expected one of {names}",
                type=schedule.type,
                names=", ".join(SHAPES),
            ),
            hint=nearest(schedule.type, SHAPES),
        )
    total = schedule.decay_steps or schedule.total_steps or scheduler_steps
    by_ratio = schedule.warmup_steps is None and schedule.warmup_ratio
    if total is None and (by_ratio or schedule.type not in ("constant", "inverse_sqrt")):
        what = "warmup_ratio" if by_ratio else schedule.type
        raise PlanError(
            said("train.lr_scheduler: {what} needs the length of the run, which is unknown", what=what),
            hint="set train.lr_scheduler.total_steps",
        )
    warmup = schedule.warmup_steps
    if warmup is None:
        warmup = int((schedule.warmup_ratio or 0.0) * (schedule.total_steps or scheduler_steps or total or 0))
    lowest = schedule.min_lr_ratio
    if schedule.min_lr is not None and peak > 0:
        lowest = schedule.min_lr / peak
    return Curve(
        name=schedule.type,
        peak=peak,
        lowest=lowest,
        start=schedule.warmup_start_lr / peak if peak > 0 else 0.0,
        warmup=warmup,
        total=total or 0,
        cycles=schedule.num_cycles,
        decay=schedule.wsd_decay_steps or 0,
        decay_shape=schedule.wsd_decay_style,
    )


@dataclass(frozen=True, slots=True)
class Decay:
    """Weight decay on its way from start to end. Source: optimizer_param_scheduler.py of Megatron-core."""

    style: str
    start: float
    end: float
    total: int

    def at(self, step: int) -> float:
        """Return the weight decay at ``step``."""
        if self.style == "constant":
            return self.end
        share = min(step / max(1, self.total), 1.0)
        return self.start + (self.end - self.start) * DECAY_STYLES[self.style](share)


DECAY_STYLES: dict[str, Callable[[float], float]] = {
    "linear": lambda x: x,
    "cosine": lambda x: 0.5 * (1 - math.cos(math.pi * x)),
}
"""The share of the way from start to end."""


def decay_of(optimizer: Optimizer, *, scheduler_steps: int | None) -> Decay:
    """Read the weight decay of a config.

    Args:
        optimizer: section ``optimizer``.
        scheduler_steps: steps of the run; None while unknown.

    Raises:
        PlanError: it moves, and the length of the run is not known; or it stays, with two ends.
    """
    start, end = (
        optimizer.weight_decay if value is None else value
        for value in (optimizer.start_weight_decay, optimizer.end_weight_decay)
    )
    if optimizer.weight_decay_style == "constant" and start != end:
        raise PlanError(
            said(
                "train.optimizer.weight_decay_style is constant, with a start of {start} and an end of {end}",
                start=start,
                end=end,
            ),
            hint="set it to linear or cosine, or omit start_weight_decay and end_weight_decay",
        )
    if optimizer.weight_decay_style != "constant" and scheduler_steps is None:
        raise PlanError(
            "train.optimizer.weight_decay_style needs the length of the run, which is unknown",
            hint="set train.lr_scheduler.total_steps",
        )
    return Decay(optimizer.weight_decay_style, start, end, scheduler_steps or 0)


def set_rates(groups: Iterable[dict[str, Any]], curve: Curve, decay: Decay, step: int) -> float:
    """Give the groups of an optimizer what holds at a step, and return the learning rate.

    ``wd_mult`` of a group is what its weight decay is multiplied by, as in Megatron-core.
    """
    rate = curve.rate(step)
    for group in groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # torchao's are compiled, and see a new number only so
        else:
            group["lr"] = rate
        group["weight_decay"] = decay.at(step) * group.get("wd_mult", 1.0)
    return rate
