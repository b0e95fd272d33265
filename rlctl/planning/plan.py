"""Config -> Plan: roles, processes, devices, batch and schedule arithmetic. Plain data; no Ray, no torch.

    Config ──make_plan──▶ Plan ──▶ plan.json ──▶ runtime.launch

The only file it reads is the ``config.json`` of a model in a local folder, for estimates of memory and time; models known
by hub name need none.
A plan resolves every ``auto`` from the config, or from a cluster it is told of; never from the machine it is made on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from rlctl.common.errors import PlanError
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said, translated
from rlctl.common.notebook import InNotebook
from rlctl.common.report_lines import release
from rlctl.config import Config, Stage, stages_of
from rlctl.config.sections.rewards import ModelReward
from rlctl.config.sections.train import Fsdp2, Megatron
from rlctl.planning import adapter_sync, arithmetic, rollout_schedule
from rlctl.planning.agents import check_agents
from rlctl.planning.arithmetic import Cluster, Device, evaluates, needs_critic, needs_reference, needs_rollout, trains
from rlctl.planning.auxiliaries import check_auxiliaries
from rlctl.planning.megatron.limits import asked_of, limits
from rlctl.planning.memory import (
    Change,
    Fit,
    Lengths,
    MemoryEstimate,
    MemoryPart,
    PhaseEstimate,
    StepCost,
    context_tokens,
    cost_of,
    fit_of,
    known_gpu,
    mean_share,
    memory_of,
    phases_of,
)
from rlctl.planning.memory_terms import OWN, MemoryTerms
from rlctl.planning.models import read_shape, why_unknown
from rlctl.planning.support import RLCTL, generating, not_used
from rlctl.planning.weight_transfer import way_of

__all__ = [
    "PLAN_VERSION",
    "BatchPlan",
    "Cluster",
    "Device",
    "Plan",
    "Role",
    "RolePlan",
    "SchedulePlan",
    "StagePlan",
    "evaluates",
    "make_plan",
    "needs_critic",
    "needs_reference",
    "needs_rollout",
    "plan_from",
    "resolved_stages",
    "role_and_number",
    "trains",
]

PLAN_VERSION = 1
KnownLengths = Callable[[Config], Lengths]
"""Lengths of a stage's prompts and responses, by its config."""
MEMORY_ERROR, TIME_ERROR = 0.2, 1.5
"""How far most estimates are from measurements: a share of the GiB, and a factor of the seconds."""
NOTED_GIB = 1.0
"""How much more memory the longest sequences need if a note says so."""
Role = Literal["policy", "rollout", "reference", "critic", "reward", "reward_model", "judge", "auxiliary", "agent"]
LETTERS: Mapping[str, str] = {
    "policy": "P", "rollout": "R", "reference": "F", "critic": "C", "reward": "W", "reward_model": "M",
    "judge": "J", "auxiliary": "X", "agent": "A"
}  # fmt: skip
"""A letter for each role, where a device is drawn."""


@cache
def role_and_number(worker: str) -> tuple[str, int]:
    """What a worker's name says: ``policy-1`` is number 1 of the policy's; one without a number is -1."""
    role, _, number = worker.rpartition("-")
    return (role, int(number)) if number.isdigit() else (worker, -1)


@dataclass(frozen=True, slots=True)
class RolePlan:
    """One role: which engine computes it, in how many processes, on which devices."""

    role: Role
    engine: str
    processes: int
    """Worker processes: one a device for training engines, one an engine for rollout."""
    replicas: int
    """Data-parallel ranks, or rollout engines."""
    devices: tuple[int, ...]
    """Device numbers over all nodes, ``devices // processes`` to each process in order; empty is CPU only."""
    cpus_per_process: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batch arithmetic of a step."""

    prompts_per_step: int
    responses_per_prompt: int
    responses_per_step: int
    mini_batch_responses: int
    mini_batches_per_epoch: int
    ppo_epochs: int
    optimizer_steps_per_step: int
    responses_per_replica: float
    """Of one mini-batch, on average; replicas may differ by one, which changes no numbers."""


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """When things happen, in steps; None where it needs the length of the data, or never happens (see ``notes``)."""

    total_steps: int | None
    evaluate_every: int | None
    save_every: int | None
    until_dry: bool = False
    """Whether it ends when its buffer is dry, if not before."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of the run."""

    name: str
    objective: str
    continues: bool
    """Whether it goes on from the weights of the stage before."""
    roles: tuple[RolePlan, ...]
    batch: BatchPlan
    schedule: SchedulePlan
    notes: tuple[str, ...] = ()
    """What a reader should know: defaults that were resolved, engines that stand in for others."""
    not_used: tuple[str, ...] = ()
    """Keys that are set and not used, with the reason; no number hangs on them."""
    memory: tuple[MemoryEstimate, ...] = ()
    """Of each role on one of its devices, at its peak; empty if the size of the model is not known."""
    fit: Fit | None = None
    """Whether each phase fits; None if the memory of a device or the size of the model is not known."""
    cost: StepCost | None = None
    """Of one step; None where the size of the model is not known."""

    def role(self, name: Role) -> RolePlan | None:
        """The plan of one role, None where the stage does not have it."""
        return next((role for role in self.roles if role.role == name), None)


