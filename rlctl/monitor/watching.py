"""One run, watched: what is new is read in turns, and everything that a front end shows is here as plain values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl.monitor.advisories import Advice, advise
from rlctl.monitor.log import CHUNK, EventLog, Line
from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import Current, seconds_left, usual_seconds
from rlctl.monitor.samples import SampleIndex

KEPT_EVENTS = 1000
"""Events, but phases and steps, that are kept for the list of events."""
TAIL = 256 << 10
"""Bytes before the end of a log in which the phases matter; those before it are over."""


@dataclass
class StageView:
    """What is known of one stage."""

    name: str
    total_steps: int | None = None
    steps: StepTable = field(default_factory=StepTable)
    evaluations: StepTable = field(default_factory=StepTable)
    weight_version: int | None = None
    ended: dict[str, Any] = field(default_factory=dict)
    """What it told at its end: ``seconds`` by phase, ``tokens``, the first and last numbers ``evaluated``."""


class RunView:
    """What a run folder says, as far as it has been read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EventLog(folder / "events.jsonl")
        self._clear()

    def _clear(self) -> None:
        self.stages: dict[str, StageView] = {}
        self.stage: StageView | None = None
        """The one that runs, or ran last."""
        self.samples = SampleIndex(self.log.path)
        self.events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
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
        if self.log.begun_anew():
            self._clear()
        position = self.log.position
        for line in self.log.read(most, passing_over="phase", before=self.log.size - TAIL):
            self._take(line)
        return self.log.position > position

    def _take(self, line: Line) -> None:
        event = line.event()
        if event is None:
            return
        take = TAKERS.get(event["kind"])
        if take is not None:
            take(self, event, line.offset)
        if event["kind"] not in ("phase", "phase_ended", "step", "samples"):
            self.events.append(event)
            self.events_told += 1

    @property
    def phase(self) -> Current | None:
        """What the run is at; None when it is over, or has not begun."""
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
        """What looks wrong in the stage that runs."""
        return advise(self.stage.steps, self.phase, now) if self.stage else []

    def _stage_of(self, event: dict[str, Any]) -> StageView:
        name = str(event.get("stage", "main"))
        return self.stages.setdefault(name, StageView(name))

    def _run_started(self, event: dict[str, Any], offset: int) -> None:
        self.failure = self.ended = None

    def _stage_started(self, event: dict[str, Any], offset: int) -> None:
        self.stage = stage = self._stage_of(event)
        stage.total_steps = event.get("total_steps")
        for table in (stage.steps, stage.evaluations):
            table.cut(int(event.get("step", 0)))

    def _phase_began(self, event: dict[str, Any], offset: int) -> None:
        self._phase = (str(event.get("name", "")), float(event.get("time", 0.0)))

    def _step(self, event: dict[str, Any], offset: int) -> None:
        stage = self._stage_of(event)
        stage.steps.add(int(event["step"]), event.get("metrics", {}))

    def _evaluation(self, event: dict[str, Any], offset: int) -> None:
        self._stage_of(event).evaluations.add(int(event["step"]), event.get("metrics", {}))

    def _sync(self, event: dict[str, Any], offset: int) -> None:
        self._stage_of(event).weight_version = event.get("version")

    def _samples(self, event: dict[str, Any], offset: int) -> None:
        self.samples.places[str(event.get("stage", "main")), int(event["step"])] = offset

    def _stage_ended(self, event: dict[str, Any], offset: int) -> None:
        self._stage_of(event).ended = event

    def _failure(self, event: dict[str, Any], offset: int) -> None:
        self.failure = self.failure or event

    def _run_ended(self, event: dict[str, Any], offset: int) -> None:
        self.ended = event


TAKERS: dict[str, Callable[[RunView, dict[str, Any], int], None]] = {
    "run_started": RunView._run_started,
    "stage_started": RunView._stage_started,
    "phase": RunView._phase_began,
    "step": RunView._step,
    "evaluation": RunView._evaluation,
    "sync": RunView._sync,
    "samples": RunView._samples,
    "stage_ended": RunView._stage_ended,
    "failure": RunView._failure,
    "run_ended": RunView._run_ended,
}
