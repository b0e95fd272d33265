"""What training needs of this machine, asked before a worker starts: packages, optimizers, the user's modules."""

from __future__ import annotations

import importlib.util

from rlctl import arithmetic
from rlctl.config import Config
from rlctl.config.sections.train import Train
from rlctl.errors import PlanError
from rlctl.runtime.model_config import import_modules
from rlctl.runtime.train.model import check_liger
from rlctl.runtime.train.optimizer import arguments
from rlctl.runtime.train.schedule import decay_of


def check_training(config: Config, *, total_ticks: int) -> None:
    """Refuse a policy that cannot be trained here.

    Raises:
        PlanError: a package is missing, or an optimizer does not take its arguments.
        RunError: a module of ``model.import_modules`` cannot be imported.
    """
    import_modules(config.model)
    check_section(config.train, total_ticks=total_ticks)
    if config.model.lora is not None and importlib.util.find_spec("peft") is None:
        raise PlanError("model.lora is set, and peft is not installed", hint="pip install peft")


def check_vision(config: Config, *, rollout: str | None) -> None:
    """Refuse a model that reads images where a part of the run does not.

    Args:
        config: of the stage.
        rollout: the engine that generates, where one does.

    Raises:
        PlanError: names the part.
    """
    if config.model.modality != "vision":
        return
    model = "model.modality is vision, and"
    if rollout not in (None, "transformers"):
        raise PlanError(
            f"{model} the {rollout} engine is handed token ids only", hint="set rollout.engine.name to transformers"
        )
    if arithmetic.devices_per_sequence(config.train.engine) > 1:
        raise PlanError(
            f"{model} workers that share a sequence do not share its images",
            hint="set train.engine.sequence_parallel to 1",
        )
    if arithmetic.needs_critic(config):
        raise PlanError(
            f"{model} there is no critic that reads images",
            hint="set algorithm.advantage to an estimator without one, such as grpo",
        )


def check_section(train: Train, *, total_ticks: int) -> None:
    """Refuse what a section ``train`` or ``critic`` asks for and is not here.

    Raises:
        PlanError: a package is missing, or an optimizer does not take its arguments.
    """
    arguments(train.optimizer)
    decay_of(train.optimizer, total_ticks=total_ticks)
    if train.fused_kernels.liger:
        check_liger()