@dataclass(frozen=True, slots=True)
class Plan(InNotebook):
    """What will run where."""

    run: str
    device: Device
    nodes: int
    devices_per_node: int
    stages: tuple[StagePlan, ...]
    version: int = PLAN_VERSION
    runner: str = RLCTL
    """The framework whose memory is estimated."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, with the interval of each estimate: the lowest, the expected and the highest value."""
        data = dataclasses.asdict(self)
        for stage, told in zip(self.stages, data["stages"], strict=True):
            told["intervals"] = _intervals(stage)
        return data


def _intervals(stage: StagePlan) -> dict[str, Any]:
    phases = stage.fit.phases if stage.fit is not None else ()
    memory = [
        {
            "phase": phase.phase,
            "devices": list(phase.devices),
            "gib": [phase.gib * (1 - MEMORY_ERROR), phase.gib, phase.gib * (1 + MEMORY_ERROR)],
        }
        for phase in phases
    ]
    seconds = None if stage.cost is None else stage.cost.step_seconds
    step = None if seconds is None else [seconds / TIME_ERROR, seconds, seconds * TIME_ERROR]
    return {"memory": memory, "step_seconds": step}


def plan_from(data: Mapping[str, Any]) -> Plan:
    """A plan from the plain data that ``as_data`` gave.

    Raises:
        PlanError: it was saved by another version of rlctl, or is damaged.
    """
    if not isinstance(data, Mapping):
        raise PlanError("the saved plan is damaged: it is not a mapping", hint="plan again")
    if data.get("version") != PLAN_VERSION:
        raise PlanError(
            said(
                "the plan has version {version!r}; this rlctl reads {known}",
                version=data.get("version"),
                known=PLAN_VERSION,
            ),
            hint="plan again",
        )
    try:
        return Plan(**{**data, "stages": tuple(_stage_from(stage) for stage in data["stages"])})
    except (TypeError, KeyError) as error:
        raise PlanError(said("the saved plan is damaged: {error}", error=error), hint="plan again") from error


def _stage_from(data: Mapping[str, Any]) -> StagePlan:
    return StagePlan(
        **{
            **{name: value for name, value in data.items() if name != "intervals"},
            "roles": tuple(RolePlan(**{**role, "devices": tuple(role["devices"])}) for role in data["roles"]),
            "batch": BatchPlan(**data["batch"]),
            "schedule": SchedulePlan(**data["schedule"]),
            "notes": tuple(data["notes"]),
            "not_used": tuple(data.get("not_used", ())),
            "memory": tuple(_memory_from(estimate) for estimate in data["memory"]),
            "fit": None if data.get("fit") is None else _fit_from(data["fit"]),
            "cost": None if data["cost"] is None else StepCost(**data["cost"]),
        }
    )


def _fit_from(data: Mapping[str, Any]) -> Fit:
    phases = tuple(
        PhaseEstimate(
            each["phase"],
            tuple(each["devices"]),
            tuple(MemoryPart(**part) for part in each["parts"]),
            each["lacking"],
            each.get("asleep", 0.0),
        )
        for each in data["phases"]
    )
    changes = tuple(Change(tuple(each["key"]), each["before"], each["after"]) for each in data["changes"])
    return Fit(data["gib"], phases, changes)


def _memory_from(data: Mapping[str, Any]) -> MemoryEstimate:
    return MemoryEstimate(data["role"], tuple(MemoryPart(**part) for part in data["parts"]))


