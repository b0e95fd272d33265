"""Makes the worker of every host process of a stage."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.rewards import ModelReward
from rlctl.planning import arithmetic
from rlctl.planning.plan import Device, StagePlan
from rlctl.runtime.auxiliary import Auxiliary, outside
from rlctl.runtime.processes.calls import Calls, WorkerLost, together
from rlctl.runtime.processes.group import RayGroup
from rlctl.runtime.processes.ray_access import session_logs
from rlctl.runtime.serving.serve import Service
from rlctl.runtime.specs.served import agent_spec, auxiliary_spec, judge_spec, rollout_spec
from rlctl.runtime.specs.trained import critic_section, critic_spec, reference_spec, trainer_spec
from rlctl.runtime.stage_inputs import critic_scheduler_steps, scheduler_steps
from rlctl.runtime.stage_run import Clock
from rlctl.runtime.workers.agent import AgentWorker
from rlctl.runtime.workers.auxiliary import AuxiliaryWorker
from rlctl.runtime.workers.critic import Critic
from rlctl.runtime.workers.judge import JudgeWorker
from rlctl.runtime.workers.reference import Reference
from rlctl.runtime.workers.reward import RewardWorker
from rlctl.runtime.workers.reward_model import RewardModels
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Place, Trainer

Groups = Mapping[str, RayGroup]
LOOPBACK = "127.0.0.1"


def start_workers(
    groups: Groups,
    plan: StagePlan,
    config: Config,
    model_path: str,
    device: Device,
    clock: Clock,
    folder: Path,
) -> None:
    """Make the worker of every host process, all roles at the same time.

    On GPU the rollout engines come last, since they take what memory the others leave.

    Raises:
        RunError: a process does not start.
        WorkerFailed: a worker cannot be made.
    """
    _await_processes(groups, config.runtime.ray.startup_timeout)
    building: list[Calls] = []
    models = outside(arithmetic.auxiliary_models(config))
    if "auxiliary" in groups:
        models |= _start_auxiliaries(groups["auxiliary"], plan, config, device)
    if "reward" in groups:
        building.append(groups["reward"].build(RewardWorker, [(config.rewards, folder / "logs", models)]))
    if "agent" in groups:
        building.append(groups["agent"].build(AgentWorker, [(agent_spec(config), models)] * len(groups["agent"])))
    if "reward_model" in groups:
        building.append(_build_reward_models(groups["reward_model"], config, device))
    if "judge" in groups and device == "cpu":
        building.append(_build_judges(groups["judge"], plan, config, device))
    if "rollout" in groups and device == "cpu":
        building.append(_build_rollout(groups["rollout"], plan, config, model_path, device))
    places = _places({name: groups[name] for name in ("policy", "critic", "reference") if name in groups}, device)
    if "policy" in groups:
        policy = trainer_spec(config, model_path, scheduler_steps(config, plan, clock))
        building.append(groups["policy"].build(Trainer, [(policy, at) for at in places["policy"]]))
    if "critic" in groups:
        critic = critic_spec(config, critic_path(config, model_path), critic_scheduler_steps(config, clock))
        building.append(groups["critic"].build(Critic, [(critic, at) for at in places["critic"]]))
    if "reference" in groups:
        path = config.reference.model.path if config.reference.model else model_path
        reference = reference_spec(config, path)
        building.append(groups["reference"].build(Reference, [(reference, at) for at in places["reference"]]))
    together(building).wait()
    if "rollout" in groups and device != "cpu":
        _build_rollout(groups["rollout"], plan, config, model_path, device).wait()
    if "judge" in groups and device != "cpu":
        _build_judges(groups["judge"], plan, config, device).wait()


def _await_processes(groups: Groups, seconds: float) -> None:
    try:
        together([group.started(seconds) for group in groups.values()]).wait()
    except WorkerLost as error:
        hint = said(
            "Ray says why in raylet.out of {session_logs}, on the machine that should run it",
            session_logs=session_logs(),
        )
        raise RunError(error.message, hint=hint) from None


def _places(groups: Groups, device: Device) -> dict[str, list[Place]]:
    """Where the workers of each role meet: on the machine of the first one."""
    found = together([group.address() for group in groups.values()]).wait()
    return {
        name: [Place(rank, len(group), host, port, device) for rank in range(len(group))]
        for (name, group), (host, port) in zip(groups.items(), found, strict=True)
    }


def _build_rollout(group: RayGroup, plan: StagePlan, config: Config, model_path: str, device: Device) -> Calls:
    role = plan.role("rollout")
    assert role is not None, "there is a group of rollout workers"
    return group.build(RolloutWorker, [(rollout_spec(config, role.engine, model_path, device),)] * len(group))


def _build_judges(group: RayGroup, plan: StagePlan, config: Config, device: Device) -> Calls:
    role = plan.role("judge")
    assert role is not None, "there is a group of judges"
    return group.build(JudgeWorker, [judge_spec(config, role.engine, device)] * len(group))


def _start_auxiliaries(group: RayGroup, plan: StagePlan, config: Config, device: Device) -> dict[str, Auxiliary]:
    """Serve the auxiliary models: on the loopback if all workers are on one machine. Returns where they are called."""
    role = plan.role("auxiliary")
    assert role is not None, "there is a group of auxiliary models"
    names, token = arithmetic.auxiliary_of_each_engine(config), secrets.token_urlsafe(24)
    hosts = [LOOPBACK] * len(group) if config.placement.nodes == 1 else group.machines()
    made = [
        Service(auxiliary_spec(config, name, role.engine, device), name, token, host, port=0)
        for name, host in zip(names, hosts, strict=True)
    ]
    group.build(AuxiliaryWorker, [(each,) for each in made]).wait()
    ports: list[int] = group.all(AuxiliaryWorker.port)
    group.made_again_with([(replace(each, port=port),) for each, port in zip(made, ports, strict=True)])
    urls: dict[str, list[str]] = {}
    for name, host, port in zip(names, hosts, ports, strict=True):
        shown = f"[{host}]" if ":" in host else host
        urls.setdefault(name, []).append(f"http://{shown}:{port}/v1")
    return {name: Auxiliary(name, name, tuple(each), token, served=True) for name, each in urls.items()}


def _build_reward_models(group: RayGroup, config: Config, device: Device) -> Calls:
    models = {i: reward for i, reward in enumerate(config.rewards) if isinstance(reward, ModelReward)}
    threads = config.placement.cpus_per_worker if device == "cpu" else None
    arguments = (models, config.train.precision.compute, device, threads, config.model)
    return group.build(RewardModels, [arguments] * len(group))


def critic_path(config: Config, model_path: str) -> str:
    """The critic's first weights: its own, or those that the policy starts from."""
    model = critic_section(config).model
    return model.path if model is not None and model.path else model_path
