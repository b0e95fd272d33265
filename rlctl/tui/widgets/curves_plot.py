"""The plot library's widget with a cursor over steps and keys that are told in the app's language.

Loads the library: only ``metric_plot`` imports this, when something is first drawn.
"""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.events import Leave, MouseMove
from textual.message import Message
from textual_plot import PlotWidget

from rlctl.tui.language import say


class CurvesPlot(PlotWidget, inherit_bindings=False):
    """Curves over steps; the arrows move a cursor, and what is seen is zoomed and moved over the steps."""

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
        Binding("shift+down", "zoom_y_out", say("Zoom out of values"), id="plot.values_out", show=False),
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
        super().__init__()
        self.cursor: float | None = None
        """The step that is under it."""

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

    def action_cursor(self, cells: int) -> None:
        """Move the cursor by cells; where there is none it begins at the last step."""
        first, last = self.seen
        cell = (last - first) / max(1, self._scale_rectangle.width)
        begin = last if self.cursor is None or not first <= self.cursor <= last else self.cursor + cells * cell
        self._move(min(max(begin, first), last))

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
