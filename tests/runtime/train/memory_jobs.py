"""What worker processes of FSDP2 really allocate."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import MemorySettings, Optimizer, PrecisionSettings, Train
from rlctl.runtime.algorithms import entropy
from rlctl.runtime.train.fsdp import FsdpEngine
from rlctl.runtime.train.losses import SftLoss, totals_of
from rlctl.runtime.types import Sample
from tests.planning.memory.live_storages import LiveStorages


def allocated(folder: Path, compute: str, recompute: bool, prompt: int, response: int, count: int) -> dict[str, int]:
    """Bytes of parameters and optimizer of one worker, and the peak of a step of two micro-batches, all really computed."""
    entropy.CPU_CHUNK_ELEMENTS = entropy.CHUNK_ELEMENTS  # as on a GPU
    train = Train(
        precision=PrecisionSettings(compute=compute),  # type: ignore[arg-type]
        optimizer=Optimizer(lr=1e-3),
        memory=MemorySettings(recompute_activations=recompute),
    )
    live = LiveStorages()
    engine = FsdpEngine(Model(path=str(folder)), train, role="policy", seed=1, scheduler_steps=10)
    width = prompt + response
    mask = torch.arange(width + 1) > prompt  # the last token is predicted and never fed
    samples = [Sample(torch.full((width + 1,), 5), mask, {}) for _ in range(2 * count)]
    with live.resizes():
        for parameter in engine.model.parameters():
            live.count(parameter.data)
        with live:
            for _ in range(2):
                live.peak = live.bytes
                micro = MicroBatchSize(unit="tokens", size=count * width)
                engine.update(samples, SftLoss(), micro=micro, temperature=1.0, totals=totals_of(samples))
    assert engine.optimizer is not None
    moments = [value for state in engine.optimizer.state.values() for name, value in state.items() if name != "step"]
    return {
        "parameters": sum(_local_bytes(parameter) for parameter in engine.model.parameters()),
        "optimizer": sum(map(_local_bytes, moments)),
        "peak": live.peak,
    }


def _local_bytes(tensor: torch.Tensor) -> int:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.numel() * local.element_size()
