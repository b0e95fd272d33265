"""Curves as braille dots, two across and four down in each cell, and as one line of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from rlctl.monitor.metrics import Series

if TYPE_CHECKING:
    import numpy as np

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
    """The bits of each cell of a curve, row by row; a point alone is a dot."""
    if not len(series) or not frame.width or not frame.height:
        return [[0] * frame.width for _ in range(frame.height)]
    import numpy as np

    points = series.thinned(frame.width * 4)
    places = np.array([frame.place(step, value) for step, value in zip(points.steps, points.values, strict=True)])
    starts, ends = (places[:-1], places[1:]) if len(places) > 1 else (places, places)
    found: list[list[int]] = crossed(starts, ends, frame.width, frame.height).tolist()
    return found


def crossed(starts: np.ndarray, ends: np.ndarray, width: int, height: int) -> np.ndarray:
    """The bits of each cell that lines between dots cross: of all lines at once, because dot by dot takes ten times as long."""
    import numpy as np

    bits, rows, columns = np.array(DOTS, np.uint8), len(DOTS), len(DOTS[0])
    counts = np.abs(ends - starts).max(axis=1) + 1
    line = np.repeat(np.arange(len(counts)), counts)
    along = (np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)) / np.maximum(counts - 1, 1)[line]
    x, y = np.floor(starts[line] + along[:, None] * (ends - starts)[line] + 0.5).astype(int).T
    cells = np.zeros((height, width), np.uint8)
    np.bitwise_or.at(cells, (y // rows, x // columns), bits[y % rows, x % columns])
    return cells


def blocks(values: Sequence[float], width: int, scale: tuple[float, float] | None = None) -> str:
    """All values in one line, between their lowest and their highest, or those of ``scale``; of too many, the means of parts."""
    shown = _means(values, width)
    low, high = scale or (min(shown, default=0.0), max(shown, default=0.0))
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((value - low) / (high - low) * top) if high > low else 0] for value in shown)


def _means(values: Sequence[float], count: int) -> list[float]:
    """The values, or, of more than so many, the means of as many equal parts."""
    if len(values) <= count:
        return list(values)
    ends = [round(place * len(values) / count) for place in range(count + 1)]
    return [fmean(values[start:end]) for start, end in itertools.pairwise(ends)]
