"""The runs of a folder as rows of a table: what is told of each, how they are sorted and filtered. No widget is here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlctl import runs
from rlctl.common.language import later
from rlctl.monitor.metrics import EMPTY, Series
from rlctl.monitor.watching import RunView

COURSE = 16
"""Most parts of a run's course."""
USUAL = ((0.0, 1.0), (-1.0, 1.0))
"""Scales of rewards. A course has the first one that holds all of it, so that runs compare, and none jumps while it grows."""
LEARNED = ("reward/mean", "policy/loss")
"""What is told of how well a run learns: the first of them that it has, else what it was last evaluated by."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    info: runs.RunInfo
    metric: str = ""
    value: float | None = None
    """The newest value of ``metric``."""
    series: Series = EMPTY
    """It over the steps; of a long log samples of what is far back."""
    seconds_left: float | None = None
    """Of the stage, while it runs; None if that is not known."""

    @property
    def scale(self) -> tuple[float, float]:
        """What the lowest and the highest block of its course mean."""
        low, high = self.series.extremes()
        return next((known for known in USUAL if known[0] <= low and high <= known[1]), (low, high))

    @property
    def learned(self) -> str:
        """The metric and its value, short."""
        return "" if self.value is None else f"{self.value:.4g} {self.metric.removesuffix('/mean')}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    title: str
    by: Callable[[Row], Any]
    """What it is sorted by."""
    falling: bool = False
    """Whether the highest comes first when it is first sorted by."""
    at_least: int = 0
    """Cells of a terminal that has room for it."""
    optional: bool = False
    """Whether it is left out if no run has a value."""


COLUMNS = (
    Column(later("name"), lambda row: row.info.name),
    Column(later("status"), lambda row: row.info.status),
    Column(later("step"), lambda row: row.info.step, falling=True),
    Column(later("newest"), lambda row: (row.value is not None, row.value or 0.0), falling=True),
    Column(later("time left"), lambda row: (row.seconds_left is None, row.seconds_left or 0.0), optional=True),
    Column(later("course"), lambda row: len(row.series), falling=True),
    Column(later("age"), lambda row: row.info.started, falling=True),
    Column(later("took"), lambda row: row.info.seconds, falling=True, at_least=120),
)


class RunRows:
    """Reads the runs of folders; a run whose log has not grown is not read again."""

    def __init__(self, folder: Path, others: Iterable[Path] = ()) -> None:
        """``others``: further folders that have runs."""
        self.folder = folder
        self.others = sorted(other for other in {*others} if other.resolve() != folder.resolve())
        self._known: dict[Path, tuple[int, Row]] = {}
        """By folder, with the size of its log."""

    def read(self) -> list[Row]:
        """The runs that are there now, newest first."""
        further = (path.parent for folder in self.others for path in folder.glob("*/run.json"))
        return [self._row(info) for info in runs.with_others(runs.list_runs(self.folder), further)]

    def _row(self, info: runs.RunInfo) -> Row:
        try:
            size = (info.folder / "events.jsonl").stat().st_size
        except OSError:
            return Row(info)
        before, known = self._known.get(info.folder, (-1, Row(info)))
        row = replace(known, info=info) if size == before else newest(info)
        self._known[info.folder] = (size, row)
        return row


def newest(info: runs.RunInfo) -> Row:
    """How well a run learns and how long it still takes."""
    try:
        view = RunView.outline(info.folder)
    except OSError:
        return Row(info)
    stage = view.stage
    if stage is None:
        return Row(info)
    left = view.seconds_left if info.status == "running" else None
    for name in (*LEARNED, *stage.evaluations.columns):
        found = stage.table_of(name).series(name)
        if len(found):
            return Row(info, name, found.values[-1], found, left)
    return Row(info, seconds_left=left)


def matching(rows: Iterable[Row], text: str) -> list[Row]:
    """The rows that have every word of a text in their name, status or metric."""
    words = text.lower().split()
    return [
        row for row in rows if all(word in f"{row.info.name} {row.info.status} {row.metric}".lower() for word in words)
    ]


def age(info: runs.RunInfo) -> float:
    """Seconds since a run began."""
    return max(0.0, time.time() - info.started.timestamp())
