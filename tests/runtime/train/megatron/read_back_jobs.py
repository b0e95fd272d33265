"""What a started engine says of itself: the live configs of Megatron-core, and what moves its learning rate."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

from megatron.core.optimizer import ChainedOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Train
from rlctl.runtime.train.megatron.engine import MegatronEngine
from rlctl.runtime.train.schedule import set_rates

TICKS = 12


def started(folder: Path, train: Train) -> dict[str, dict[str, Any]]:
    """Start an engine, and read its configs."""
    engine = MegatronEngine(Model(path=str(folder)), train, role="policy", seed=1, scheduler_steps=TICKS)
    whole: Any = engine.optimizer
    parts = whole.chained_optimizers if isinstance(whole, ChainedOptimizer) else [whole]
    assert engine.curve is not None
    assert engine.decay is not None
    rates, decays = [], []
    for tick in range(TICKS):
        rates.append(set_rates(whole.param_groups, engine.curve, engine.decay, tick))
        assert {group["lr"] for group in whole.param_groups} == {rates[-1]}
        decays.append(sorted({group["weight_decay"] for group in whole.param_groups}))
    named = dict(engine.chunks[0].named_parameters())
    routers = [parameter for name, parameter in named.items() if ".router." in name]
    return {
        "transformer": _plain(engine.config),
        "ddp": _plain(engine.chunks[0].ddp_config),
        "optimizer": _plain(parts[0].config),
        "engine": {
            "rates": rates,
            "decays": decays,
            "kind": type(parts[0].optimizer).__name__,
            "takes_schedule": engine.takes_schedule,
            "trains_routers": any(parameter.requires_grad for parameter in routers),
            "experts": sorted({type(m).__name__ for m in engine.chunks[0].modules() if "Expert" in type(m).__name__}),
            "clips_at": engine._max_grad_norm,
        },
    }


def _plain(config: Any) -> dict[str, Any]:
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: copy.copy(value) for name, value in values.items() if not callable(value)}


class _Optimizer:
    """What Megatron-core's scheduler moves."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{"wd_mult": 1.0}, {"wd_mult": 0.0}]


def megatrons_own(**settings: Any) -> tuple[list[float], list[list[float]]]:
    """Learning rates and weight decays of Megatron-core's scheduler, as verl and ROLL step it: once behind each tick."""
    optimizer = _Optimizer()
    scheduler = OptimizerParamScheduler(optimizer, **settings)
    rates, decays = [], []
    for _ in range(TICKS):
        rates.append(optimizer.param_groups[0]["lr"])
        decays.append(sorted({group["weight_decay"] for group in optimizer.param_groups}))
        scheduler.step(1)
    return rates, decays
