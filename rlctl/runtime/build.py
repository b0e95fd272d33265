"""Puts a stage together on what was read for it (``materials``): workers, roles, where groups come from, evaluation, trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rlctl import arithmetic, pace
from rlctl.config import Config, Stage
from rlctl.config.sections.rewards import ModelReward
from rlctl.plan import Device, StagePlan
from rlctl.runtime.buffers.make import make_buffer, passes, shared_buffer
from rlctl.runtime.buffers.memory import MemoryBuffer
from rlctl.runtime.checkpoints.checkpoint import Checkpoints, place_of
from rlctl.runtime.evaluation.held_out import make_evaluator
from rlctl.runtime.evaluation.response_files import JsonLines
from rlctl.runtime.experience.buffered import Buffered, Drained, Filling
from rlctl.runtime.experience.explore import Explorer, GroupSource
from rlctl.runtime.experience.gather import (
    DataGather,
    ExploreGather,
    Gather,
    MixGather,
    NoGather,
    PairGather,
    RolloutGather,
)
from rlctl.runtime.experience.recorded import with_skips
from rlctl.runtime.experience.samples import training_sampling
from rlctl.runtime.experience.selection import corrects, reads_old
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.judges import Judges, Modelled, SideBySide
from rlctl.runtime.materials import Materials, critic_ticks, total_ticks
from rlctl.runtime.processes.calls import Calls, WorkerLost, together
from rlctl.runtime.processes.environment import variables_by_role, worker_environment
from rlctl.runtime.processes.group import Again, Group, RayGroup, Replicas
from rlctl.runtime.processes.placement import Placement
from rlctl.runtime.profiling.steps import Meter
from rlctl.runtime.remote.checkpoints import copies_of
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.reporting.sample_files import SampleFiles
from rlctl.runtime.roles import Policy, ReferencePolicy, RewardModel, Rewards, RolloutEngines
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.exploration import Exploration
from rlctl.runtime.schedules.scheduler import Scheduler
from rlctl.runtime.stage_run import Clock, StageRun
from rlctl.runtime.stopping import StopSwitch
from rlctl.runtime.sync.ways import transport_of
from rlctl.runtime.tracking.make import make_trackers
from rlctl.runtime.train.distillation import Teaching
from rlctl.runtime.value_model import ValueModel
from rlctl.runtime.workers.critic import Critic, section_of
from rlctl.runtime.workers.judge import JudgeWorker
from rlctl.runtime.workers.reference import Reference
from rlctl.runtime.workers.reward import RewardWorker
from rlctl.runtime.workers.reward_model import RewardModels
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Place, Trainer

Groups = Mapping[str, RayGroup]
SCORED_AGAIN = 2
"""How often a call of a reward worker is made again by another, where its process is lost."""


@contextmanager
def build_stage(
    stage: Stage,
    stage_plan: StagePlan,
    placement: Placement,
    materials: Materials,
    folder: Path,
    model_path: str,
    events: Events,
    stop: StopSwitch,
) -> Iterator[StageRun]:
    """Make everything a stage needs, and end it again.

    Args:
        placement: of the run.
        materials: what ``read_materials`` made of the stage.
        folder: of the run.
        model_path: the weights it starts from.
    """
    config = stage.config
    device = placement.plan.device
    with ExitStack() as stack:
        with events.timed("start"):
            groups = stack.enter_context(
                placement.stage(stage_plan, worker_environment(config), variables_by_role(config))
            )
            start_workers(groups, stage_plan, config, model_path, device, materials.clock, folder)
        several = len(placement.plan.stages) > 1
        trackers = make_trackers(
            config,
            folder,
            events.advise,
            stage=stage.name if several else "",
        )
        for tracker in trackers:
            stack.enter_context(tracker)
        run = _stage_run(stage, stage_plan, device, materials, groups, folder, events, trackers, stop)
        stack.callback(run.close)
        yield run


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
    """
    building: list[Calls] = []
    if "reward" in groups:
        building.append(groups["reward"].build(RewardWorker, [(config.rewards, folder / "logs")]))
    if "reward_model" in groups:
        building.append(_build_reward_models(groups["reward_model"], config, device))
    if "judge" in groups and device == "cpu":
        building.append(_build_judges(groups["judge"], plan, config, device))
    if "rollout" in groups and device == "cpu":
        building.append(_build_rollout(groups["rollout"], plan, config, model_path, device))
    places = _places({name: groups[name] for name in ("policy", "critic", "reference") if name in groups}, device)
    if "policy" in groups:
        ticks = total_ticks(config, plan, clock)
        building.append(groups["policy"].build(Trainer, [(config, model_path, at, ticks) for at in places["policy"]]))
    if "critic" in groups:
        ticks, path = critic_ticks(config, clock), critic_path(config, model_path)
        building.append(groups["critic"].build(Critic, [(config, path, at, ticks) for at in places["critic"]]))
    if "reference" in groups:
        path = config.reference.model.path if config.reference.model else model_path
        building.append(groups["reference"].build(Reference, [(config, path, at) for at in places["reference"]]))
    together(building).wait()
    if "rollout" in groups and device != "cpu":
        _build_rollout(groups["rollout"], plan, config, model_path, device).wait()
    if "judge" in groups and device != "cpu":
        _build_judges(groups["judge"], plan, config, device).wait()


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
    return group.build(RolloutWorker, [(config, role.engine, model_path, device)] * len(group))


