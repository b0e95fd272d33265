"""The metrics of a stage's steps as columns, and what a plot of some hundred columns needs of them."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

NAN = math.nan


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over steps, in their order; steps that do not have it are left out."""

    steps: Sequence[int]
    values: Sequence[float]

    def __len__(self) -> int:
        return len(self.steps)

    def smoothed(self, weight: float) -> Series:
        """The exponential mean with ``weight`` (0 to below 1) on what came before, without the pull to 0 at the start.

        The correction is Adam's (Kingma and Ba 2015, section 3), as TensorBoard's smoothing has it.
        """
        if not 0 < weight < 1:
            return self
        mean, power, found = 0.0, 1.0, array("d")
        for value in self.values:
            mean = weight * mean + (1 - weight) * value
            power *= weight
            found.append(mean / (1 - power))
        return Series(self.steps, found)

    def thinned(self, most: int) -> Series:
        """At most ``most`` points (4 or more) of the same look: the lowest and the highest of equal parts, in their order.

        So a peak of one step is seen however long the run is, which a mean or every n-th step would hide.
        """
        if len(self) <= most:
            return self
        steps, values, parts = array("q"), array("d"), most // 2
        for part in range(parts):
            start, end = part * len(self) // parts, (part + 1) * len(self) // parts
            inside = range(start, end)
            low, high = min(inside, key=self.values.__getitem__), max(inside, key=self.values.__getitem__)
            for index in sorted({low, high}):
                steps.append(self.steps[index])
                values.append(self.values[index])
        return Series(steps, values)


EMPTY = Series((), ())


@dataclass
class StepTable:
    """The metrics of the steps of a stage: one row a step, one column a metric, NaN where a step does not have it."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, metrics: Mapping[str, object]) -> None:
        """Add a step. One that is told again, as after a resume, takes the place of what was told of it and of later ones."""
        if self.steps and step <= self.steps[-1]:
            self.cut(step - 1)
        rows, columns = len(self.steps), self.columns
        self.steps.append(step)
        if list(columns) == list(metrics) and None not in metrics.values():
            for column, number in zip(columns.values(), metrics.values(), strict=True):
                column.append(number)  # type: ignore[arg-type]
            return
        for name, value in metrics.items():
            if name not in columns:
                columns[name] = array("d", [NAN]) * rows
            columns[name].append(value if isinstance(value, (int, float)) else NAN)
        if len(metrics) != len(columns):
            for column in columns.values():
                if len(column) == rows:
                    column.append(NAN)

    def cut(self, last: int) -> None:
        """Forget the steps after ``last``."""
        keep = bisect_right(self.steps, last)
        del self.steps[keep:]
        for column in self.columns.values():
            del column[keep:]

    def row(self, index: int) -> dict[str, float]:
        """What a step said, by its place in the table; -1 is the newest."""
        return {name: column[index] for name, column in self.columns.items() if not math.isnan(column[index])}

    def series(self, name: str) -> Series:
        """A metric over the steps that have it; empty for one that no step has."""
        column = self.columns.get(name)
        if column is None:
            return EMPTY
        if not any(map(math.isnan, column)):
            return Series(self.steps, column)
        pairs = [(step, value) for step, value in zip(self.steps, column, strict=True) if not math.isnan(value)]
        return Series(array("q", (step for step, _ in pairs)), array("d", (value for _, value in pairs)))

    def last(self, name: str) -> float | None:
        """The newest value of a metric; None where the newest step has none."""
        column = self.columns.get(name)
        return None if not column or math.isnan(column[-1]) else column[-1]

    def latest(self, name: str, count: int) -> list[float]:
        """Its values in the last ``count`` steps, those that have it."""
        return [value for value in self.columns.get(name, ())[-count:] if not math.isnan(value)]


def names_matching(names: Iterable[str], pattern: str) -> list[str]:
    """The metrics that a person asks for: a regular expression where it is one, else letters in their order (``rwmn``).

    Case does not matter. Those in which the pattern stands as it is come first.
    """
    import re

    known = sorted(names)
    try:
        exact = [name for name in known if re.search(pattern, name, re.IGNORECASE)]
    except re.error:
        exact = [name for name in known if pattern.lower() in name.lower()]
    return exact + [name for name in known if name not in exact and _has_letters(name.lower(), pattern.lower())]


def _has_letters(name: str, letters: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in letters)
