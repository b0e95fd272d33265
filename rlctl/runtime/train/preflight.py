"""What training needs of this machine, asked before a worker starts: packages, optimizers, the user's modules."""

from __future__ import annotations

import importlib.util

from transformers import AutoConfig, PreTrainedConfig

from rlctl.common import packages
from rlctl.common.errors import MissingDependency, PlanError, RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Megatron, Train
from rlctl.planning import arithmetic
from rlctl.planning.megatron import options
from rlctl.planning.megatron.layout import broken
from rlctl.planning.megatron.limits import Asked, asked_of, limits
from rlctl.planning.models import shape_of
from rlctl.runtime.models.config import changed_config, import_modules
from rlctl.runtime.models.routers import check_family
from rlctl.runtime.train.model import check_liger
from rlctl.runtime.train.optimizer import arguments
from rlctl.runtime.train.schedule import decay_of


def check_training(config: Config, *, scheduler_steps: int) -> None:
    """Refuse a policy that cannot be trained here.

    Raises:
        PlanError: a package is missing, an optimizer does not take its arguments, or a model's experts are not replayed.
        RunError: a module of ``model.import_modules`` cannot be imported.
    """
    import_modules(config.model)
    check_section(config.train, scheduler_steps=scheduler_steps)
    check_megatron(config)
    if config.algorithm.router_replay != "off" and config.algorithm.objective.choice == "rl":
        check_family(_model_config(config.model, config.model).model_type, config.train.engine.choice)
    if config.model.lora is not None and importlib.util.find_spec("peft") is None:
        raise PlanError("model.lora is set, but peft is not installed", hint=packages.install(packages.RUNTIME))


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
            said("{model} the {rollout} engine receives only token ids", model=model, rollout=rollout),
            hint="set rollout.engine.type to transformers",
        )
    if arithmetic.devices_per_sequence(config.train.engine) > 1:
        raise PlanError(
            said("{model} workers that share a sequence do not share its images", model=model),
            hint="set train.engine.ulysses_sequence_parallel_size to 1",
        )
    if arithmetic.needs_critic(config):
        raise PlanError(
            said("{model} there is no critic that reads images", model=model),
            hint="set algorithm.advantage to an estimator without one, such as grpo",
        )


def check_section(train: Train, *, scheduler_steps: int) -> None:
    """Refuse what a section ``train`` or ``critic`` asks for and is not here.

    Raises:
        PlanError: a package is missing, an optimizer does not take its arguments, or weights have no room for updates.
    """
    if not isinstance(train.engine, Megatron):
        arguments(train.optimizer)
        if train.precision.parameters == "float16":
            raise PlanError(
                "train.precision.parameters is float16: gradients would also be float16, where they round to 0",
                hint="set train.precision.parameters to float32; train.precision.compute may be float16",
            )
    decay_of(train.optimizer, scheduler_steps=scheduler_steps)
    if train.fused_kernels.liger:
        check_liger()


def check_megatron(config: Config) -> None:
    """Refuse what the roles ask of Megatron-core and it does not do, or does not do with these models.

    Raises:
        MissingDependency: it is not installed.
        PlanError: a layout that does not divide, or settings that Megatron-core refuses.
        RunError: a model's config cannot be read.
    """
    for asked in asked_of(config):
        if options.installed() is None:
            raise MissingDependency(
                said("{section}.engine is megatron, and megatron-core is not installed", section=asked.section),
                hint=said("{install} on every machine of the run", install=packages.install("megatron")),
            )
        beyond = next((limit for limit in limits(asked) if not limit.noted), None)
        if beyond is not None:
            raise PlanError(beyond.message, hint=beyond.hint)
        _check_layout(config, asked, _model_config(asked.model, config.model))


def _check_layout(config: Config, asked: Asked, hf_config: PreTrainedConfig) -> None:
    from rlctl.runtime.train.megatron import arguments as made  # here, as Megatron-core takes long to load

    made.transformer_config(asked.train, hf_config)
    if asked.trains:
        made.ddp_config(asked.train)
        made.optimizer_config(asked.train)
    devices, per_node = len(arithmetic.devices_of(config, asked.role)), config.placement.devices_per_node
    shape = shape_of(hf_config.to_dict())
    for each in broken(asked.engine, devices=devices, per_node=per_node, shape=shape, section=asked.section):
        if not each.slow:
            raise PlanError(
                said("{section}.engine.{key}: {message}", section=asked.section, key=each.key, message=each.message),
                hint=each.hint,
            )


def _model_config(model: Model, policy: Model) -> PreTrainedConfig:
    path = model.path or policy.path
    try:
        changed = changed_config(model, path)
        return changed or AutoConfig.from_pretrained(path, trust_remote_code=model.trust_remote_code)
    except (OSError, ValueError) as error:
        raise RunError(
            said("the config of {path} cannot be read: {error}", path=path, error=error),
            hint="set model.path to a complete model folder, or to a name on the Hugging Face Hub",
        ) from error


def left_off(config: Config) -> list[str]:
    """What is told of accelerations that are asked for, and whose packages are not installed here."""
    return [
        f"{asked.section}.engine.transformer.{name} is disabled: {options.ACCELERATIONS[name]} is not installed"
        for asked in asked_of(config)
        for name in options.left_off(asked.engine)
    ]
