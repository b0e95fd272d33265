"""One run, watched: what is new is read in turns, and everything that a front end shows is here as plain values."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl.monitor.advisories import Advice, advise
from rlctl.monitor.log import CHUNK, EventLog
from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import Current, seconds_left, usual_seconds
from rlctl.monitor.samples import SampleIndex

KEPT_EVENTS = 1000
"""Events, but phases and steps, that are kept for the list of events."""
NEWEST = 1 << 20
"""Bytes at the end of a log that are shown before the whole is read."""
PLACES, SAMPLE = 32, 32 << 10
"""Places of a long log where its outline is read, and the bytes that are read at each."""
TAIL = 256 << 10
"""Bytes before the end of a log in which the phases matter; those before it are over."""


TABLES = ("step", "evaluation")
"""Kinds of events that are rows of a table."""


@dataclass
class StageView:
    """The state of a stage, from the event log."""

    name: str
    total_steps: int | None = None
    steps: StepTable = field(default_factory=StepTable)
    evaluations: StepTable = field(default_factory=StepTable)
    weight_version: int | None = None
    ended: dict[str, Any] = field(default_factory=dict)
    """What it told at its end: ``seconds`` by phase, ``tokens``, the first and last numbers ``evaluated``."""

    def table_of(self, metric: str) -> StepTable:
        """The table that has a metric."""
        return self.steps if metric in self.steps.columns else self.evaluations


@dataclass
class Batch:
    """A part of a log, read and made ready."""

    anew: bool = False
    """Whether the log was begun anew: what was taken before is of another run."""
    bytes: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    """But those that are rows of a table."""
    tables: dict[tuple[str, str], StepTable] = field(default_factory=dict)
    """By stage and kind."""
    stage: str | None = None
    """The stage of the last step, or the one that began after it."""
    totals: dict[str, int | None] = field(default_factory=dict)
    """Steps of each stage that was told of."""


class RunView:
    """The state of a run, from the part of its event log that has been read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EventLog(folder / "events.jsonl")
        self.version = 0
        """Rises when there is something new to show."""
        self._clear()

    @classmethod
    def newest(cls, folder: Path) -> RunView:
        """A view made from the end of a long log, while the whole is not read yet: the last steps and the current phase.

        Raises:
            OSError: the log is there and cannot be read.
        """
        view = cls(folder)
        if view.log.size:
            view.log.skip_to(view.log.size - NEWEST)
        return view.read_whole()

    @classmethod
    def outline(cls, folder: Path) -> RunView:
        """A view made from the end of a log and, if it is long, from samples over all of it: the curves of the whole run.

        Raises:
            OSError: the log is there and cannot be read.
        """
        view = cls(folder)
        end = view.log.size - NEWEST
        for place in range(PLACES):
            if view.log.position < (start := end * place // PLACES):
                view.log.skip_to(start)
            if view.log.position < end:
                view.poll(SAMPLE)
        if view.log.position < end:
            view.log.skip_to(end)
        return view.read_whole()

    def _clear(self) -> None:
        self.stages: dict[str, StageView] = {}
        self.stage: StageView | None = None
        """The one that runs, or ran last."""
        self.samples = SampleIndex(self.folder)
        self.events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        """The newest; several syncs are one, with ``first_step`` and how many ``syncs`` it is."""
        self.events_told = 0
        """Also those that are not kept any more."""
        self.failure: dict[str, Any] | None = None
        self.ended: dict[str, Any] | None = None
        self._phase: tuple[str, float] | None = None

    @property
    def behind(self) -> int:
        """Bytes of the log that are not read yet."""
        return max(0, self.log.size - self.log.position)

    def poll(self, most: int = CHUNK) -> bool:
        """Read about ``most`` bytes of what is new; whether there was something. Call until it is False to be up to date.

        Raises:
            OSError: the log is there and cannot be read.
        """
        batch = self.read(most)
        self.take(batch)
        return bool(batch.bytes)

    def read(self, most: int = CHUNK) -> Batch:
        """Read the next events, about ``most`` bytes, without changing what the view shows.

        So a thread reads while another one looks, and hands over what it read.

        Raises:
            OSError: the log is there and cannot be read.
        """
        batch = Batch(anew=self.log.begun_anew())
        position = self.log.position
        rows: defaultdict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        for event in self.log.read(most, passing_over="phase", before=self.log.size - TAIL):
            kind, stage, step = event["kind"], str(event.get("stage", "main")), _count(event.get("step"))
            if kind in ("step", "stage_started"):
                batch.stage = stage
                batch.totals[stage] = _count(event.get("total_steps"))
            if kind in TABLES:
                metrics = event.get("metrics")
                if step is not None and isinstance(metrics, dict):
                    rows[stage, kind].append((step, metrics))
                continue
            if kind == "stage_started" and step is not None:
                for table in TABLES:
                    rows[stage, table] = [row for row in rows[stage, table] if row[0] <= step]
            batch.events.append(event)
        for key, told in rows.items():
            batch.tables[key] = StepTable()
            batch.tables[key].extend(told)
        batch.bytes = self.log.position - position
        return batch

    def take(self, batch: Batch) -> None:
        """Show what was read."""
        if batch.anew:
            self._clear()
        self.version += 1 if batch.bytes or batch.anew else 0
        for event in batch.events:
            take = TAKERS.get(event["kind"])
            with suppress(KeyError, TypeError, ValueError):  # an event that does not say what its kind says
                if take is not None:
                    take(self, event)
            if event["kind"] not in ("phase", "phase_ended", "samples"):
                self._keep(event)
        for (name, kind), table in batch.tables.items():
            stage = self._stage(name)
            (stage.steps if kind == "step" else stage.evaluations).join(table)
        for name, total in batch.totals.items():
            self._stage(name).total_steps = total
        if batch.stage is not None:
            self.stage = self._stage(batch.stage)

    @property
    def phase(self) -> Current | None:
        """The current phase; None if the run is over or has not begun."""
        if self._phase is None or self.ended is not None:
            return None
        name, began = self._phase
        return Current(name, began, usual_seconds(self.stage.steps, name) if self.stage else None)

    @property
    def seconds_left(self) -> float | None:
        """Estimate of the time to the end of the stage; None where it is over, or not known."""
        return seconds_left(self.stage.steps, self.stage.total_steps) if self.stage and self.ended is None else None

    def read_whole(self) -> RunView:
        """Read all that is there, at once."""
        while self.poll():
            pass
        return self

    def advice(self, now: float) -> list[Advice]:
        """Warnings about the current stage."""
        return advise(self.stage.steps, self.phase, now) if self.stage else []

    def _keep(self, event: dict[str, Any]) -> None:
        """Keep an event for the list. Syncs with nothing between them are one: else they would push out all others."""
        last = self.events[-1] if self.events else None
        if last is not None and last["kind"] == event["kind"] == "sync" and last.get("stage") == event.get("stage"):
            first = last.get("first_step", last.get("step"))
            self.events[-1] = {**event, "first_step": first, "syncs": last.get("syncs", 1) + 1}
            return
        self.events.append(event)
        self.events_told += 1

    def _stage(self, name: str) -> StageView:
        return self.stages.setdefault(name, StageView(name))

    def _stage_of(self, event: dict[str, Any]) -> StageView:
        return self._stage(str(event.get("stage", "main")))

    def _run_started(self, event: dict[str, Any]) -> None:
        self.failure = self.ended = None

    def _stage_started(self, event: dict[str, Any]) -> None:
        stage = self._stage_of(event)
        for table in (stage.steps, stage.evaluations):
            table.cut(int(event.get("step", 0)))

    def _phase_began(self, event: dict[str, Any]) -> None:
        self._phase = (str(event.get("name", "")), float(event.get("time", 0.0)))

    def _phase_ended(self, event: dict[str, Any]) -> None:
        if self._phase is not None and self._phase[0] == event.get("name"):
            self._phase = None

    def _sync(self, event: dict[str, Any]) -> None:
        self._stage_of(event).weight_version = event.get("version")

    def _stage_ended(self, event: dict[str, Any]) -> None:
        self._stage_of(event).ended = event

    def _failure(self, event: dict[str, Any]) -> None:
        self.failure = self.failure or event

    def _run_ended(self, event: dict[str, Any]) -> None:
        self.ended = event


def _count(value: object) -> int | None:
    """A number of steps; None for what is none, as of a damaged event."""
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else None


TAKERS: dict[str, Callable[[RunView, dict[str, Any]], None]] = {
    "run_started": RunView._run_started,
    "stage_started": RunView._stage_started,
    "phase": RunView._phase_began,
    "phase_ended": RunView._phase_ended,
    "sync": RunView._sync,
    "stage_ended": RunView._stage_ended,
    "failure": RunView._failure,
    "run_ended": RunView._run_ended,
}
