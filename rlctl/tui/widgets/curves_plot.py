"""The plot library's widget with a cursor over steps and keys that are told in the app's language.

Loads the library: only ``metric_plot`` imports this, when something is first drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, ClassVar

import numpy as np
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.events import Leave, MouseMove
from textual.message import Message
from textual_hires_canvas import Canvas, HiResMode
from textual_plot import PlotWidget
from textual_plot.plot_widget import Legend

from rlctl.tui.language import say
from rlctl.tui.widgets.braille import BLANK, DOTS, crossed


class CurvesCanvas(Canvas):
    """The library's canvas, with curves in braille drawn as a whole.

    Drawn dot by dot, a curve that goes up and down in every column takes a tenth of a second, each time a step is added.
    """

    def draw_hires_lines(
        self,
        coordinates: Iterable[tuple[Any, Any, Any, Any]],
        hires_mode: HiResMode | None = None,
        style: str = "white",
    ) -> None:
        """Draw lines between points, in cells of the canvas, in braille; what does not fit on it is cut off."""
        size = self._canvas_size
        points = np.array(list(coordinates), float).reshape(-1, 2, 2)
        if not size.area:
            return
        dots = np.array([len(DOTS[0]), len(DOTS)])
        starts, ends = _cut(points * dots, np.array([size.width, size.height]) * dots)
        cells = crossed(starts, ends, size.width, size.height)
        for row, column in np.argwhere(cells).tolist():
            self._buffer[row][column] = chr(BLANK + int(cells[row, column]))
            self._styles[row][column] = style
        self.refresh()

    def draw_rectangle_box(self, x0: int, y0: int, x1: int, y1: int, thickness: int = 1, style: str = "white") -> None:
        """Draw the two axes alone, as in small charts: the panel is the frame."""
        for y in range(y0, y1):
            self.set_pixel(x0, y, "│", style)
        for x in range(x0 + 1, x1 + 1):
            self.set_pixel(x, y1, "─", style)
        self.set_pixel(x0, y1, "└", style)


def _cut(lines: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The dots at both ends of what of each line is on the canvas (Liang and Barsky 1984); lines beside it are left out."""
    start, way = lines[:, 0], lines[:, 1] - lines[:, 0]
    into, out = np.zeros(len(lines)), np.ones(len(lines))
    for change, room in ((-way, start), (way, size - 1 - start)):
        with np.errstate(divide="ignore", invalid="ignore"):
            at = room / change
        into = np.maximum(into, np.where(change < 0, at, 0).max(axis=1))
        out = np.minimum(out, np.where(change > 0, at, 1).min(axis=1))
        out[((change == 0) & (room < 0)).any(axis=1)] = -1
    seen = into <= out
    ends = (start[seen] + part[seen, None] * way[seen] for part in (into, out))
    first, last = (np.clip(np.floor(end), 0, size - 1).astype(int) for end in ends)
    return first, last


