"""Curves as braille dots, two across and four down in each cell, and as one line of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlctl.monitor.metrics import Series

BLANK = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a cell, by row and column."""
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Frame:
    """What a drawing shows: cells, steps from left to right, values from bottom to top."""

    width: int
    height: int
    first: float
    last: float
    low: float
    high: float

    def place(self, step: float, value: float) -> tuple[int, int]:
        """The dot of a point, from the top left."""
        across, down = self.width * 2 - 1, self.height * 4 - 1
        x = (step - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        y = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(min(1.0, max(0.0, x)) * across), round((1 - min(1.0, max(0.0, y))) * down)


def curve(series: Series, frame: Frame) -> list[list[int]]:
    """The bits of each cell of a curve, row by row."""
    cells = [[0] * frame.width for _ in range(frame.height)]
    if not frame.width or not frame.height:
        return cells
    points = series.thinned(frame.width * 4)
    places = [frame.place(step, value) for step, value in zip(points.steps, points.values, strict=True)]
    for x, y in _dots(places):
        cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]
    return cells


def _dots(places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Every dot of the lines between points; a point alone is a dot."""
    yield from places[:1]
    for (x, y), (to_x, to_y) in itertools.pairwise(places):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(1, steps + 1):
            yield x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)


def blocks(values: Sequence[float], width: int, scale: tuple[float, float] | None = None) -> str:
    """The last values in one line, between their lowest and their highest, or those of ``scale``."""
    shown = list(values)[-width:]
    low, high = scale or (min(shown, default=0.0), max(shown, default=0.0))
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((value - low) / (high - low) * top) if high > low else 0] for value in shown)
