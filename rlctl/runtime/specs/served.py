"""What engines that generate are made from: of the policy, of judges and of auxiliary models; and what agents are made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.agents import SINGLE_TURN
from rlctl.config.sections.model import Model
from rlctl.config.sections.rewards import JudgeReward
from rlctl.config.sections.rollout import (
    AuxiliaryModel,
    EngineMemory,
    Rollout,
    RolloutParallel,
    SamplingSettings,
    TransformersEngine,
    VllmEngine,
)
from rlctl.planning import arithmetic, rollout_schedule
from rlctl.planning.plan import Device
from rlctl.runtime.agents.making import AgentSpec
from rlctl.runtime.rollout.sglang_arguments import server_arguments
from rlctl.runtime.rollout.vllm_arguments import check_vllm, engine_arguments, engine_environment
from rlctl.runtime.workers.judge import judge_sampling
from rlctl.runtime.workers.rollout import RolloutSpec


def rollout_spec(config: Config, engine: str, model_path: str, device: Device) -> RolloutSpec:
    """Of a rollout engine.

    Args:
        config: the stage's config.
        engine: the engine that the plan chose.
        model_path: folder or hub name of the first weights.
        device: where it runs.

    Raises:
        RunError: the model's config cannot be changed as the config asks.
    """
    precision = config.rollout.precision
    arguments: dict[str, Any] = {}
    if engine == "vllm":
        arguments = engine_arguments(config, model_path, device)
    if engine == "sglang":
        arguments = server_arguments(config, model_path, device)
    return RolloutSpec(
        engine=engine,
        model=config.model,
        model_path=model_path,
        rollout=config.rollout,
        device=device,
        precision=config.train.precision.compute if precision == "auto" else precision,
        threads=config.placement.cpus_per_worker if device == "cpu" else None,
        sleeps=arithmetic.rollout_sleeps(config, device),
        sleep_level=rollout_schedule.sleep_level(config),
        records_experts=arithmetic.rollout_routes(config),
        trust_tokenizer_code=config.data.trust_remote_code,
        arguments=arguments,
        environment=engine_environment(config, device) if engine == "vllm" else {},
    )


def judge_spec(config: Config, engine: str, device: Device) -> tuple[RolloutSpec, dict[int, JudgeReward], int]:
    """What ``JudgeWorker`` is made from: all rewards that ask a judge ask the same one."""
    rewards = arithmetic.served_judges(config)
    first = next(iter(rewards.values()))
    spec = rollout_spec(judge_config(config, first, engine), engine, first.model, device)
    return spec, rewards, config.run.seed


def auxiliary_spec(config: Config, name: str, engine: str, device: Device) -> RolloutSpec:
    """Of the engine of an auxiliary model; arguments as of ``rollout_spec``."""
    model = arithmetic.auxiliary_models(config)[name]
    return rollout_spec(auxiliary_config(config, model, engine), engine, model.path, device)


def agent_spec(config: Config) -> AgentSpec:
    """Of the agents of a run."""
    return AgentSpec(
        agents=arithmetic.agents_of(config),
        default_agent=config.rollout.default_agent or SINGLE_TURN,
        model=config.model,
        trust_tokenizer_code=config.data.trust_remote_code,
        retries=config.rollout.timeouts.retries,
        seed=config.run.seed,
    )


def judge_config(config: Config, reward: JudgeReward, engine: str) -> Config:
    """A config in which the judge is what rolls out."""
    devices = set(arithmetic.judge_devices(config))
    rollout = Rollout(
        engine=VllmEngine(args=reward.engine_args) if engine == "vllm" else TransformersEngine(),
        precision=config.rollout.precision,
        parallel=RolloutParallel(tensor_parallel_size=reward.tensor_parallel_size, replicas=reward.replicas),
        sampling=SamplingSettings(stop=judge_sampling(reward).get("stop", ())),
    )
    return as_rollout(
        config,
        rollout,
        path=reward.model,
        max_context_tokens=reward.max_context_tokens,
        shared=any(devices & set(arithmetic.devices_of(config, role)) for role in ("policy", "rollout")),
        max_num_seqs=reward.max_concurrent,
    )


def auxiliary_config(config: Config, model: AuxiliaryModel, engine: str) -> Config:
    """A config in which the model is what rolls out; it samples as the policy does."""
    rollout = replace(
        config.rollout,
        engine=VllmEngine(args=model.settings) if engine == "vllm" else TransformersEngine(),
        parallel=RolloutParallel(tensor_parallel_size=model.tensor_parallel_size, replicas=model.replicas),
        auxiliary_models=(),
    )
    shared = bool(arithmetic.auxiliaries_share(config))
    return as_rollout(config, rollout, path=model.path, max_context_tokens=model.max_context_tokens, shared=shared)


def check_served(config: Config, role: str, engine: str) -> None:
    """Refuse models that cannot be served here, before a worker that serves them is started.

    Args:
        config: the stage's config.
        role: ``judge`` or ``auxiliary``.
        engine: the engine that the plan chose for it.

    Raises:
        RunError: vLLM does not take what it is handed, or the engine has no such setting.
        MissingDependency: there is no vLLM.
    """
    for model, key, made in _served(config, role, engine):
        if engine == "vllm":
            check_vllm(made)
            continue
        refused = key or ("tensor_parallel_size" if made.rollout.parallel.tensor_parallel_size > 1 else "")
        if refused:
            raise RunError(
                said("{model} sets {key}, which its engine, transformers, does not support", model=model, key=refused),
                hint=said("set its engine to vllm, or remove {key}", key=refused),
            )


def _served(config: Config, role: str, engine: str) -> Iterator[tuple[str, str, Config]]:
    """Each model of a role: what messages call it, the key with its engine's arguments if there are any, and a config in which
    it is what rolls out."""
    if role == "judge":
        for reward in arithmetic.served_judges(config).values():
            made = judge_config(config, reward, engine)
            yield said("the judge {name!r}", name=reward.name), "engine_args" if reward.engine_args else "", made
        return
    for name, model in arithmetic.served_auxiliaries(config).items():
        made = auxiliary_config(config, model, engine)
        yield said("the auxiliary model {name!r}", name=name), "settings" if model.settings else "", made


def as_rollout(
    config: Config,
    rollout: Rollout,
    *,
    path: str,
    max_context_tokens: int | None,
    shared: bool,
    max_num_seqs: int | None = None,
) -> Config:
    """A config in which another model is what rolls out.

    Args:
        config: of the stage.
        rollout: how the model is served, but for its memory.
        path: of the model.
        max_context_tokens: of a prompt with its answer.
        shared: whether it shares devices with the policy or its rollout.
        max_num_seqs: answers that an engine generates at the same time.
    """
    memory = EngineMemory(
        sleep=config.rollout.memory.sleep,
        sleep_level=1,  # no sync ever brings its weights back
        log_statistics=config.rollout.memory.log_statistics,
    )
    return replace(
        config,
        model=Model(path=path, max_context_tokens=max_context_tokens, trust_remote_code=config.model.trust_remote_code),
        placement=replace(config.placement, layout="colocated" if shared else "split"),
        weight_sync=replace(config.weight_sync, method="memory"),
        rollout=replace(rollout, memory=memory if max_num_seqs is None else replace(memory, max_num_seqs=max_num_seqs)),
    )
