"""The critic worker: one process of the value model's train engine, asked for values and trained on returns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from rlctl.common.errors import PlanError, RunError
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.train import LrScheduler
from rlctl.runtime.serialization.sequences import Values
from rlctl.runtime.train.distributed import Device
from rlctl.runtime.train.engines import EngineSpec, make_train_engine
from rlctl.runtime.train.interface import TrainEngine
from rlctl.runtime.train.losses import CriticLoss
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.engine import EngineWorker
from rlctl.runtime.workers.trainer import JoinSpec, Place, Share, enter, take_steps


@dataclass(frozen=True, slots=True)
class CriticSpec:
    """What a critic's workers are made from; the same for all of them."""

    engine: EngineSpec
    loss: CriticLoss
    join: JoinSpec
    micro: MicroBatchSize
    forward_micro: MicroBatchSize
    """Of passes without gradients."""
    scheduler_steps: int | None
    """Steps of the critic's learning-rate schedule over the whole run, None where it is not known."""


class Critic(EngineWorker):
    """Says what is still to come of a response, and learns it. All workers of a critic get the same calls in the same order."""

    def __init__(self, spec: CriticSpec, place: Place) -> None:
        """Meet the other workers of the critic, and load the model at the ``place`` of this one.

        A value head that the first weights lack is drawn by the seed.

        Raises:
            PlanError: the config asks for something that the engine does not do.
            RunError: the others do not come, or the model cannot be loaded.
        """
        self._micro, self._forward_micro, self._loss = spec.micro, spec.forward_micro, spec.loss
        self._schedule: LrScheduler = spec.engine.train.lr_scheduler
        enter(spec.join, place)
        self._engine = make_critic_engine(spec, place.device)

    def values(self, samples: Sequence[Sample]) -> Sequence[torch.Tensor]:
        """Values before the counted tokens under the weights of now: float32 [T] a sample."""
        return Values.of(self._engine.values(samples, micro=self._forward_micro))

    def train_step(self, shares: Sequence[Share]) -> list[dict[str, float]]:
        """Train on one step's samples, with the columns ``old_values`` and ``returns``; see ``Trainer.train_step``."""
        return take_steps(self._engine, shares, lambda index: self._loss, self._schedule, micro=self._micro)


def make_critic_engine(spec: CriticSpec, device: Device) -> TrainEngine:
    """The engine of a critic.

    Raises:
        PlanError: there is no such engine here.
    """
    engine = spec.engine
    with told_of_critic():
        return make_train_engine(
            engine.model,
            engine.train,
            role="critic",
            seed=engine.seed,
            scheduler_steps=spec.scheduler_steps,
            device=device,
        )


@contextmanager
def told_of_critic() -> Iterator[None]:
    """What the engine says of ``train`` and ``model``, the policy's sections, is told of the critic's.

    Raises:
        PlanError, RunError: with the critic's keys.
    """
    try:
        yield
    except (PlanError, RunError) as error:
        message, hint = (re.sub(r"\b(train|model)\.", _key_of_critic, text) for text in (error.message, error.hint))
        raise type(error)(message, hint=hint) from error


def _key_of_critic(found: re.Match[str]) -> str:
    return {"train.": "critic.", "model.": "critic.model."}[found[0]]
