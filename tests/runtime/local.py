"""Runs a config in this process: the real loop and the real workers, one of each, without Ray.

``run_here`` runs the first stage; ``launch_here`` has ``rlctl.runs`` do it all, from the run folder and its lock to the last stage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rlctl import runs
from rlctl.config import Config, Loaded
from rlctl.planning import arithmetic
from rlctl.planning.plan import Plan, make_plan, resolved_stages
from rlctl.runtime import build, launch, stage_inputs
from rlctl.runtime.auxiliary import Auxiliary, outside
from rlctl.runtime.loop import run_stage
from rlctl.runtime.processes import placement
from rlctl.runtime.processes.group import LocalGroup, _address
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.serving.serve import Service
from rlctl.runtime.specs.served import agent_spec, auxiliary_spec, rollout_spec
from rlctl.runtime.specs.trained import reference_spec, trainer_spec
from rlctl.runtime.stage_context import StageContext
from rlctl.runtime.stopping import StopSwitch
from rlctl.runtime.train.distributed import leave
from rlctl.runtime.workers.agent import AgentWorker
from rlctl.runtime.workers.auxiliary import AuxiliaryWorker
from rlctl.runtime.workers.reference import Reference
from rlctl.runtime.workers.reward import RewardWorker
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Place, Trainer

Seen = list[dict[str, Any]]
Observer = Callable[[dict[str, Any]], None]


def run_here(
    config: Config, folder: Path, *, watch: Observer = lambda event: None, trackers: Sequence[Any] = ()
) -> Seen:
    """Run it, and return its events. ``folder`` is the run's."""
    config = dataclasses.replace(config, tracking=())
    stage, plan = resolved_stages(config, "cpu")[0], make_plan(config).stages[0]
    folder.mkdir(parents=True, exist_ok=True)
    seen: Seen = []

    def observe(event: dict[str, Any]) -> None:
        seen.append(event)
        watch(event)

    events = Events(folder / "events.jsonl", observe)
    read = stage_inputs.read_materials(stage, plan, events)
    makers = _makers(stage.config, plan, stage.config.model.path, read.clock, folder)
    groups: Any = _groups(plan, makers)
    try:
        given = StageContext(stage, plan, "cpu", read, folder, events, StopSwitch(folder))
        run = build.make_run(given, groups, list(trackers))
        with closing(run):
            run_stage(run)
    finally:
        _end(groups)
        events.close()
    return seen


def launch_here(config: Config, observer: Observer = lambda event: None, **how: Any) -> runs.RunResult:
    """Start a run, or go on with it, as ``rlctl launch`` does."""
    loaded = Loaded(dataclasses.replace(config, tracking=()))
    with without_ray():
        return runs.start(loaded, plan=runs.prepare(loaded), observer=observer, **how)


@contextmanager
def without_ray() -> Iterator[None]:
    """Have runs work in this process, whoever starts them."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(launch, "_ray", lambda *_: nullcontext()))
        stack.enter_context(patch.object(placement, "reserve", lambda plan, **_: nullcontext(_Here(plan))))
        stack.enter_context(patch.object(build, "start_workers", _start_workers))
        yield


@dataclass(frozen=True)
class _Here:
    """What is asked of a placement."""

    plan: Plan

    def restart(self) -> None:
        """There is nothing that a lost worker leaves behind."""

    @contextmanager
    def stage(self, stage: Any, environment: Mapping[str, str], *_: Any) -> Iterator[dict[str, Any]]:
        groups: dict[str, Any] = {}
        try:
            yield groups
        finally:
            _end(groups)


def _start_workers(
    groups: dict[str, Any], plan: Any, config: Config, path: str, device: str, clock: Any, folder: Path
) -> None:
    makers = _makers(config, plan, path, clock, folder / "logs")
    groups |= _groups(plan, makers)


def _groups(plan: Any, makers: Mapping[str, Callable[[], Any]]) -> dict[str, LocalGroup]:
    groups = {role.role: LocalGroup(role.role, makers[role.role]()) for role in plan.roles}
    if "agent" in groups:  # these and the engines are waited for in turn
        for group in groups.values():
            group.hold_seconds = 0.002
    return groups


def _makers(config: Config, plan: Any, path: str, clock: Any, logs: Path) -> dict[str, Callable[[], Any]]:
    place, models = Place(0, 1, *_address()), outside(arithmetic.auxiliary_models(config))

    def auxiliary() -> AuxiliaryWorker:
        (name,) = arithmetic.auxiliary_of_each_engine(config)
        worker = AuxiliaryWorker(
            Service(auxiliary_spec(config, name, "transformers", "cpu"), name, "t0ken", "127.0.0.1", 0)
        )
        models[name] = Auxiliary(name, name, (f"http://127.0.0.1:{worker.port()}/v1",), "t0ken", served=True)
        return worker

    return {
        "auxiliary": auxiliary,
        "policy": lambda: Trainer(trainer_spec(config, path, stage_inputs.scheduler_steps(config, plan, clock)), place),
        "reference": lambda: Reference(reference_spec(config, path), place),
        "rollout": lambda: RolloutWorker(rollout_spec(config, "transformers", path, "cpu")),
        "agent": lambda: AgentWorker(agent_spec(config), models),
        "reward": lambda: RewardWorker(config.rewards, logs, models),
    }


def _end(groups: Mapping[str, Any]) -> None:
    for group in groups.values():
        group.close()
    leave()