def make_plan(
    config: Config,
    *,
    cluster: Cluster | None = None,
    rows: int | None = None,
    terms: MemoryTerms = OWN,
    lengths: KnownLengths | None = None,
) -> Plan:
    """Plan a run.

    Args:
        config: the canonical config, stages included.
        cluster: the machines it is for; None takes what the config says, and GPUs where it says auto.
        rows: prompts in the training data, None while unknown.
        terms: what the framework that runs it holds in memory.
        lengths: of responses, if they are known; typical ones if None.

    Raises:
        PlanError: something does not divide or fit; the message shows the arithmetic.
    """
    stages = stages_of(config)
    device = _device(config, cluster)
    _check_cluster(config, cluster, device, shared=terms.framework != RLCTL)
    return Plan(
        run=config.run.name,
        device=device,
        nodes=config.placement.nodes,
        devices_per_node=config.placement.devices_per_node,
        stages=tuple(_plan_stage(stage, device, cluster, rows, terms, lengths) for stage in stages),
        runner=terms.framework,
    )


def resolved_stages(config: Config, device: Device) -> list[Stage]:
    """The stages of a config with its ``auto`` device and old log-probs decided, and the built-in engine unsplit."""
    return [replace(stage, config=_resolved(stage.config, device)) for stage in stages_of(config)]


def _resolved(config: Config, device: Device) -> Config:
    algorithm = replace(config.algorithm, old_log_probs=arithmetic.old_log_probs(config, device))
    made = replace(config, algorithm=algorithm, placement=replace(config.placement, device=device))
    engine = generating(made, device)
    made = adapter_sync.resolved(made, engine)
    return arithmetic.unsplit(made) if engine == "transformers" else made


def _device(config: Config, cluster: Cluster | None) -> Device:
    if config.placement.device != "auto":
        return config.placement.device
    return cluster.device if cluster is not None else "cuda"


def _check_cluster(config: Config, cluster: Cluster | None, device: Device, *, shared: bool) -> None:
    if cluster is None:
        return
    if device == "cuda" and cluster.device == "cpu":
        raise PlanError(
            "placement.device is cuda, but the cluster has no GPU",
            hint="set placement.device=cpu, or plan for another cluster",
        )
    if device == "cpu":
        return
    if not arithmetic.has_nodes(config, cluster, shared=shared):
        wanted = f"{config.placement.nodes} x {config.placement.devices_per_node}"
        raise PlanError(
            said(
                "the config needs {wanted} GPUs (nodes x devices_per_node); the cluster has {nodes} x {devices_per_node}",
                wanted=wanted,
                nodes=cluster.nodes,
                devices_per_node=cluster.devices_per_node,
            ),
            hint="change placement.nodes and placement.devices_per_node",
        )


def _plan_stage(
    stage: Stage,
    device: Device,
    cluster: Cluster | None,
    rows: int | None,
    terms: MemoryTerms,
    known: KnownLengths | None,
) -> StagePlan:
    config = _resolved(stage.config, device)
    lengths = None if known is None else known(config)
    if lengths is not None:
        terms = replace(terms, mean_share=min(1.0, lengths.mean / context_tokens(config)))
    ahead = needs_rollout(config) and trains(config) and rollout_schedule.schedule_name(config) != "synchronous"
    cost = cost_of(config, cluster=cluster, lengths=lengths, ahead=ahead)
    notes: list[str] = []
    if stage.config.algorithm.old_log_probs == "auto":
        notes.append(text("plan-note-old-log-probs", value=config.algorithm.old_log_probs))
    roles = _roles(config, device, notes)
    told = (translated(limit.message) for asked in asked_of(config) for limit in limits(asked) if limit.noted)
    notes += dict.fromkeys(told)  # once, where roles share a section
    if ahead:
        notes.append(text("plan-note-schedule", name=rollout_schedule.schedule_name(config)))
    if needs_rollout(config) and trains(config) and config.weight_sync.method == "auto":
        way = way_of(config, generating(config, device), device).name
        notes.append(text("plan-note-sync", way=text(f"plan-way-{way}")))
    if needs_rollout(config) and trains(config) and config.model.lora is not None:
        why = adapter_sync.why_merged(stage.config, generating(config, device))
        notes.append(text("plan-note-merged", reason=translated(why)) if why else text("plan-note-adapters-sent"))
    if arithmetic.whole_divergences(config):
        notes.append(text("plan-note-full-kl"))
    if config.algorithm.distillation is not None:
        notes.append(text("plan-note-teacher", teacher=config.algorithm.distillation.teacher))
    if arithmetic.writes_responses(config) and config.data.eval:
        notes.append(text("plan-note-no-evaluation"))
    fit = _fit(config, device, cluster, terms)
    notes += _memory_notes(config, device, fit, terms)
    if lengths is None and cost is not None and cost.generation_seconds:
        notes.append(text("plan-note-times", tokens=f"{cost.mean_tokens:.0f}"))
    if read_shape(config.model.path) is None:
        notes.append(text("plan-note-memory", reason=why_unknown(config.model.path)))
    drains = arithmetic.drains_buffer(config)
    return StagePlan(
        name=stage.name,
        objective=config.algorithm.objective.choice,
        continues=stage.continues,
        roles=tuple(roles),
        batch=_batch(config),
        schedule=SchedulePlan(
            total_steps=arithmetic.drained_steps(config) if drains else arithmetic.total_steps(config, rows),
            evaluate_every=arithmetic.interval_in_steps(config.schedule.evaluate_every, config, rows),
            save_every=arithmetic.interval_in_steps(config.checkpoint.every, config, rows),
            until_dry=drains,
        ),
        notes=tuple(notes),
        not_used=tuple(not_used(stage.config, device)),
        memory=memory_of(config, device=device, terms=terms),
        fit=fit,
        cost=cost,
    )


