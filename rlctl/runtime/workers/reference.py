"""The reference worker: a frozen copy of the first weights, asked for log-probs only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.serialization.sequences import Values
from rlctl.runtime.train.engines import EngineSpec, make_train_engine
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.engine import EngineWorker
from rlctl.runtime.workers.trainer import JoinSpec, Place, enter


@dataclass(frozen=True, slots=True)
class ReferenceSpec:
    """What a reference's workers are made from; the same for all of them."""

    engine: EngineSpec
    join: JoinSpec
    micro: MicroBatchSize
    temperature: float
    """The policy's."""


class Reference(EngineWorker):
    """Says how likely the reference finds a token."""

    def __init__(self, spec: ReferenceSpec, place: Place) -> None:
        """Meet the other workers of the reference, and load the model at the ``place`` of this one.

        Raises:
            PlanError: the config asks for something that the engine does not do.
            RunError: the others do not come, or the model cannot be loaded.
        """
        self._micro, self._temperature = spec.micro, spec.temperature
        enter(spec.join, place)
        engine = spec.engine
        self._engine = make_train_engine(
            engine.model, engine.train, role="reference", seed=engine.seed, device=place.device
        )

    def log_probs(self, samples: Sequence[Sample]) -> Sequence[torch.Tensor]:
        """Log-probs of the counted tokens: float32 [T] a sample, under the policy's temperature."""
        return Values.of(self._engine.log_probs(samples, temperature=self._temperature, micro=self._micro))
