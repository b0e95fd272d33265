"""A metric as a panel: its name and newest value in the border, its course inside, evaluations as marks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content
from textual.markup import escape
from textual.widgets import Static

from rlctl.monitor.metrics import EMPTY, Series
from rlctl.tui.themes import HEIGHTS
from rlctl.tui.widgets.braille import BLANK, Frame, curve

SMOOTHING = 0.8
MARK = "◆"
"""Of an evaluation."""
ONE_COLOR = ("$primary",)
AXES = 7
"""Fewest lines of a chart that has room for a scale."""
MOST_DIGITS = 6
"""Most digits of a value of the scale."""
MANY = 30
"""Fewest points of a curve that is smoothed: the mean of a few evaluations would lag far behind."""


class Spark(Static):
    """The course of a metric, as large as there is room; tall ones have a scale."""

    DEFAULT_CSS = """
    Spark { height: 6; width: 1fr; padding: 0; }
    """

    def __init__(self, metric: str, *, id: str | None = None, by_height: bool = False) -> None:
        """``by_height``: the curve changes color from the bottom to the top."""
        super().__init__("", id=id, classes="panel", markup=False)
        self.tints = HEIGHTS if by_height else ONE_COLOR
        self.metric = metric
        self._series: Series = EMPTY
        self._marks: Series = EMPTY

    def show(self, series: Series, marks: Series = EMPTY) -> None:
        """Show the metric as it is now; ``marks``: an evaluation of the same, on the same scale."""
        self._series, self._marks = series, marks
        self.call_later(self._draw)  # between other messages: all charts of a long run at once would hold up a key

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        series, size = self._series, self.content_size
        if not len(series) or not size.width or not size.height:
            return
        self.border_title = escape(self.metric)
        self.border_subtitle = number(series.values[-1], 4)
        self.update(drawn(series, self._marks, size.width, size.height, self.tints), layout=False)


def number(value: float, digits: int) -> str:
    """A value in few cells: from 1,000 on without decimals and with separators, not as a power of ten."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.{digits}g}"


def drawn(series: Series, marks: Series, width: int, height: int, colors: Sequence[str] = ONE_COLOR) -> Content:
    """A chart: raw values dim and smoothed ones bright, evaluations as marks, a scale if there is room for it.

    ``colors``: of the curve, from the bottom to the top.
    """
    low, high = series.extremes()
    if len(marks):
        least, most = marks.extremes()
        low, high = min(low, least), max(high, most)
    has_axes = height >= AXES
    scale = _scale(low, high) if has_axes else []
    left = max(map(cell_len, scale), default=-1) + 1
    frame = Frame(
        max(1, width - left - (1 if has_axes else 0)),
        height - (2 if has_axes else 0),
        series.steps[0],
        series.steps[-1],
        low,
        high,
    )
    is_smoothed = has_axes and len(series) >= MANY
    smooth = series.smoothed(SMOOTHING) if is_smoothed else EMPTY
    raw, bright = curve(series, frame), curve(smooth, frame)
    spots = {_cell(frame, step, value) for step, value in zip(marks.steps, marks.values, strict=True)}
    lines = []
    for y in range(frame.height):
        parts: list[tuple[str, str]] = []
        color = _at_height(colors, y, frame.height)
        if has_axes:
            named = {0: scale[0], frame.height // 2: scale[1], frame.height - 1: scale[2]}
            parts.append((f"{named.get(y, ''):>{left - 1}} ", "$text-muted"))
            parts.append(("┤" if y in named else "│", "$border-blurred"))
        for x in range(frame.width):
            if (x, y) in spots:
                parts.append((MARK, "$series-2 bold"))
            elif bright[y][x]:
                parts.append((chr(BLANK + bright[y][x]), color))
            else:
                parts.append(
                    (chr(BLANK + raw[y][x]) if raw[y][x] else " ", "$border-blurred" if is_smoothed else color)
                )
        lines.append(_joined(parts))
    if has_axes:
        lines += _below(series, frame, left)
    return Content("\n").join(lines)


def _at_height(colors: Sequence[str], row: int, rows: int) -> str:
    """The color of a row, which counts from the top."""
    return colors[round((rows - 1 - row) / max(1, rows - 1) * (len(colors) - 1))]


def _scale(low: float, high: float) -> list[str]:
    """The ends of the axis and its middle, in as few digits as tell them apart; one value is named once."""
    if low == high:
        return ["", number(low, 3), ""]
    for digits in range(3, MOST_DIGITS + 1):
        scale = [number(value, digits) for value in (high, (low + high) / 2, low)]
        if len(set(scale)) == len(scale):
            break
    return scale


def _cell(frame: Frame, step: float, value: float) -> tuple[int, int]:
    x, y = frame.place(step, value)
    return x // 2, y // 4


def _joined(parts: list[tuple[str, str]]) -> Content:
    """Parts side by side, those of one look as one."""
    runs: list[tuple[str, str]] = []
    for text, style in parts:
        if runs and runs[-1][1] == style:
            runs[-1] = runs[-1][0] + text, style
        else:
            runs.append((text, style))
    return Content.assemble(*runs)


def _below(series: Series, frame: Frame, left: int) -> list[Content]:
    """The axis of the steps: its first, its middle and its last one."""
    first, last = series.steps[0], series.steps[-1]
    axis = f"{' ' * left}└{'─' * frame.width}"
    names = [str(first), str((first + last) // 2), str(last)] if frame.width > 30 else [str(first), str(last)]
    text = names[0]
    if len(names) == 3:
        text += " " * max(1, frame.width // 2 - len(names[1]) // 2 - len(text)) + names[1]
    text += " " * max(1, frame.width - len(text) - len(names[-1])) + names[-1] if last != first else ""
    return [Content.styled(axis, "$border-blurred"), Content.styled(f"{' ' * (left + 1)}{text}", "$text-muted")]