class CurvesPlot(PlotWidget, inherit_bindings=False):
    """Curves over steps; the arrows move a cursor, and what is seen is zoomed and moved over the steps."""

    DEFAULT_CSS = """
    CurvesPlot {
        & > .plot--axis { color: $border-blurred; }
        &:focus > .plot--axis { color: $primary; }
        & > .plot--tick { color: $text-muted; text-style: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cursor(-1)", say("Cursor left"), id="plot.left", show=False),
        Binding("right", "cursor(1)", say("Cursor right"), id="plot.right", show=False),
        Binding("home", "cursor(-9999)", say("Cursor to the first step"), id="plot.first", show=False),
        Binding("end", "cursor(9999)", say("Cursor to the last step"), id="plot.last", show=False),
        Binding("plus,equals_sign", "zoom_x_in", say("Zoom in"), id="plot.in", key_display="+"),
        Binding("minus", "zoom_x_out", say("Zoom out"), id="plot.out", key_display="-"),
        Binding("shift+left", "pan_left", say("Earlier steps"), id="plot.earlier", show=False),
        Binding("shift+right", "pan_right", say("Later steps"), id="plot.later", show=False),
        Binding("shift+up", "zoom_y_in", say("Zoom in on values"), id="plot.values_in", show=False),
        Binding("shift+down", "zoom_y_out", say("Zoom out on values"), id="plot.values_out", show=False),
        Binding("r", "reset_scales", say("Whole run"), id="plot.reset"),
    ]

    class Ready(Message):
        """The parts that are drawn on are there."""

    class CursorMoved(Message):
        """The cursor is over another step, or over none."""

        def __init__(self, step: float | None) -> None:
            self.step = step
            super().__init__()

    def __init__(self) -> None:
        super().__init__(invert_mouse_wheel=True)  # as in maps: up is in
        self.steps: tuple[float, float] | None = None
        """The first and the last step that there are: what is seen stays between them."""
        self.cursor: float | None = None
        """The step that is under it."""
        self._single: tuple[float | None, float | None] = (None, None)
        """The one step and the one value that there are, where room was made around them."""

    def compose(self) -> ComposeResult:
        with Grid():
            for name in ("margin-top", "margin-left", "plot", "margin-bottom"):
                yield CurvesCanvas(1, 1, id=name)
        yield Legend(id="legend")

    def combine_quad_with_pixel(self, quad: tuple[int, int, int, int], canvas: Canvas, x: int, y: int) -> str:
        """Put thin ticks on the two axes, and none where the library has the other two sides of its frame."""
        above, right, below, left = (min(1, weight) for weight in quad)
        if above or right:
            return canvas.get_pixel(x, y)[0]
        return super().combine_quad_with_pixel((0, 0, below, left), canvas, x, y)

    def on_mount(self) -> None:
        self.margin_top, self.margin_left, self.margin_bottom = 0, 9, 2
        self.post_message(self.Ready())

    @property
    def whole(self) -> bool:
        """Whether all steps are seen."""
        return self._auto_x_min

    @property
    def seen(self) -> tuple[float, float]:
        """The first and the last step that are seen."""
        return self._x_min, self._x_max

    def make_room(self, steps: Collection[float], values: Collection[float]) -> None:
        """Around a single step or a single value, which the library would draw a millionth of a unit wide."""
        step, value = (next(iter(each)) if len(each) == 1 else None for each in (steps, values))
        if (step is None) != (self._single[0] is None):
            self.set_xlimits(*((None, None) if step is None else (step - 1, step + 1)))
        if value != self._single[1]:
            around = 0.0 if value is None else abs(value) / 2 or 1.0
            self.set_ylimits(*((None, None) if value is None else (value - around, value + around)))
        self._single = step, value

    def action_cursor(self, cells: int) -> None:
        """Move the cursor by cells; where there is none it begins at the last step."""
        first, last = self.seen
        cell = (last - first) / max(1, self._scale_rectangle.width)
        begin = last if self.cursor is None or not first <= self.cursor <= last else self.cursor + cells * cell
        self._move(min(max(begin, first), last))

    def _zoom(self, *how: Any, **more: Any) -> None:
        super()._zoom(*how, **more)
        self._stay()

    def _pan(self, factor_x: float, factor_y: float) -> None:
        super()._pan(factor_x, factor_y)
        self._stay()

    def _stay(self) -> None:
        """Come back to the steps that there are."""
        if self.whole or self.steps is None:
            return
        (first, last), (begin, end) = self.steps, self.seen
        if end - begin >= last - first:
            self.set_xlimits(None, None)
        elif begin < first or end > last:
            shift = first - begin if begin < first else last - end
            self._x_min, self._x_max = begin + shift, end + shift
            self._rerender()

    def action_reset_scales(self) -> None:
        """All steps and values are seen, and no cursor."""
        self._move(None)
        super().action_reset_scales()

    @on(MouseMove)
    def _follow_mouse(self, event: MouseMove) -> None:
        if not event.button and event.widget is not None and event.widget.id == "plot":
            step, _ = self.get_coordinate_from_pixel(event.x, event.y)
            self._move(min(max(step, self.seen[0]), self.seen[1]))

    @on(Leave)
    def _lose_mouse(self) -> None:
        self._move(None)

    def _move(self, step: float | None) -> None:
        if step != self.cursor:
            self.cursor = step
            self.post_message(self.CursorMoved(step))