def _fit(config: Config, device: Device, cluster: Cluster | None, terms: MemoryTerms) -> Fit | None:
    """Whether a stage fits the GPUs of a cluster whose memory is known."""
    if cluster is None or device == "cpu":
        return None
    gib = memory_of_device(cluster)
    return None if gib is None else fit_of(config, gib=gib, device=device, terms=terms)


def memory_of_device(cluster: Cluster) -> float | None:
    """GiB of one GPU of a cluster; None if it is not known."""
    gpu = known_gpu(cluster.gpu)
    return cluster.gib_per_device or (gpu.gib if gpu is not None else None)


def _memory_notes(config: Config, device: Device, fit: Fit | None, terms: MemoryTerms) -> list[str]:
    """Whose memory is estimated, and what it is if every sequence is as long as allowed."""
    known = read_shape(config.model.path) is not None
    whose = release(f"{terms.framework}@{terms.release}")
    notes = [text("plan-note-runner", runner=whose)] if known and terms.framework != RLCTL else []
    if fit is None:
        return notes
    longest = phases_of(config, gib=fit.gib, device=device, terms=replace(terms, full_lengths=True))
    most, likely = (
        max((each.gib for each in of if each.phase == "train"), default=0.0) for of in (longest, fit.phases)
    )
    if most - likely >= NOTED_GIB:
        share = f"{100 * mean_share(terms):.0f} %"
        notes.append(text("plan-note-lengths", share=share, gib=f"{most:.0f}"))
    return notes


def _batch(config: Config) -> BatchPlan:
    mini = arithmetic.mini_batch_responses(config)
    return BatchPlan(
        prompts_per_step=config.batch.prompts_per_step,
        responses_per_prompt=config.batch.responses_per_prompt,
        responses_per_step=arithmetic.responses_per_step(config),
        mini_batch_responses=mini,
        mini_batches_per_epoch=arithmetic.mini_batches_per_epoch(config),
        ppo_epochs=config.batch.ppo_epochs,
        optimizer_steps_per_step=arithmetic.optimizer_steps_per_step(config),
        responses_per_replica=mini / arithmetic.train_replicas(config),
    )


def _roles(config: Config, device: Device, notes: list[str]) -> list[RolePlan]:
    roles = [_train_role("policy", config, notes)] if trains(config) else []
    if needs_rollout(config):
        roles.append(_rollout_role(config, device, notes))
        if check_agents(config):
            count = config.rollout.agent_workers
            roles.append(RolePlan("agent", "python", count, count, (), 1))
    roles += _auxiliaries(config, device)
    held = arithmetic.reference_is_held(config)
    if needs_reference(config) and arithmetic.reference_is_base(config) and not held:
        notes.append(text("plan-note-adapters-off"))
    elif needs_reference(config) and not held:
        roles.append(_train_role("reference", config, notes))
    if needs_critic(config):
        roles.append(_train_role("critic", config, notes))
    if arithmetic.scores(config):
        roles.append(RolePlan("reward", "python", 1, 1, (), 1))
        roles += _reward_models(config, notes)
        roles += _judges(config, device, notes)
    return roles


