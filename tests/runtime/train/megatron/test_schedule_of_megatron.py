"""Learning rate and weight decay are those of Megatron-core's OptimizerParamScheduler, in every style that it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from rlctl.config import Config
from rlctl.config.sections.train import LrScheduler, Optimizer
from rlctl.documents import read_yaml
from rlctl.runtime.train.schedule import curve_of, decay_of
from rlctl.translation.translate import read_document, translate_loaded

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
    settings = LrScheduler(
        type=style,
        warmup_steps=warmup,
        warmup_start_lr=start,
        min_lr=low,
        wsd_decay_steps=wsd,
        wsd_decay_style=shape,
    )  # type: ignore[arg-type]
    curve = curve_of(settings, peak=peak, scheduler_steps=total)
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
    decay = decay_of(settings, scheduler_steps=total)
    mine = [decay.at(tick) for tick in range(total + 1)]
    assert mine == pytest.approx([decayed for _, decayed in theirs], rel=1e-9, abs=1e-15)


def test_from_the_end_on_the_rate_stays_the_lowest() -> None:
    curve = curve_of(LrScheduler(type="cosine", min_lr_ratio=0.1), peak=1.0, scheduler_steps=10)
    assert [curve.rate(tick) for tick in (10, 11, 40)] == pytest.approx([0.1] * 3)


STEPS = 40
ACTOR = "actor_rollout_ref.actor"
VERL = [
    *("model_engine=megatron", "algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.name=vllm"),
    *("actor_rollout_ref.model.path=org/model", "data.train_files=a.parquet", "data.val_files=b.parquet"),
    *(f"trainer.total_training_steps={STEPS}", f"{ACTOR}.optim.lr=1e-3"),
]


def from_verl(text: str, *overrides: str) -> Any:
    loaded, report = read_document(
        read_yaml(text, "verl.yaml", allow_empty=True),
        dialect="verl@0.9",
        overrides=[*VERL, *overrides],
        environment={},
    )
    assert loaded is not None, report.findings
    return loaded, report


def rates_of(config: Config) -> list[float]:
    schedule, peak = config.train.lr_scheduler, config.train.optimizer.lr
    curve = curve_of(schedule, peak=peak, scheduler_steps=STEPS)
    return [curve.rate(tick) for tick in range(STEPS + 1)]


def rates_of_verl(optim: dict[str, Any]) -> list[float]:
    """Megatron-core's, given what verl/utils/megatron/optimizer.py gives it."""
    decay, warmup = optim.get("lr_decay_steps") or STEPS, optim.get("lr_warmup_steps", -1)
    if warmup <= 0:
        warmup = int(optim.get("lr_warmup_steps_ratio", 0.0) * decay)
    style = optim.get("lr_decay_style", "constant")
    optimizer = SimpleNamespace(param_groups=[{}])
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=optim["lr"], min_lr=0.0, lr_warmup_steps=warmup, lr_decay_steps=decay,
        lr_decay_style=style, start_wd=0.01, end_wd=0.01, wd_incr_steps=STEPS, wd_incr_style="constant",
    )  # fmt: skip
    found = []
    for _ in range(STEPS + 1):
        found.append(optimizer.param_groups[0]["lr"])
        scheduler.step(1)
    return found


WRITTEN: list[dict[str, Any]] = [
    {"lr_warmup_steps_ratio": 0.1},
    {"lr_warmup_steps_ratio": 0.1, "lr_decay_steps": 29},
    {"lr_warmup_steps_ratio": 0.29, "lr_decay_steps": 100},
    {"lr_warmup_steps_ratio": 0.01, "lr_decay_steps": 29},
    {"lr_warmup_steps_ratio": 0.5, "lr_decay_steps": 29, "lr_warmup_steps": 0},
    {"lr_warmup_steps_ratio": 0.5, "lr_decay_steps": 29, "lr_warmup_steps": 3},
    {"lr_warmup_steps_ratio": 0.5, "lr_warmup_steps": 3},
    {"lr_decay_steps": 12},
]


@pytest.mark.parametrize("optim", WRITTEN)
@pytest.mark.parametrize("style", ["constant", "cosine"])
def test_the_rates_of_a_verl_config_are_those_that_verl_has(optim: dict[str, Any], style: str) -> None:
    """A share of the warm-up is one of the decay steps there; written back, it says the same."""
    optim = {**optim, "lr": 1e-3, "lr_decay_style": style}
    loaded, report = from_verl("", *(f"{ACTOR}.optim.{name}={value}" for name, value in optim.items()))
    assert rates_of(loaded.config) == pytest.approx(rates_of_verl(optim), rel=1e-9, abs=1e-15)
    text = translate_loaded(loaded, report, "verl@0.9").text
    assert text is not None
    again = read_yaml(text, "again.yaml").values["actor_rollout_ref"]["actor"]["optim"]
    assert rates_of_verl(again) == pytest.approx(rates_of_verl(optim), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    "schedule",
    [
        "{type: cosine, warmup_ratio: 0.1, decay_steps: 30}",
        "{type: cosine, warmup_ratio: 0.01, decay_steps: 30}",
        "{type: linear, warmup_ratio: 0.2}",
        "{type: cosine, warmup_steps: 6, decay_steps: 30}",
    ],
)
def test_verl_is_written_the_rates_that_a_config_has(schedule: str) -> None:
    text = (
        f"rlctl: 1\nmodel: {{path: org/model}}\ndata: {{train: [{{path: a.parquet}}], eval: [{{path: b.parquet}}]}}\n"
        f"schedule: {{total_steps: {STEPS}}}\n"
        f"train: {{engine: megatron, optimizer: {{lr: 1.0e-3}}, lr_scheduler: {schedule}}}\n"
    )
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None, report.findings
    made = translate_loaded(loaded, report, "verl@0.9").text
    assert made is not None
    optim = read_yaml(made, "verl.yaml").values["actor_rollout_ref"]["actor"]["optim"]
    assert rates_of_verl(optim) == pytest.approx(rates_of(loaded.config), rel=1e-9, abs=1e-15)
