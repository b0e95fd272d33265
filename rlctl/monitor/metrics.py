"""The metrics of a stage's steps as columns, and what a plot of some hundred columns needs of them."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import lt
from statistics import fmean
from typing import cast

NAN = math.nan


@dataclass(frozen=True, slots=True, repr=False)
class Series:
    """The values of a metric in the order of the steps; steps without it are left out."""

    steps: Sequence[int]
    values: Sequence[float]

    def __len__(self) -> int:
        return len(self.steps)

    def smoothed(self, weight: float) -> Series:
        """The exponential mean with ``weight`` (0 to below 1) on what came before, without the pull to 0 at the start.

        The correction is Adam's (Kingma and Ba 2015, section 3), as TensorBoard's smoothing has it.
        """
        if not 0 < weight < 1 or not len(self):
            return self
        import numpy as np

        length = max(1, int(-16 / math.log(weight)))  # powers of the weight within a row stay well above rounding
        values = np.asarray(self.values, dtype=float)
        rows = np.pad(values, (0, -len(values) % length)).reshape(-1, length)
        powers = weight ** np.arange(length)
        sums = (1 - weight) * np.cumsum(rows / powers, axis=1)
        before, mean = np.zeros(len(rows)), 0.0
        for row, last in enumerate(sums[:, -1].tolist()):
            before[row] = mean
            mean = float(powers[-1]) * (weight * mean + last)
        means = (powers * (weight * before[:, None] + sums)).ravel()[: len(values)]
        last_pulled = int(-37 / math.log(weight)) + 1  # from there on 1 - weight ** step is 1 in double precision
        pulled = min(len(values), last_pulled)
        means[:pulled] /= 1 - weight ** np.arange(1, pulled + 1)
        return Series(self.steps, array("d", means.tobytes()))

    def thinned(self, most: int) -> Series:
        """At most ``most`` points (4 or more) of the same look: the lowest and the highest of equal parts, in their order.

        So a peak of one step is seen however long the run is, which a mean or every n-th step would hide.
        """
        if len(self) <= most:
            return self
        import numpy as np

        values = np.asarray(self.values, dtype=float)
        length = -(-len(values) // (most // 2))
        rows = np.pad(values, (0, -len(values) % length), mode="edge").reshape(-1, length)
        ends = np.stack([rows.argmin(axis=1), rows.argmax(axis=1)]) + length * np.arange(len(rows))
        picked = np.unique(ends).tolist()
        return Series([int(self.steps[index]) for index in picked], [float(values[index]) for index in picked])

    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value; of at least one."""
        import numpy as np

        values = np.asarray(self.values, dtype=float)
        return float(values.min()), float(values.max())

    def outlined(self, most: int) -> list[float]:
        """The means of ``most`` equal parts of its steps, or fewer values; a part without a step is like the one before."""
        if len(self) <= most:
            return list(self.values)
        first, last = self.steps[0], self.steps[-1]
        parts: list[list[float]] = [[] for _ in range(most)]
        for step, value in zip(self.steps, self.values, strict=True):
            parts[min(most - 1, (step - first) * most // max(1, last - first))].append(value)
        found: list[float] = []
        for part in parts:
            found.append(fmean(part) if part else found[-1])
        return found

    @property
    def is_zero(self) -> bool:
        """Whether all of its values are 0."""
        return not len(self) or self.extremes() == (0.0, 0.0)

    def between(self, first: float, last: float) -> Series:
        """The part of it from one step to another, both among it."""
        start, end = bisect_left(self.steps, first), bisect_right(self.steps, last)
        return Series(self.steps[start:end], self.values[start:end])

    def at(self, step: float) -> tuple[int, float] | None:
        """Step and value of the point nearest to a step; None where there is none."""
        if not len(self):
            return None
        right = min(bisect_left(self.steps, step), len(self) - 1)
        near = min({max(0, right - 1), right}, key=lambda index: abs(self.steps[index] - step))
        return int(self.steps[near]), float(self.values[near])


EMPTY = Series((), ())


@dataclass(repr=False)
class StepTable:
    """The metrics of the steps of a stage: one row a step, one column a metric, NaN where a step does not have it.

    Without a representation of its content, which front ends would make a text of, however long it is.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, metrics: Mapping[str, object]) -> None:
        """Add a step. One that is told again, as after a resume, takes the place of what was told of it and of later ones."""
        self.extend([(step, metrics)])

    def extend(self, rows: Iterable[tuple[int, Mapping[str, object]]]) -> None:
        """Add steps in turn; those that tell the same metrics are taken together, column by column."""
        for names, alike in groupby(rows, key=lambda row: tuple(row[1])):
            found = list(alike)
            steps = [step for step, _ in found]
            values = zip(*(metrics.values() for _, metrics in found), strict=True)
            columns = {name: _numbers(column) for name, column in zip(names, values, strict=True)}
            if all(map(lt, steps, steps[1:])):
                self._append(steps, columns)
            else:
                for place, step in enumerate(steps):
                    self._append([step], {name: column[place : place + 1] for name, column in columns.items()})

    def join(self, later: StepTable) -> None:
        """Add the steps of another table, as if each were added in turn."""
        if len(later):
            self._append(later.steps, later.columns)

    def _append(self, steps: Sequence[int], columns: Mapping[str, array[float]]) -> None:
        """Add steps that rise, with the columns they have."""
        if self.steps and steps[0] <= self.steps[-1]:
            self.cut(steps[0] - 1)
        before = len(self.steps)
        self.steps.extend(steps)
        for name, values in columns.items():
            column = self.columns.setdefault(name, array("d"))
            column.extend([NAN] * (before - len(column)))
            column.extend(values)
        for column in self.columns.values():
            column.extend([NAN] * (len(self.steps) - len(column)))

    def cut(self, last: int) -> None:
        """Forget the steps after ``last``."""
        keep = bisect_right(self.steps, last)
        del self.steps[keep:]
        for column in self.columns.values():
            del column[keep:]

    def row(self, index: int) -> dict[str, float]:
        """The metrics of a step, by its row in the table; -1 is the newest."""
        return {name: column[index] for name, column in self.columns.items() if not math.isnan(column[index])}

    def series(self, name: str) -> Series:
        """A metric over the steps that have it; empty for one that no step has."""
        column = self.columns.get(name)
        if column is None:
            return EMPTY
        import numpy as np

        values = np.asarray(column)  # a view of the column, let go of before anything is added to it
        there = ~np.isnan(values)
        if there.all():
            return Series(self.steps, column)
        steps = np.asarray(self.steps)[there]
        return Series(array("q", steps.tobytes()), array("d", values[there].tobytes()))

    def last(self, name: str) -> float | None:
        """The newest value of a metric; None where the newest step has none."""
        column = self.columns.get(name)
        return None if not column or math.isnan(column[-1]) else column[-1]

    def latest(self, name: str, count: int) -> list[float]:
        """The values of a metric in the last ``count`` steps; steps without it are left out."""
        return [value for value in self.columns.get(name, ())[-count:] if not math.isnan(value)]


def _numbers(values: Sequence[object]) -> array[float]:
    """Values as numbers; NaN for what is none, or is not finite."""
    try:
        numbers = array("d", cast("Sequence[float]", values))
    except (TypeError, OverflowError):  # a text, a list, null
        numbers = array("d", map(_number, values))
    if math.isfinite(sum(numbers)):
        return numbers
    return array("d", (number if math.isfinite(number) else NAN for number in numbers))


def _number(value: object) -> float:
    """A number as a plot takes it; NaN for what is none."""
    try:
        return float(value) if isinstance(value, (int, float)) else NAN
    except OverflowError:
        return NAN


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


def operated(table: StepTable, step: int) -> list[tuple[str, int, int]]:
    """The experience operators of a step, by place and type, with the responses that went in and came out."""
    try:
        row = table.steps.index(step)
    except ValueError:
        return []
    found: list[tuple[str, int, int]] = []
    for column, values in table.columns.items():
        group, _, rest = column.partition("/")
        name, _, number = rest.partition("/")
        after = table.columns.get(f"operator/{name}/out")
        if group == "operator" and number == "in" and after is not None and not math.isnan(values[row] + after[row]):
            found.append((name, int(values[row]), int(after[row])))
    return sorted(found, key=lambda each: int(each[0].partition("_")[0]))
