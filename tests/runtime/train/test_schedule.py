"""Learning rates are those of Transformers, and of numbers worked by hand where it has no such schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import get_scheduler

from rlctl.common.errors import PlanError
from rlctl.config.sections.train import LrScheduler, Optimizer
from rlctl.runtime.train.schedule import curve_of, decay_of

PEAK = 2e-3


def rates(total: int | None, ticks: int, **settings: Any) -> list[float]:
    """The rate of every optimizer step."""
    curve = curve_of(LrScheduler(**settings), peak=PEAK, scheduler_steps=total)
    return [curve.rate(tick) for tick in range(ticks)]


def transformers_rates(name: str, total: int, *, warmup: int, **kwargs: Any) -> list[float]:
    """The same, out of a real optimizer."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = get_scheduler(
        name, optimizer, num_warmup_steps=warmup, num_training_steps=total, scheduler_specific_kwargs=kwargs
    )
    found = []
    for _ in range(total):
        found.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("warmup", [0, 3])
@pytest.mark.parametrize(
    ("settings", "name", "kwargs"),
    [
        ({"type": "constant"}, "constant_with_warmup", {}),
        ({"type": "linear"}, "linear", {}),
        ({"type": "cosine"}, "cosine", {}),
        ({"type": "cosine", "num_cycles": 1.5}, "cosine", {"num_cycles": 1.5}),
        ({"type": "cosine", "min_lr_ratio": 0.1}, "cosine_with_min_lr", {"min_lr_rate": 0.1}),
        ({"type": "inverse_sqrt"}, "inverse_sqrt", {}),
        ({"type": "polynomial"}, "polynomial", {}),
        ({"type": "polynomial", "min_lr_ratio": 0.1}, "polynomial", {"lr_end": 0.1 * PEAK}),
    ],
)
def test_rates_are_those_of_transformers(
    warmup: int, settings: dict[str, Any], name: str, kwargs: dict[str, Any]
) -> None:
    mine = rates(20, 20, **settings, warmup_steps=warmup)
    assert mine == pytest.approx(transformers_rates(name, 20, warmup=warmup, **kwargs), rel=1e-9)


@pytest.mark.parametrize(
    ("shape", "kind", "low"), [("linear", "linear", 0.0), ("cosine", "cosine", 0.2), ("minus_sqrt", "1-sqrt", 0.1)]
)
def test_wsd_is_that_of_transformers(shape: str, kind: str, low: float) -> None:
    mine = rates(20, 20, type="wsd", warmup_steps=4, wsd_decay_steps=6, wsd_decay_style=shape, min_lr_ratio=low)
    theirs = transformers_rates(
        "warmup_stable_decay", 20, warmup=4, num_decay_steps=6, decay_type=kind, min_lr_ratio=low
    )
    assert mine[4:] == pytest.approx(
        theirs[4:], rel=1e-9
    )  # its warm-up rises from the lowest rate, ours from warmup_start_lr


def test_exponential_wsd_halfway_is_two_to_the_minus_a_half() -> None:
    [*_, halfway] = rates(10, 9, type="wsd", wsd_decay_steps=4, wsd_decay_style="exponential")
    assert halfway == pytest.approx(PEAK * (2 / math.sqrt(2) - 1))


@pytest.mark.parametrize(
    ("settings", "tick", "expected"),
    [
        ({"warmup_steps": 4, "warmup_start_lr": 1e-3}, 1, 1.25e-3),  # a quarter of the way from 1e-3 to 2e-3
        ({"warmup_ratio": 0.5}, 3, PEAK * 3 / 5),  # 5 of 10 ticks
        ({"type": "linear", "min_lr": 5e-4}, 5, 1.25e-3),  # halfway from 2e-3 to 5e-4
        ({"type": "linear", "decay_steps": 4, "min_lr_ratio": 0.5}, 9, 1e-3),  # stays at the lowest point
        ({"type": "linear", "total_steps": 20}, 5, 1.5e-3),  # a quarter of 20
    ],
)
def test_rates_by_hand(settings: dict[str, Any], tick: int, expected: float) -> None:
    assert rates(10, 10, **settings)[tick] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rates(None, 1, type="cosine"), "cosine needs the length"),
        (lambda: rates(None, 1, warmup_ratio=0.1), "warmup_ratio needs the length"),
        (lambda: rates(10, 1, type="spline"), "is spline, which rlctl does not support"),
    ],
)
def test_schedules_that_cannot_be_computed_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"weight_decay": 0.1}, [0.1, 0.1, 0.1]),
        ({"weight_decay_style": "linear", "start_weight_decay": 0.0, "end_weight_decay": 0.4}, [0.0, 0.1, 0.4]),
        ({"weight_decay_style": "cosine", "end_weight_decay": 1.0, "weight_decay": 0.0}, [0.0, 0.1464466, 1.0]),
    ],
)
def test_weight_decay_moves_as_in_megatron(settings: dict[str, Any], expected: list[float]) -> None:
    """(1 - cos(pi / 4)) / 2 = 0.1464466 after a quarter of 8 ticks; from the end on it stays."""
    decay = decay_of(Optimizer(**settings), scheduler_steps=8)
    assert [decay.at(tick) for tick in (0, 2, 11)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "ticks", "message"),
    [
        ({"start_weight_decay": 0.3}, 8, "a start of 0.3 and an end of 0.01"),
        ({"weight_decay_style": "linear"}, None, "needs the length of the run"),
    ],
)
def test_weight_decay_that_cannot_be_computed_is_refused(
    settings: dict[str, Any], ticks: int | None, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        decay_of(Optimizer(**settings), scheduler_steps=ticks)
