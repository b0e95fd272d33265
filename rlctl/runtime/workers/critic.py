"""The critic worker: one process of the value model's train engine, asked for values and trained on returns."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from rlctl.common import packages
from rlctl.common.errors import PlanError, RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.train import Critic as CriticSection
from rlctl.planning import arithmetic
from rlctl.runtime.models.config import import_modules
from rlctl.runtime.serialization.sequences import Values
from rlctl.runtime.train.distributed import Device
from rlctl.runtime.train.engines import make_train_engine, settled
from rlctl.runtime.train.interface import TrainEngine
from rlctl.runtime.train.losses import CriticLoss
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.engine import EngineWorker
from rlctl.runtime.workers.trainer import Place, Share, enter, take_steps


class Critic(EngineWorker):
    """Says what is still to come of a response, and learns it. All workers of a critic get the same calls in the same order."""

    def __init__(self, config: Config, model_path: str, place: Place, scheduler_steps: int | None) -> None:
        """Meet the other workers of the critic and load the model.

        Args:
            config: the stage's config; the section ``critic`` says what is loaded and how it is trained.
            model_path: folder or hub name of the first weights; a value head that they lack is drawn by the seed.
            place: where this worker stands.
            scheduler_steps: steps of the critic's learning-rate schedule over the whole run, None where it is not known.

        Raises:
            PlanError: the config has no critic, or one that the engine does not do.
            RunError: the others do not come, or the model cannot be loaded.
        """
        section = section_of(config)
        self._schedule = section.lr_scheduler
        batch = arithmetic.critic_batch(config)
        self._micro, self._forward_micro = batch.micro_batch, batch.log_prob_micro_batch or batch.micro_batch
        self._loss = CriticLoss.of(section.value_loss, max_response_tokens=config.rollout.max_response_tokens)
        enter(config, place)
        self._engine = make_critic_engine(config, model_path, place.device, scheduler_steps)

    def values(self, samples: Sequence[Sample]) -> Sequence[torch.Tensor]:
        """Values before the counted tokens under the weights of now: float32 [T] a sample."""
        return Values.of(self._engine.values(samples, micro=self._forward_micro))

    def train_step(self, shares: Sequence[Share]) -> list[dict[str, float]]:
        """Train on one step's samples, with the columns ``old_values`` and ``returns``; see ``Trainer.train_step``."""
        return take_steps(self._engine, shares, lambda index: self._loss, self._schedule, micro=self._micro)


def section_of(config: Config) -> CriticSection:
    """The section ``critic``.

    Raises:
        PlanError: there is none.
    """
    if config.critic is None:
        raise PlanError(
            said("{choice} needs a critic, but critic is null", choice=config.algorithm.advantage.choice),
            hint="add a critic section; {} uses the policy's model",
        )
    return config.critic


def check_critic(config: Config) -> None:
    """Refuse a critic that cannot be made, before anything is started.

    Raises:
        PlanError: there is none, a package is missing, or it is to be kept longer than the checkpoints that it is in.
        RunError: a module of ``critic.model.import_modules`` cannot be imported.
    """
    model = section_of(config).model
    if model is not None:
        import_modules(model)
        if model.lora is not None and importlib.util.find_spec("peft") is None:
            raise PlanError(
                "critic.model.lora is set, but peft is not installed", hint=packages.install(packages.RUNTIME)
            )
    kept, critics = config.checkpoint.keep_last, config.checkpoint.keep_last_critic
    if kept is not None and critics is not None and critics > kept:
        raise PlanError(
            said(
                "checkpoint.keep_last_critic is {critics} and checkpoint.keep_last is {kept}; a critic is saved in "
                "its checkpoint",
                critics=critics,
                kept=kept,
            ),
            hint=said(
                "set checkpoint.keep_last to {critics}, or checkpoint.keep_last_critic to {kept} or less",
                critics=critics,
                kept=kept,
            ),
        )


def make_critic_engine(config: Config, model_path: str, device: Device, scheduler_steps: int | None) -> TrainEngine:
    """The engine that the config names for the critic.

    Raises:
        PlanError: there is no such engine here.
    """
    section = section_of(config)
    own = section.model or dataclasses.replace(config.model, lora=None, freeze=())
    with told_of_critic():
        return make_train_engine(
            dataclasses.replace(own, path=model_path),
            settled(section, config),
            role="critic",
            seed=config.run.seed if section.seed is None else section.seed,
            scheduler_steps=scheduler_steps,
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
