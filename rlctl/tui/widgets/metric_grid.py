"""Many metrics as small charts in a grid; only the rows in sight are drawn. Metrics that are 0 throughout are only named."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from rlctl.monitor.metrics import EMPTY, Series
from rlctl.tui.language import say, shortened
from rlctl.tui.widgets.sample_texts import plain
from rlctl.tui.widgets.spark import drawn

LEAST, HEIGHT = 34, 7
"""Fewest cells of a chart with its border, and its lines."""


class MetricGrid(ScrollView, can_focus=True):
    """Charts side by side; one of them has the cursor, and Enter opens it large."""

    DEFAULT_CSS = """
    MetricGrid { height: 1fr; }
    """
    BINDINGS = [
        Binding("left,h", "move(-1)", say("Chart before"), show=False),
        Binding("right", "move(1)", say("Chart after"), show=False),
        Binding("up", "move_row(-1)", say("Row above"), show=False),
        Binding("down", "move_row(1)", say("Row below"), show=False),
        Binding(
            "enter", "open", say("Large"), id="metrics.large", key_display="enter", tooltip=say("This metric alone")
        ),
    ]

    class Opened(Message):
        """A person wants a metric large."""

        def __init__(self, metric: str) -> None:
            self.metric = metric
            super().__init__()

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.charts: Sequence[tuple[str, Series]] = ()
        self.zero: Sequence[str] = ()
        self.at = 0
        """The chart with the cursor."""
        self._drawn: dict[int, list[Strip]] = {}
        """The rows that were drawn, by number."""

    def show(self, found: Sequence[tuple[str, Series]]) -> None:
        """Show metrics as they are now."""
        known = [(name, series) for name, series in found if len(series)]
        under = self.charts[self.at][0] if self.at < len(self.charts) else ""
        self.charts = [(name, series) for name, series in known if not series.is_zero]
        self.zero = [name for name, series in known if series.is_zero]
        self.at = next((place for place, (name, _) in enumerate(self.charts) if name == under), 0)
        self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def on_focus(self) -> None:
        self._lay_out()

    def on_blur(self) -> None:
        self._lay_out()

    @property
    def per_row(self) -> int:
        """Charts side by side."""
        return max(1, self.scrollable_content_region.width // LEAST)

    def _lay_out(self) -> None:
        self._drawn.clear()
        rows = -(-len(self.charts) // self.per_row)
        self.virtual_size = Size(self.scrollable_content_region.width, rows * HEIGHT + (2 if self.zero else 0))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        row, line = divmod(y + self.scroll_offset.y, HEIGHT)
        if row not in self._drawn:
            self._drawn[row] = self._strips(row, width)
        strips = self._drawn[row]
        return strips[line] if line < len(strips) else Strip.blank(width, self.rich_style)

    def _strips(self, row: int, width: int) -> list[Strip]:
        start = row * self.per_row
        charts = self.charts[start : start + self.per_row]
        content = self._row(charts, start, width) if charts else self._folded(row)
        return Visual.to_strips(self, content, width, None, self.visual_style)

    def _folded(self, row: int) -> Content:
        """What is 0 throughout, in the row after the last chart."""
        if not self.zero or row * self.per_row >= len(self.charts) + self.per_row:
            return Content("")
        told = say("0 throughout: {names}").format(names=", ".join(map(plain, self.zero)))
        return Content.styled(told, "$text-muted")

    def _row(self, charts: Sequence[tuple[str, Series]], start: int, width: int) -> Content:
        size = width // self.per_row
        parts = [
            _chart(name, series, size, is_under=self.has_focus and place == self.at)
            for place, (name, series) in enumerate(charts, start=start)
        ]
        return Content("\n").join([Content("").join(lines) for lines in zip(*parts, strict=True)])

    def action_move(self, by: int) -> None:
        """Go to another chart, and bring it into sight."""
        if not self.charts:
            return
        self.at = max(0, min(len(self.charts) - 1, self.at + by))
        top = self.at // self.per_row * HEIGHT
        height = self.scrollable_content_region.height
        if top < self.scroll_offset.y or top + HEIGHT > self.scroll_offset.y + height:
            self.scroll_to(y=top if by < 0 else max(0, top + HEIGHT - height), animate=False)
        self._drawn.clear()
        self.refresh()

    def action_move_row(self, by: int) -> None:
        self.action_move(by * self.per_row)

    def action_open(self) -> None:
        if self.at < len(self.charts):
            self.post_message(self.Opened(self.charts[self.at][0]))


def _chart(name: str, series: Series, width: int, *, is_under: bool) -> list[Content]:
    """The lines of a chart with a border that has its name and its newest value."""
    look = "$border" if is_under else "$border-blurred"
    value = f" {series.values[-1]:.4g} "
    title = f" {shortened(plain(name), max(4, width - 6))} "
    inside = drawn(series, EMPTY, width - 4, HEIGHT - 2).split("\n", allow_blank=True)
    lines = [
        Content.assemble(
            ("╭─", look), (title, "bold" if is_under else ""), ("─" * max(0, width - 4 - len(title)) + "─╮", look)
        )
    ]
    for line in inside[: HEIGHT - 2]:
        lines.append(Content.assemble(("│ ", look), line, " " * max(0, width - 4 - line.cell_length), (" │", look)))
    lines += [Content.assemble(("│", look), " " * (width - 2), ("│", look))] * (HEIGHT - 1 - len(lines))
    bottom = "─" * max(0, width - 4 - len(value))
    lines.append(Content.assemble((f"╰─{bottom}", look), (value, "$text-muted"), ("─╯", look)))
    return lines