def _build_judges(group: RayGroup, plan: StagePlan, config: Config, device: Device) -> Calls:
    role = plan.role("judge")
    assert role is not None, "there is a group of judges"
    return group.build(JudgeWorker, [(config, role.engine, device)] * len(group))


def _build_reward_models(group: RayGroup, config: Config, device: Device) -> Calls:
    models = {i: reward for i, reward in enumerate(config.rewards) if isinstance(reward, ModelReward)}
    threads = config.placement.cpus_per_worker if device == "cpu" else None
    arguments = (models, config.train.precision.compute, device, threads)
    return group.build(RewardModels, [arguments] * len(group))


def _modelled(config: Config, groups: Mapping[str, Group], again: Again) -> Modelled | None:
    """The workers that compute rewards of models; None where there are none."""
    parts: list[Modelled] = []
    if "reward_model" in groups:
        parts.append(RewardModel(groups["reward_model"], config.rewards, again))
    if "judge" in groups:
        parts.append(Judges(groups["judge"], config.rewards, again))
    return SideBySide(parts) if len(parts) > 1 else next(iter(parts), None)


def critic_path(config: Config, model_path: str) -> str:
    """The critic's first weights: its own, or those that the policy starts from."""
    model = section_of(config).model
    return model.path if model is not None and model.path else model_path


def _stage_run(
    stage: Stage,
    plan: StagePlan,
    device: Device,
    materials: Materials,
    groups: Mapping[str, Group],
    folder: Path,
    events: Events,
    trackers: list[Any],
    stop: StopSwitch,
) -> StageRun:
    config = stage.config
    meter = Meter.of(config, plan, groups, folder, events.advise)
    groups = dict(groups) | {name: _replicas(config, name, groups[name]) for name in TRAINED if name in groups}
    checkpoints = place_of(stage, folder)
    policy = Policy(groups["policy"], config, transport_of(config, device, checkpoints)) if "policy" in groups else None

    def lost(error: WorkerLost) -> None:
        events.advise(f"{error.message}; another takes its place", error.hint)

    def renew(engine: int) -> None:
        if policy is not None:
            run.send_weights(engine)
        elif isinstance(source_of_groups, Filling):
            source_of_groups.renew(engine)

    again = Again(config.rollout.timeouts.retries, lost, renew)
    rollout = RolloutEngines(groups["rollout"], again, config.sync.timeout) if "rollout" in groups else None
    critic = ValueModel(groups["critic"], config) if "critic" in groups else None
    stateless = Again(SCORED_AGAIN, lost)
    models, tokenizer = _modelled(config, groups, stateless), materials.tokenizer
    failed = partial(events.advise, hint="a reward that fails counts as 0")
    rewards = Rewards(groups["reward"], tokenizer, models, failed, stateless) if "reward" in groups else None
    evaluator = make_evaluator(config, materials.held_out, tokenizer, rollout, rewards)
    current = old_is_current(config, plan)
    source_of_groups = _source_of_groups(stage, materials, policy, rollout, rewards, checkpoints, stop, events.advise)
    run = StageRun(
        config=config,
        plan=plan,
        clock=materials.clock,
        source=_gather(stage, materials, groups, policy, critic, source_of_groups, current),
        groups=source_of_groups,
        policy=policy,
        rollout=rollout,
        evaluator=evaluator,
        checkpoints=Checkpoints(
            checkpoints,
            keep_last=config.checkpoint.keep_last,
            keep_last_critic=config.checkpoint.keep_last_critic,
            copies=copies_of(stage, folder, stop.now),
            delete_previous=config.checkpoint.delete_previous,
        ),
        events=events,
        trackers=trackers,
        stop=stop,
        export_folder=checkpoints / "hf",
        meter=meter,
        old_is_current=current,
        critic=critic,
        sample_files=SampleFiles(folder, stage.name, events.advise) if config.rollout.log_responses else None,
    )
    return run


TRAINED = ("policy", "critic", "reference")
"""Roles that a training engine computes."""


