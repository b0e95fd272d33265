"""What is measured of every step, and which steps are profiled, in which workers.

begin ─▶ phases and calls of the step ─▶ metrics, where it is over ─▶ [evaluate] [save] ─▶ end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.output import Profiling, RoleProfile
from rlctl.runtime.processes.group import Group
from rlctl.runtime.profiling.throughput import Interval, Speed, phase_times, worker_metrics
from rlctl.runtime.profiling.timeline import Timeline
from rlctl.runtime.profiling.tools import Order, Tool, WorkerProfile
from rlctl.runtime.profiling.usage import CallLog, SameCalls, moment
from rlctl.runtime.train.losses import counted_tokens
from rlctl.runtime.types import Sample

TIMELINE, CONTROLLER = "timeline", "controller"
TOOLS = {"torch", "torch_memory", "nsys", "npu"}
RECORDED = (TIMELINE, "torch", "torch_memory")
"""Tools that are started; of another nothing is recorded, which the run is told before it starts."""
MODELS = ("policy", "critic", "reference", "rollout", "reward_model", "judge", "auxiliary")
"""Roles that are profiled where the config names none."""


class StepProfiles:
    """Profiles the steps that the config names, one by one or neighbours together."""

    def __init__(
        self, profiling: Profiling, groups: Mapping[str, Group], folder: Path, tell: Callable[[str], None]
    ) -> None:
        """Say who is profiled.

        Args:
            profiling: section ``profiling``.
            groups: the workers of the stage by role.
            folder: gets the files.
            tell: called with a sentence where a profiler fails: the run goes on.
        """
        self._profiling = profiling
        self._folder = folder
        self._tell = tell
        self._chosen = {name: (groups[name], ranks) for name, ranks in chosen(profiling, groups).items()}
        self._own = WorkerProfile() if profiling.tool == "torch" and profiling.controller_args else None
        self._since: int | None = None
        self._timeline = Timeline()

    def profiled(self, step: int) -> bool:
        """Whether a step is one of those that the config names."""
        return self._profiling.tool in RECORDED and step in self._profiling.steps

    def begin(self, step: int) -> None:
        """Start what records, before a step that is profiled."""
        if not self.profiled(step) or self._since is not None:
            return
        self._since, self._timeline = step, Timeline()
        if self._own is not None:
            self._guarded(partial(self._own.begin, self._order(CONTROLLER, CONTROLLER, step)))
        for role, (group, ranks) in self._chosen.items():
            orders = {rank: self._order(role, group.names[rank], step) for rank in ranks}
            self._guarded(partial(group.start_profiles, orders))

    def note(self, phases: Sequence[Interval], calls: Sequence[SameCalls], step: Interval | None = None) -> None:
        """Put phases, calls and a step that is over into the timeline, where one is recorded."""
        if self._since is not None:
            self._timeline.phases += phases
            self._timeline.calls += [each for call in calls for each in call.apart()]
            self._timeline.steps += [] if step is None else [step]

    def end(self, step: int) -> None:
        """Stop what records, after a step, unless the next one is to be in the same files."""
        if self._since is None or (self._profiling.continuous and self.profiled(step + 1)):
            return
        label = f"step-{step}" if self._since == step else f"steps-{self._since}-{step}"
        self._since = None
        if self._own is not None:
            self._guarded(partial(self._own.end, label))
        for group, ranks in self._chosen.values():
            self._guarded(partial(group.end_profiles, ranks, label))
        self._guarded(lambda: self._timeline.write(self._folder / f"{TIMELINE}-{label}.json"))

    def _order(self, role: str, worker: str, step: int) -> Order:
        profiling, own = self._profiling, self._profiling.roles.get(role, RoleProfile())
        named = profiling.controller_args if role == CONTROLLER else profiling.worker_args
        tool = cast(Tool, profiling.tool)
        settings = {**of_tool(tool, named), **of_tool(tool, own.args)}
        return Order(tool, self._folder, worker, step, own.discrete or bool(settings.get("discrete")), settings)

    def _guarded(self, action: Callable[[], Any]) -> None:
        """A profiler that fails stops nothing."""
        try:
            action()
        except (RunError, OSError, RuntimeError) as error:
            told = "the profiler {tool} failed; the run continues without it: {error}"
            self._tell(said(told, tool=self._profiling.tool, error=error))


def of_tool(tool: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of one tool: those under its name where they stand under names of tools (verl's ``tool_config``), else all."""
    return settings.get(tool) or {} if settings.keys() & TOOLS else settings


def chosen(profiling: Profiling, groups: Mapping[str, Group]) -> dict[str, list[int]]:
    """The ranks of each role that a tool records in; the timeline records all calls anyway."""
    if profiling.tool in (None, TIMELINE):
        return {}
    roles = {name: own for name, own in profiling.roles.items() if own.enabled}
    if not profiling.roles:
        roles = {name: RoleProfile(enabled=True) for name in MODELS}
    return {name: _ranks(own, len(groups[name].names)) for name, own in roles.items() if name in groups}


def _ranks(own: RoleProfile, count: int) -> list[int]:
    if own.all_ranks:
        return list(range(count))
    return [rank for rank in own.ranks or (0,) if rank < count]


@dataclass
class Meter:
    """Measures the steps of one stage."""

    speed: Speed
    profiles: StepProfiles
    log: CallLog = field(default_factory=CallLog)
    _phases: list[Interval] = field(default_factory=list)
    _began: tuple[float, float] = (0.0, 0.0)
    """By the clock and by the counter."""

    @classmethod
    def of(
        cls,
        speed: Speed,
        profiling: Profiling,
        groups: Mapping[str, Group],
        folder: Path,
        tell: Callable[[str], None],
    ) -> Meter:
        """Of a stage; from now on the calls of its workers are noted. ``folder`` is the run's."""
        meter = cls(speed, StepProfiles(profiling, groups, folder_of(profiling, folder), tell))
        for group in groups.values():
            group.log = meter.log
        return meter

    def begin(self, step: int) -> None:
        """A step begins; what was before is no part of it."""
        self.profiles.begin(step)
        self._phases = []
        self.log.take()
        self._began = moment(), time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase."""
        began, clock = moment(), time.perf_counter()
        yield
        self._phases.append(Interval(name, began, time.perf_counter() - clock))

    def metrics(self, samples: Sequence[Sample], metrics: Mapping[str, float]) -> dict[str, float]:
        """What the step took, now that it is over: its times, its speed, and its workers' time and memory.

        Args:
            samples: that were trained on.
            metrics: of the step so far.
        """
        began, clock = self._began
        seconds = time.perf_counter() - clock
        calls = self.log.take()
        times = phase_times(self._phases, began, seconds)
        self.profiles.note(self._phases, calls)
        self._phases = []
        trained = sum(counted_tokens(samples))
        lengths = list(map(len, samples))
        speed = self.speed.metrics(lengths, trained, metrics.get("response/tokens", 0.0), times, calls)
        return {**speed, **times, **worker_metrics(calls, seconds)}

    def end(self, step: int) -> None:
        """Nothing more belongs to the step: what was evaluated and saved after it is in its timeline too."""
        began, clock = self._began
        self.profiles.note(self._phases, self.log.take(), Interval(f"step {step}", began, time.perf_counter() - clock))
        self.profiles.end(step)


def folder_of(profiling: Profiling, run_folder: Path) -> Path:
    """Where profiles go."""
    return Path(profiling.folder).expanduser() if profiling.folder else run_folder / "profile"