def _auxiliaries(config: Config, device: Device) -> list[RolePlan]:
    """The auxiliary models that the run serves, each on one or more engines.

    Raises:
        PlanError: a judge names an unknown one, they have too few devices, or they share GPUs and don't say
            how much of them they take.
    """
    check_auxiliaries(config, device)
    count = len(arithmetic.auxiliary_of_each_engine(config))
    if not count:
        return []
    engine, devices = arithmetic.auxiliary_engine(config, device), arithmetic.auxiliary_devices(config)
    return [RolePlan("auxiliary", engine, count, count, devices, config.placement.cpus_per_worker)]


def _judges(config: Config, device: Device, notes: list[str]) -> list[RolePlan]:
    """The judge that the run serves: an engine on each ``tensor`` of its devices."""
    judge = next(iter(arithmetic.served_judges(config).values()), None)
    if judge is None:
        return []
    engine = arithmetic.judge_engine(judge, device)
    if judge.engine == "auto":
        notes.append(text("plan-note-judge", engine=engine, device=device))
    devices = arithmetic.judge_devices(config)
    return [RolePlan("judge", engine, judge.replicas, judge.replicas, devices, config.placement.cpus_per_worker)]


def _reward_models(config: Config, notes: list[str]) -> list[RolePlan]:
    """Reward models are whole on each training device, which share the responses."""
    models = [reward for reward in config.rewards if isinstance(reward, ModelReward)]
    if not models:
        return []
    for reward in models:
        if reward.overrides:
            kept = ", ".join(reward.overrides)
            notes.append(text("plan-note-reward-model", path=reward.path, kept=kept))
    devices = arithmetic.devices_of(config, "reward_model")
    return [
        RolePlan("reward_model", "transformers", len(devices), len(devices), devices, config.placement.cpus_per_worker)
    ]


def _train_role(role: Role, config: Config, notes: list[str]) -> RolePlan:
    _, engine = arithmetic.engine_of(config, role)
    if isinstance(engine, Fsdp2) and engine.source != "fsdp2":
        notes.append(text("plan-note-fsdp2", role=role, source=engine.source, zero=_zero(engine)))
    if role == "policy" and config.model.attention not in arithmetic.PACKING_ATTENTION:
        notes.append(text("plan-note-attention", attention=config.model.attention))
    if isinstance(engine, Megatron):
        notes.append(text("plan-note-megatron", role=role, layout=_layout(engine)))
    devices = arithmetic.devices_of(config, role)
    replicas = arithmetic.replicas_of(config, role)
    return RolePlan(role, engine.type_name, len(devices), replicas, devices, config.placement.cpus_per_worker)


def _layout(engine: Megatron) -> str:
    """By what Megatron splits a model, as ``tensor 4, pipeline 2``; ``none`` if it does not."""
    sizes = {
        "tensor": engine.tensor_parallel_size,
        "pipeline": engine.pipeline_parallel_size,
        "virtual_pipeline": engine.virtual_pipeline_parallel_size or 1,
        "context": engine.context_parallel_size,
        "expert": engine.expert_parallel_size,
        "expert_tensor": engine.expert_tensor_parallel_size or 1,
    }
    shared = ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    return shared or "none"


def _zero(engine: Fsdp2) -> str:
    """For DeepSpeed's configs, whether FSDP2 shards the weights fully, as ZeRO 3 does, or partly; else ``none``."""
    if engine.source != "deepspeed":
        return "none"
    return "full" if engine.reshard_after_forward else "partial"


def _rollout_role(config: Config, device: Device, notes: list[str]) -> RolePlan:
    engine = generating(config, device)
    if config.rollout.engine.choice == "auto":
        notes.append(text("plan-note-engine", engine=engine, device=device))
    if engine == "external":
        notes.append(text("plan-note-external"))
        return RolePlan("rollout", engine, 1, 1, (), 1)
    engines = arithmetic.rollout_workers(config)
    devices = arithmetic.devices_of(config, "rollout")
    return RolePlan("rollout", engine, engines, engines, devices, config.placement.cpus_per_worker)
