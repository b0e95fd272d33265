"""What worker processes do with checkpoints of Megatron engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from rlctl.config.sections.model import Model
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.train import LrScheduler, Megatron, PrecisionSettings, Train
from rlctl.runtime.train.checkpoint import DEFAULTS
from rlctl.runtime.train.losses import SftLoss, totals_of
from rlctl.runtime.train.megatron.engine import MegatronEngine
from rlctl.runtime.types import Sample
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT32, settings
from tests.runtime.train.jobs import engine_of as fsdp_engine_of

from megatron.core import parallel_state as mpu  # isort: skip

Trained = tuple[dict[str, Tensor], list[dict[str, float]]]


BFLOAT16 = PrecisionSettings(compute="bfloat16")


def decaying(engine: Megatron, precision: PrecisionSettings = FLOAT32) -> Train:
    """Settings under which another tick, or another moment of Adam, would show."""
    schedule = LrScheduler(type="cosine")
    return dataclasses.replace(settings(precision), engine=engine, lr_scheduler=schedule)


def engine_of(folder: Path, train: Train) -> MegatronEngine:
    return MegatronEngine(Model(path=str(folder)), train, role="policy", seed=1, scheduler_steps=10)


def trained(engine: MegatronEngine, samples: Sequence[Sample], count: int) -> Trained:
    """All weights, on rank 0, and the metrics of so many updates."""
    mine = list(samples[mpu.get_data_parallel_rank() :: mpu.get_data_parallel_world_size()])
    totals, metrics = totals_of(samples), []
    for _ in range(count):
        metrics.append(engine.update(mine, SftLoss(), micro=ALL_AT_ONCE, temperature=1.0, totals=totals))
        engine.step_schedule()
    return dict(engine.export_weights()), metrics


def train_and_save(
    folder: Path, train: Train, samples: Sequence[Sample], target: Path, how: Checkpoint
) -> tuple[dict[str, Tensor], Trained]:
    """Two optimizer steps, a save, and two more; the weights that were saved, and what came after."""
    engine = engine_of(folder, train)
    saved, _ = trained(engine, samples, 2)
    written = engine.save(target, how)
    found = trained(engine, samples, 2)
    written.result()
    return saved, found


def load_and_train(
    folder: Path, train: Train, samples: Sequence[Sample], source: Path, how: Checkpoint = DEFAULTS
) -> tuple[dict[str, Tensor], Trained]:
    """The weights that were loaded, and two optimizer steps from there."""
    engine = engine_of(folder, train)
    engine.load(source, how)
    loaded = dict(engine.export_weights())
    return loaded, trained(engine, samples, 2)


def load_some(folder: Path, train: Train, source: Path, how: Checkpoint) -> dict[str, bool]:
    """What of a fresh engine a checkpoint changes."""
    engine = engine_of(folder, train)
    before = dict(engine.export_weights())
    engine.load(source, how)
    assert engine.optimizer is not None
    parts = getattr(engine.optimizer, "chained_optimizers", [engine.optimizer])
    after = dict(engine.export_weights())
    return {
        "model": any(not torch.equal(tensor, before[name]) for name, tensor in after.items()),
        "optimizer": any(part.optimizer.state for part in parts),
        "extra": engine.updates > 0,
    }


def draws(folder: Path, train: Train, target: Path, load: bool) -> Tensor:
    """What this worker draws after saving, or after loading."""
    engine = engine_of(folder, train)
    if load:
        torch.manual_seed(99)
        engine.load(target)
    else:
        engine.save(target)
    return torch.rand(3)


def load_with_fsdp(folder: Path, source: Path) -> None:
    fsdp_engine_of(folder, settings()).load(source)


def save_with_fsdp(folder: Path, target: Path) -> None:
    fsdp_engine_of(folder, settings()).save(target)
