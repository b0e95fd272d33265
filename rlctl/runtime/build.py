"""Puts a stage together on what was read for it (``materials``): workers, roles, where groups come from, evaluation, trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.planning.plan import Device
from rlctl.runtime.agents.relay import AgentEngines
from rlctl.runtime.auxiliary_engines import Watched
from rlctl.runtime.checkpoints.checkpoint import Checkpoints
from rlctl.runtime.evaluation.held_out import make_evaluator
from rlctl.runtime.evaluation.losses import make_losses
from rlctl.runtime.judges import Judges, Modelled, SideBySide
from rlctl.runtime.processes.calls import WorkerLost
from rlctl.runtime.processes.environment import variables_by_role, worker_environment
from rlctl.runtime.processes.group import Group, Replicas, RetryPolicy
from rlctl.runtime.processes.placement import Placement
from rlctl.runtime.profiling.steps import Meter
from rlctl.runtime.remote.checkpoints import copies_of
from rlctl.runtime.reporting.sample_files import SampleFiles
from rlctl.runtime.roles import Policy, ReferencePolicy, RewardModel, Rewards, RolloutEngines, ValueModel
from rlctl.runtime.sourcing import make_builder, make_groups
from rlctl.runtime.specs.experience import old_is_current
from rlctl.runtime.specs.stage import held_out_spec, speed_of, transport_of
from rlctl.runtime.specs.trained import critic_section, policy_spec, value_model_spec
from rlctl.runtime.stage_context import Roles, StageContext
from rlctl.runtime.stage_run import StageRun
from rlctl.runtime.start_workers import start_workers
from rlctl.runtime.tracking.make import make_trackers
from rlctl.runtime.tracking.safe import SafeTracker
from rlctl.runtime.workers.engine import EngineWorker
from rlctl.runtime.workers.trainer import Trainer

Groups = Mapping[str, Group]
"""The workers of each role."""
SCORED_AGAIN = 2
"""How often a call of a reward worker is made again by another, where its process is lost."""
TRAINED = ("policy", "critic", "reference")
"""Roles that a training engine computes."""


@contextmanager
def build_stage(given: StageContext, placement: Placement, model_path: str) -> Iterator[StageRun]:
    """Make everything a stage needs, and end it again.

    Args:
        given: what the stage is put together from.
        placement: of the run.
        model_path: the weights it starts from.
    """
    config, events = given.stage.config, given.events
    with ExitStack() as stack:
        with events.timed("start"):
            groups = stack.enter_context(
                placement.stage(given.plan, worker_environment(config), variables_by_role(config))
            )
            start_workers(groups, given.plan, config, model_path, given.device, given.materials.clock, given.folder)
        named = given.stage.name if len(placement.plan.stages) > 1 else ""
        trackers = make_trackers(config, given.folder, events.advise, stage=named)
        for tracker in trackers:
            stack.enter_context(tracker)
        run = make_run(given, groups, trackers)
        stack.callback(run.close)
        yield run


def make_run(given: StageContext, groups: Groups, trackers: Sequence[SafeTracker] = ()) -> StageRun:
    """The stage on workers that are there."""
    config, stage, events = given.stage.config, given.stage, given.events
    meter = Meter.of(speed_of(config, given.plan), config.profiling, groups, given.folder, events.advise)
    roles = make_roles(given, groups, renew=lambda engine: run.renew(engine))
    source_of_groups = make_groups(given, roles)
    run = StageRun(
        config=config,
        plan=given.plan,
        clock=given.materials.clock,
        source=make_builder(given, roles, source_of_groups),
        groups=source_of_groups,
        policy=roles.policy,
        critic=roles.critic,
        rollout=roles.rollout,
        evaluator=make_evaluator(
            held_out_spec(config, given.plan),
            given.materials.held_out,
            given.materials.tokenizer,
            roles.rollout,
            roles.rewards,
            make_losses(given.materials.answers, roles.policy, config.data.evaluation_batch_prompts),
        ),
        checkpoints=Checkpoints(
            given.place,
            keep_last=config.checkpoint.keep_last,
            keep_last_critic=config.checkpoint.keep_last_critic,
            copies=copies_of(stage, given.folder, given.stop.now),
            delete_previous=config.checkpoint.delete_previous,
        ),
        events=events,
        trackers=trackers,
        stop=given.stop,
        export_folder=given.place / "hf",
        meter=meter,
        old_is_current=old_is_current(config, given.plan),
        inputs=given.materials.inputs,
        accept_changes=given.accept_changes,
        auxiliary=_auxiliary(config, groups, events.advise, given.device),
        sample_files=SampleFiles(given.folder, stage.name, events.advise) if config.rollout.log_responses else None,
    )
    return run


def make_roles(given: StageContext, groups: Groups, *, renew: Callable[[int], None]) -> Roles:
    """The roles as the controller sees them. ``renew`` brings a rollout engine that is new to where the others are."""
    config, tokenizer, advise = given.stage.config, given.materials.tokenizer, given.events.advise

    def lost(error: WorkerLost) -> None:
        advise(said("{message}; rlctl starts a replacement", message=error.message), error.hint)

    stateless = RetryPolicy(SCORED_AGAIN, lost)
    models = _modelled(config, groups, stateless)
    failed = partial(advise, hint="a reward that fails counts as 0")
    shares = arithmetic.rollout_sleeps(config, given.device)
    make_room = partial(_make_room, [groups[name] for name in TRAINED if name in groups]) if shares else None
    drawing = RetryPolicy(config.rollout.timeouts.retries, lost, renew, make_room)
    groups = {name: _replicas(config, name, group) if name in TRAINED else group for name, group in groups.items()}
    return Roles(
        policy=_policy(given, groups["policy"]) if "policy" in groups else None,
        critic=ValueModel(groups["critic"], value_model_spec(config)) if "critic" in groups else None,
        reference=_reference(config, groups),
        rollout=_rollout(config, groups, drawing, stateless, given.device),
        rewards=Rewards(groups["reward"], tokenizer, models, failed, stateless, given.folder / "logs")
        if "reward" in groups
        else None,
    )


def _make_room(trained: Sequence[Group]) -> None:
    """Have training leave the GPUs: vLLM starts only if the share of memory that it was given is free."""
    for group in trained:
        group.all(EngineWorker.vacate)


def _rollout(
    config: Config, groups: Mapping[str, Group], drawing: RetryPolicy, stateless: RetryPolicy, device: Device
) -> RolloutEngines | None:
    """What answers requests: the engines, or agents that call them."""
    if "rollout" not in groups:
        return None
    sleeps = arithmetic.rollout_sleeps(config, device)
    engines = RolloutEngines(groups["rollout"], drawing, config.weight_sync.timeout, gives_memory=sleeps)
    return AgentEngines(engines, groups["agent"], stateless) if "agent" in groups else engines


def _auxiliary(config: Config, groups: Groups, advise: Callable[[str, str], None], device: Device) -> Watched | None:
    if "auxiliary" not in groups:
        return None
    again = RetryPolicy(
        SCORED_AGAIN,
        lambda lost: advise(said("{message}; rlctl starts a replacement", message=lost.message), lost.hint),
    )
    sleeps = device == "cuda" and bool(arithmetic.auxiliaries_share(config)) and config.rollout.memory.sleep
    return Watched(groups["auxiliary"], again, sleeps=sleeps)


def _modelled(config: Config, groups: Groups, again: RetryPolicy) -> Modelled | None:
    """The workers that compute rewards of models; None where there are none."""
    parts: list[Modelled] = []
    if "reward_model" in groups:
        parts.append(RewardModel(groups["reward_model"], config.rewards, again))
    if "judge" in groups:
        parts.append(Judges(groups["judge"], config.rewards, again))
    return SideBySide(parts) if len(parts) > 1 else next(iter(parts), None)


def _replicas(config: Config, role: str, group: Group) -> Group:
    """The workers of a role as the controller splits work over them: those that hold one copy of a model, or share sequences,
    are one."""
    if role == "critic":
        engine = critic_section(config).engine
    else:
        engine = (config.reference.engine if role == "reference" else None) or config.train.engine
    members = arithmetic.replica_members(engine, len(group))
    return group if len(members) == len(group) else Replicas(group, members)


def _policy(given: StageContext, group: Group) -> Policy:
    config = given.stage.config
    return Policy(group, policy_spec(config), transport_of(config, given.device, given.place))


def _reference(config: Config, groups: Groups) -> ReferencePolicy | None:
    """The reference: workers of its own, or the policy's without adapters."""
    if "reference" in groups:
        return ReferencePolicy(groups["reference"])
    if arithmetic.reference_is_held(config):
        return None
    if "policy" in groups and arithmetic.needs_reference(config) and arithmetic.reference_is_base(config):
        return ReferencePolicy(groups["policy"], Trainer.base_log_probs)
    return None
