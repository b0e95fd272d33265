"""Learning rate and weight decay are those of Megatron-core's OptimizerParamScheduler, in every style that it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from rlctl.config.sections.train import LearningRateSchedule, Optimizer, Warmup
from rlctl.runtime.train.schedule import curve_of, decay_of

STYLES = {
    "constant": "constant",
    "linear": "linear",
    "cosine": "cosine",
    "wsd": "WSD",
    "inverse_sqrt": "inverse-square-root",
}
"""What Megatron-core calls the shapes."""


def megatron(total: int, **settings: Any) -> list[tuple[float, float]]:
    """Learning rate and weight decay at every tick up to the end."""
    optimizer = SimpleNamespace(param_groups=[{}])
    scheduler = OptimizerParamScheduler(optimizer, lr_decay_steps=total, wd_incr_steps=total, **settings)
    found = []
    for _ in range(total + 1):
        (group,) = optimizer.param_groups
        found.append((group["lr"], group["weight_decay"]))
        scheduler.step(1)
    return found


@pytest.mark.parametrize("style", STYLES)
@given(data=st.data())
def test_rates_are_those_of_megatron(style: str, data: st.DataObject) -> None:
    total = data.draw(st.integers(4, 60), "total")
    warmup = data.draw(st.integers(1 if style == "inverse_sqrt" else 0, total - 2), "warmup")
    peak = data.draw(st.floats(1e-6, 1e-2), "peak")
    low, start = (peak * data.draw(st.floats(0, 1), name) for name in ("lowest", "start"))
    wsd = data.draw(st.integers(1, total - warmup), "wsd")
    shape = data.draw(st.sampled_from(["exponential", "linear", "cosine", "minus_sqrt"]), "shape")
    theirs = megatron(
        total, init_lr=start, max_lr=peak, min_lr=low, lr_warmup_steps=warmup, lr_decay_style=STYLES[style],
        start_wd=0.0, end_wd=0.0, wd_incr_style="constant", wsd_decay_steps=wsd, lr_wsd_decay_style=shape,
    )  # fmt: skip
    settings = LearningRateSchedule(
        name=style,
        warmup=Warmup(ticks=warmup, start=start),
        min_learning_rate=low,
        wsd_decay_ticks=wsd,
        wsd_decay=shape,
    )  # type: ignore[arg-type]
    curve = curve_of(settings, peak=peak, total_ticks=total)
    mine = [curve.rate(tick) for tick in range(total + 1)]
    assert mine == pytest.approx([rate for rate, _ in theirs], rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("style", ["constant", "linear", "cosine"])
@given(total=st.integers(2, 60), start=st.floats(0, 0.5), more=st.floats(0, 0.5))
def test_weight_decay_is_that_of_megatron(style: str, total: int, start: float, more: float) -> None:
    end = start if style == "constant" else start + more
    theirs = megatron(
        total, init_lr=0.0, max_lr=1e-3, min_lr=0.0, lr_warmup_steps=0, lr_decay_style="constant",
        start_wd=start, end_wd=end, wd_incr_style=style,
    )  # fmt: skip
    settings = Optimizer(weight_decay_style=style, start_weight_decay=start, end_weight_decay=end)  # type: ignore[arg-type]
    decay = decay_of(settings, total_ticks=total)
    mine = [decay.at(tick) for tick in range(total + 1)]
    assert mine == pytest.approx([decayed for _, decayed in theirs], rel=1e-9, abs=1e-15)


def test_from_the_end_on_the_rate_stays_the_lowest() -> None:
    curve = curve_of(LearningRateSchedule(name="cosine", min_ratio=0.1), peak=1.0, total_ticks=10)
    assert [curve.rate(tick) for tick in (10, 11, 40)] == pytest.approx([0.1] * 3)