def _replicas(config: Config, role: str, group: Group) -> Group:
    """The workers of a role as the controller splits work over them: those that hold one copy of a model, or share sequences,
    are one."""
    if role == "critic":
        engine = section_of(config).engine
    else:
        engine = (config.reference.engine if role == "reference" else None) or config.train.engine
    members = arithmetic.replica_members(engine, len(group))
    return group if len(members) == len(group) else Replicas(group, members)


def _reference(config: Config, groups: Mapping[str, Group]) -> ReferencePolicy | None:
    """The reference: workers of its own, or the policy's without adapters."""
    if "reference" in groups:
        return ReferencePolicy(groups["reference"])
    if arithmetic.reference_is_held(config):
        return None
    if "policy" in groups and arithmetic.needs_reference(config) and arithmetic.reference_is_base(config):
        return ReferencePolicy(groups["policy"], Trainer.base_log_probs)
    return None


def _gather(
    stage: Stage,
    materials: Materials,
    groups: Mapping[str, Group],
    policy: Policy | None,
    critic: ValueModel | None,
    source_of_groups: GroupSource | None,
    current: bool,
) -> Gather:
    stream = materials.stream
    if policy is None:
        return NoGather() if source_of_groups is None else ExploreGather(source_of_groups, materials.tokenizer)
    reference = _reference(stage.config, groups)
    objective = stage.config.algorithm.objective.choice
    if objective == "dpo" and reference is not None:
        return PairGather(stream, materials.tokenizer, reference)  # type: ignore[arg-type]
    if source_of_groups is None:
        teaching = Teaching.of(stage.config)
        on_prompt = teaching is not None and teaching.on_prompt
        return DataGather(stream, materials.tokenizer, on_prompt)  # type: ignore[arg-type]
    drawn = RolloutGather(
        config=stage.config,
        groups=source_of_groups,
        tokenizer=materials.tokenizer,
        policy=policy,
        reference=reference,
        old_is_current=current,
        shaping=Shaping.of(stage.config),
        critic=critic,
    )
    return drawn if materials.experts is None else MixGather(drawn, materials.experts)


def _source_of_groups(
    stage: Stage,
    materials: Materials,
    policy: Policy | None,
    rollout: RolloutEngines | None,
    rewards: Rewards | None,
    place: Path,
    stop: StopSwitch,
    tell: Callable[[str], None],
) -> GroupSource | None:
    """Where training takes its groups from, as the schedule says; None where it takes none."""
    config, stream = stage.config, materials.stream
    if policy is not None and arithmetic.drains_buffer(config):
        return Drained(config, shared_buffer(config, place, stop.now), policy, place / "weights", tell)
    if stream is None or rollout is None or rewards is None or config.algorithm.objective.choice not in ("rl", "mix"):
        return None
    shaping, copies = Shaping.of(config), config.rollout.responses_folder
    keeper = JsonLines(Path(copies).expanduser()) if copies else None
    sampling = training_sampling(config, materials.stop_token_ids)
    fills = arithmetic.fills_buffer(config)
    if not pace.streams(config):
        engines = with_skips(config, rollout, place)
        explorer = Explorer(config, stage.name, stream, sampling, engines, rewards, shaping, keeper)  # type: ignore[arg-type]
        if fills:
            return Filling(config, explorer, shared_buffer(config, place, stop.now), rollout)
        return Buffered(config, explorer, make_buffer(config, place, stop.now)) if passes(config) else explorer
    draws = Draws(stream)  # type: ignore[arg-type]
    buffer = MemoryBuffer(stopped=stop.now) if fills else make_buffer(config, place, stop.now)
    scheduler = Scheduler(
        config,
        stage.name,
        draws,
        sampling,
        rollout,
        rewards.score,
        shaping,
        hand_on=lambda group: buffer.put([group]),
        tell=tell,
    )
    exploration = Exploration(
        config,
        scheduler,
        draws,
        buffer,
        shaping,
        rewards.tokenizer,
        total_steps=materials.clock.total_steps,
        keeper=keeper,
        failed=stop.fail,
        stopped=stop.now,
    )
    return Filling(config, exploration, shared_buffer(config, place, stop.now), rollout) if fills else exploration


def old_is_current(config: Config, plan: StagePlan) -> bool:
    """Whether the pass for the old policy's log-probs can be left out, as it would compute those of the update itself.

    So it is where a step is one optimizer step, nothing before the update reads them, and no experts are recorded in it.
    """
    algorithm = config.algorithm
    single = plan.batch.optimizer_steps_per_step == 1
    teaching = Teaching.of(config)
    taught = teaching is not None and teaching.policy_gradient
    read_before = algorithm.kl_in_reward is not None or corrects(algorithm) or taught or reads_old(algorithm)
    recorded = algorithm.router_replay == "recompute"
    return algorithm.old_log_probs == "recompute" and single and not read_before and not recorded
