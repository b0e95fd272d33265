"""What tests of checkpoints have several workers do together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from rlctl.config.sections.output import Checkpoint
from rlctl.runtime.train.interface import LossFunction
from rlctl.runtime.types import Sample
from tests.runtime.train.jobs import ALL_AT_ONCE, engine_of, gathered_after, settings


def names_in(folder: Path) -> set[str]:
    """The parts of what was saved: ``model``, ``optimizer``, ``progress``, ``random``, ``schedule``."""
    return {name.partition("/")[0] for name in FileSystemReader(folder).read_metadata().state_dict_metadata}


def save_after_an_update(
    folder: Path, samples: Sequence[Sample], loss: LossFunction, target: Path, checkpoint: Checkpoint
) -> set[str]:
    engine = engine_of(folder, settings())
    gathered_after(engine, samples, loss, ALL_AT_ONCE, 1)
    engine.save(target, checkpoint).result()
    return names_in(target)


def load_some(folder: Path, source: Path, checkpoint: Checkpoint) -> Mapping[str, Any]:
    """What of a fresh engine a checkpoint changes."""
    engine = engine_of(folder, settings())
    before = {name: tensor.detach().clone() for name, tensor in engine.model.named_parameters()}
    engine.load(source, checkpoint)
    assert engine.optimizer is not None
    return {
        "model": any(not torch.equal(tensor, before[name]) for name, tensor in engine.model.named_parameters()),
        "optimizer": bool(engine.optimizer.state),
        "extra": engine.updates > 0,
    }


def save_beside_training(
    folder: Path, samples: Sequence[Sample], loss: LossFunction, target: Path
) -> tuple[bool, dict[str, Tensor]]:
    """Begin to save, train on while nothing is written yet, then let it be; and save the same at once before."""
    engine = engine_of(folder, settings())
    gathered_after(engine, samples, loss, ALL_AT_ONCE, 1)
    engine.save(target / "at_once")
    with patch.object(FileSystemWriter, "write_data", _later(FileSystemWriter.write_data)):
        written = engine.save(target / "beside", Checkpoint(asynchronous=True))
        trained = gathered_after(engine, samples, loss, ALL_AT_ONCE, 1)[0]
        early = written.done()
        written.result()
    return early, trained


def _later(write: Any) -> Any:
    def write_data(self: Any, plan: Any, planner: Any) -> Any:
        time.sleep(3.0)
        return write(self, plan, planner)

    return write_data


def times_of_writing(folder: Path, target: Path, checkpoint: Checkpoint) -> tuple[float, float]:
    """When this worker writes."""
    engine, times = engine_of(folder, settings()), []

    def write_data(self: Any, plan: Any, planner: Any) -> Any:
        began = time.time()
        written = write(self, plan, planner)
        time.sleep(0.3)
        times.append((began, time.time()))
        return written

    write = FileSystemWriter.write_data
    with patch.object(FileSystemWriter, "write_data", write_data):
        engine.save(target, checkpoint).result()
    return times[0]
