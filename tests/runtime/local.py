"""Runs the first stage of a config in this process: the real loop and the real workers, one of each, without Ray."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlctl.config import Config, stages_of
from rlctl.plan import make_plan
from rlctl.runtime import build
from rlctl.runtime.events import Events
from rlctl.runtime.group import LocalGroup, _address
from rlctl.runtime.loop import run_stage
from rlctl.runtime.stopping import StopSwitch
from rlctl.runtime.train.distributed import leave
from rlctl.runtime.workers.reference import Reference
from rlctl.runtime.workers.reward import RewardWorker
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Place, Trainer

Seen = list[dict[str, Any]]


def run_here(config: Config, folder: Path, *, watch: Callable[[dict[str, Any]], None] = lambda event: None) -> Seen:
    """Run it, and return its events. ``folder`` is the run's."""
    config = dataclasses.replace(config, tracking=())
    stage, plan = stages_of(config)[0], make_plan(config).stages[0]
    folder.mkdir(parents=True, exist_ok=True)
    seen: Seen = []

    def observe(event: dict[str, Any]) -> None:
        seen.append(event)
        watch(event)

    events = Events(folder / "events.jsonl", observe)
    materials = build.read_materials(stage, plan, events)
    path, place = stage.config.model.path, Place(0, 1, *_address())
    makers: dict[str, Callable[[], Any]] = {
        "policy": lambda: Trainer(stage.config, path, place, build.total_ticks(stage.config, plan, materials.clock)),
        "reference": lambda: Reference(stage.config, path, place),
        "rollout": lambda: RolloutWorker(stage.config, "transformers", path, "cpu"),
        "reward": lambda: RewardWorker(stage.config.rewards, folder),
    }
    groups: Any = {role.role: LocalGroup(role.role, makers[role.role]()) for role in plan.roles}
    try:
        run = build._stage_run(stage, plan, materials, groups, folder, events, [], StopSwitch(folder))
        run_stage(run)
    finally:
        for group in groups.values():
            group.close()
        leave()
        events.close()
    return seen
