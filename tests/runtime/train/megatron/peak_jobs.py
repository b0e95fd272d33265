"""What worker processes of Megatron models really allocate in a step."""

from __future__ import annotations

from pathlib import Path

import torch

from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Megatron, Optimizer, PrecisionSettings, Train
from rlctl.runtime.algorithms import entropy
from rlctl.runtime.train.losses import SftLoss, totals_of
from rlctl.runtime.train.megatron.engine import MegatronEngine
from rlctl.runtime.types import Sample
from tests.planning.memory.live_storages import LiveStorages


def peak(folder: Path, engine: Megatron, compute: str, prompt: int, response: int, count: int) -> dict[str, int]:
    """Bytes that live at the worst moment of a second step of two micro-batches, all really computed."""
    entropy.CPU_PRODUCT_ELEMENTS = entropy.GRADIENT_ELEMENTS  # the vocabulary is so small that all rows are one chunk
    precision = PrecisionSettings(parameters="float32", compute=compute, reduce="float32")  # type: ignore[arg-type]
    train = Train(engine=engine, precision=precision, optimizer=Optimizer(lr=1e-3))
    live = LiveStorages()
    with live:
        here = MegatronEngine(Model(path=str(folder)), train, role="policy", seed=1, scheduler_steps=10)
        width = prompt + response
        mask = torch.arange(width + 1) > prompt  # the last token is predicted and never fed
        samples = [Sample(torch.full((width + 1,), 5), mask, {}) for _ in range(2 * count)]
        micro = MicroBatchSize(unit="tokens", size=count * width)
        for _ in range(2):
            held, live.peak = live.bytes, live.bytes
            here.update(samples, SftLoss(), micro=micro, temperature=1.0, totals=totals_of(samples))
    return {"held": held, "peak": live.peak}
