"""What models on train engines are made from: policy, critic, reference and teacher, and the roles that have them trained."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import torch

from rlctl.common import packages
from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Critic as CriticSection
from rlctl.config.sections.train import Train
from rlctl.planning import adapter_sync, arithmetic
from rlctl.planning.megatron.starting import without_checkpoint
from rlctl.runtime.models.config import import_modules
from rlctl.runtime.roles import PolicySpec, TrainedSpec
from rlctl.runtime.sync.bucket import MIB
from rlctl.runtime.train.distillation import Teaching, check_comparable
from rlctl.runtime.train.engines import EngineSpec
from rlctl.runtime.train.gathering import BUCKET_BYTES
from rlctl.runtime.train.losses import CriticLoss
from rlctl.runtime.workers.critic import CriticSpec
from rlctl.runtime.workers.reference import ReferenceSpec
from rlctl.runtime.workers.trainer import JoinSpec, LossSpec, MicroBatches, TrainerSpec


def trainer_spec(config: Config, model_path: str, scheduler_steps: int | None) -> TrainerSpec:
    """Of the policy's workers.

    Args:
        config: the stage's config.
        model_path: folder or hub name of the first weights.
        scheduler_steps: steps of the learning-rate schedule over the whole run, None where it is not known.

    Raises:
        PlanError, ConfigError: no function computes the loss.
    """
    train, batch, loss = config.train, config.batch, loss_spec(config)
    forward = batch.log_prob_micro_batch or batch.micro_batch
    teacher = _frozen(config, config.model, loss.teaching.teacher) if loss.teaching is not None else None
    whole = arithmetic.whole_divergences(config)
    own = config.reference.model
    held = _frozen(config, own or config.model, own.path if own is not None else model_path) if whole else None
    return TrainerSpec(
        engine=EngineSpec(
            replace(config.model, path=model_path),
            _settled(config, train),
            config.run.seed if train.seed is None else train.seed,
        ),
        loss=loss,
        join=join_spec(config),
        micro=MicroBatches(batch.micro_batch, forward, config.reference.micro_batch or forward),
        seed=config.run.seed,
        temperature=training_temperature(config),
        scheduler_steps=scheduler_steps,
        gather_bytes=min(BUCKET_BYTES, config.weight_sync.bucket_mib * MIB),
        export_dtype=_rollout_dtype(config),
        sends_adapters=adapter_sync.resolved_to_adapters(config),
        teacher=teacher,
        reference=held,
        compares_reference="kl_in_loss" in whole,
    )


def loss_spec(config: Config) -> LossSpec:
    """Of the policy's loss.

    Raises:
        PlanError, ConfigError: it asks for something that is not computed.
    """
    if arithmetic.whole_divergences(config):
        check_comparable(config.train)
    experts = arithmetic.expert_responses(config)
    sizes = (arithmetic.mini_batch_responses(config) - experts, experts)
    return LossSpec(config.algorithm, config.rollout.max_response_tokens, teaching_of(config), sizes)


def teaching_of(config: Config) -> Teaching | None:
    """What ``algorithm.distillation`` asks for; see ``Teaching.of``."""
    return Teaching.of(config.algorithm, config.train, temperature=training_temperature(config))


def training_temperature(config: Config) -> float:
    """What training logits are divided by: the sampling temperature where the config says so, and responses are sampled."""
    algorithm = config.algorithm
    sampled = algorithm.objective.choice in ("rl", "mix") and algorithm.train_temperature == "sampling"
    return (config.rollout.sampling.temperature or 1.0) if sampled else 1.0


def join_spec(config: Config) -> JoinSpec:
    """How workers of a model meet."""
    ray = config.runtime.ray
    return JoinSpec(
        ray.collective_timeout, ray.startup_timeout, config.placement.cpus_per_worker, config.run.deterministic
    )


def policy_spec(config: Config) -> PolicySpec:
    """Of the policy as the controller sees it."""
    return PolicySpec(
        batch=config.batch,
        seed=config.run.seed,
        checkpoint=config.checkpoint,
        model_path=config.model.path,
        algorithm=config.algorithm,
        mini_batches_per_epoch=arithmetic.mini_batches_per_epoch(config),
        experts_per_mini_batch=arithmetic.expert_responses(config),
        bucket_bytes=config.weight_sync.bucket_mib * MIB,
        tokenizer=config.model.tokenizer or config.model.path,
    )


def value_model_spec(config: Config) -> TrainedSpec:
    """Of the critic as the controller sees it."""
    own = config.critic.model if config.critic is not None else None
    path = own.path if own is not None and own.path else config.model.path
    return TrainedSpec(arithmetic.critic_batch(config), config.run.seed, config.checkpoint, path)


def critic_spec(config: Config, model_path: str, scheduler_steps: int | None) -> CriticSpec:
    """Of the critic's workers; arguments as of ``trainer_spec``.

    Raises:
        PlanError: the config has no critic.
    """
    section = critic_section(config)
    own = section.model or replace(config.model, lora=None, freeze=())
    batch = arithmetic.critic_batch(config)
    return CriticSpec(
        engine=EngineSpec(
            replace(own, path=model_path),
            _settled(config, section),
            config.run.seed if section.seed is None else section.seed,
        ),
        loss=CriticLoss.of(section.value_loss, max_response_tokens=config.rollout.max_response_tokens),
        join=join_spec(config),
        micro=batch.micro_batch,
        forward_micro=batch.log_prob_micro_batch or batch.micro_batch,
        scheduler_steps=scheduler_steps,
    )


def reference_spec(config: Config, model_path: str) -> ReferenceSpec:
    """Of the reference's workers; ``model_path``: folder or hub name of its weights."""
    reference, batch = config.reference, config.batch
    train = replace(
        config.train,
        engine=reference.engine or config.train.engine,
        precision=reference.precision or config.train.precision,
        compile=config.train.compile if reference.compile is None else reference.compile,
    )
    if reference.model is not None and reference.engine is None:  # the policy's checkpoint is of another model
        train = without_checkpoint(train)
    model = replace(reference.model or config.model, path=model_path)
    return ReferenceSpec(
        engine=EngineSpec(model, _settled(config, train), config.run.seed),
        join=join_spec(config),
        micro=reference.micro_batch or batch.log_prob_micro_batch or batch.micro_batch,
        temperature=training_temperature(config),
    )


def critic_section(config: Config) -> CriticSection:
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
    model = critic_section(config).model
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


def _frozen(config: Config, model: Model, path: str) -> EngineSpec:
    """Of a model that is not trained, in the policy's workers and spread as the policy is."""
    train = without_checkpoint(replace(config.train, compile=False))
    return EngineSpec(replace(model, path=path, lora=None, freeze=()), _settled(config, train), config.run.seed)


def _settled(config: Config, train: Train) -> Train:
    """The section with a value for what it leaves to the rest of the config, the same for all roles of a run."""
    kernels = train.fused_kernels
    if kernels.prefix_grouping is not None:
        return train
    return replace(train, fused_kernels=replace(kernels, prefix_grouping=arithmetic.groups_prompts(config)))


def _rollout_dtype(config: Config) -> torch.dtype | None:
    """The type in which rollout engines hold weights, if rlctl chooses it."""
    if config.rollout.memory.quantization or config.rollout.engine.choice == "external":
        return None
    precision = config.rollout.precision
    found: torch.dtype = getattr(torch, config.train.precision.compute if precision == "auto" else precision)
    return found
