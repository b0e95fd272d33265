"""What a run does now and for how long, against how long that usually takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from rlctl.monitor.metrics import StepTable

TIME = "time/"
WHOLE, IDLE = "step", "idle"
"""Under ``time/``: of the whole step, and of no phase of it."""
USUAL_STEPS = 50
"""Steps whose median is what is usual."""


@dataclass(frozen=True, slots=True)
class Current:
    """The phase that a run is in."""

    name: str
    began: float
    """Seconds since the epoch, by the clock of the run's machine."""
    usual: float | None
    """Seconds that it took in the last steps, their median; None where it is not known."""

    def elapsed(self, now: float) -> float:
        """Seconds since it began; never negative, though clocks differ."""
        return max(0.0, now - self.began)


def usual_seconds(table: StepTable, phase: str) -> float | None:
    """The median of a phase over the last steps that have it."""
    found = table.latest(TIME + phase, USUAL_STEPS)
    return median(found) if found else None


def phases_of(table: StepTable) -> list[str]:
    """The phases of a stage's steps, in the order in which they were first told."""
    names = [name.removeprefix(TIME) for name in table.columns if name.startswith(TIME)]
    return [name for name in names if name not in (WHOLE, IDLE)]


def timeline(table: StepTable, count: int) -> list[tuple[int, Mapping[str, float]]]:
    """Step and seconds by phase of the last ``count`` steps, with ``idle`` where it is told."""
    shown = [*phases_of(table), IDLE]
    columns = {name: table.columns[TIME + name] for name in shown if TIME + name in table.columns}
    first = max(0, len(table) - count)
    return [
        (table.steps[row], {name: column[row] for name, column in columns.items() if column[row] > 0})
        for row in range(first, len(table))
    ]


def seconds_left(table: StepTable, total_steps: int | None) -> float | None:
    """Estimate of the time to the end of the stage, from the mean of the last steps; None where it is not known."""
    recent = table.latest(TIME + WHOLE, USUAL_STEPS)
    if total_steps is None or not recent:
        return None
    return max(0, total_steps - table.steps[-1]) * sum(recent) / len(recent)
