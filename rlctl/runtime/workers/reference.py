"""The reference worker: a frozen copy of the first weights, asked for log-probs only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from rlctl.config import Config
from rlctl.planning.megatron.starting import without_checkpoint
from rlctl.runtime.serialization.sequences import Values
from rlctl.runtime.train.engines import make_train_engine, settled
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.engine import EngineWorker
from rlctl.runtime.workers.trainer import Place, enter, training_temperature


class Reference(EngineWorker):
    """Says how likely the reference finds a token."""

    def __init__(self, config: Config, model_path: str, place: Place) -> None:
        """Meet the other workers of the reference and load the model.

        Args:
            config: the stage's config; the sections ``reference`` and ``model`` say what is loaded.
            model_path: folder or hub name of the weights.
            place: where this worker stands.

        Raises:
            PlanError: the config asks for something that the engine does not do.
            RunError: the others do not come, or the model cannot be loaded.
        """
        reference = config.reference
        engine = reference.engine or config.train.engine
        precision = reference.precision or config.train.precision
        compiled = config.train.compile if reference.compile is None else reference.compile
        self._micro = reference.micro_batch or config.batch.log_prob_micro_batch or config.batch.micro_batch
        self._temperature = training_temperature(config)
        enter(config, place)
        train = dataclasses.replace(config.train, engine=engine, precision=precision, compile=compiled)
        if reference.model is not None and reference.engine is None:  # the policy's checkpoint is of another model
            train = without_checkpoint(train)
        self._engine = make_train_engine(
            dataclasses.replace(reference.model or config.model, path=model_path),
            settled(train, config),
            role="reference",
            seed=config.run.seed,
            device=place.device,
        )

    def log_probs(self, samples: Sequence[Sample]) -> Sequence[torch.Tensor]:
        """Log-probs of the counted tokens: float32 [T] a sample, under the policy's temperature."""
        return Values.of(self._engine.log_probs(samples, temperature=self._temperature, micro=self._micro))
