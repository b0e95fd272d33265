"""Many lines of a log, drawn only where they are seen; errors and warnings have a mark before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from rlctl.monitor.logs import LogLine

MARKS = {"error": "✗ ", "warning": "! ", "": "  "}


class LogView(ScrollView, can_focus=True):
    """Lines that are replaced as a whole; at its end it stays at the end."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log-view--error", "log-view--warning"}
    DEFAULT_CSS = """
    LogView { background: $background; }
    LogView .log-view--error { color: $text-error; text-style: bold; }
    LogView .log-view--warning { color: $text-warning; }
    """

    def __init__(self, *, id: str, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.lines: Sequence[LogLine] = ()
        self._on_its_way = False
        """Whether the end comes into sight when the new lines are laid out."""

    @property
    def follows(self) -> bool:
        """Whether new lines come into sight."""
        return self._on_its_way or self.scroll_offset.y >= self.max_scroll_y

    def show(self, lines: Sequence[LogLine], *, to_end: bool = False) -> None:
        """Show other lines; where the end was in sight, or with ``to_end``, it is in sight again."""
        follows = to_end or self.follows
        self.lines = lines
        self.virtual_size = Size(max((cell_len(line.text) for line in lines), default=0) + 2, len(lines))
        self.refresh()
        if follows:
            self._on_its_way = True
            self.call_after_refresh(self._to_end)

    def _to_end(self) -> None:
        self._on_its_way = False
        self.scroll_end(animate=False, immediate=True)

    def render_line(self, y: int) -> Strip:
        """See ``Widget``."""
        left, top = self.scroll_offset
        number, width = top + y, self.scrollable_content_region.width
        if number >= len(self.lines):
            return Strip.blank(width, self.rich_style)
        line = self.lines[number]
        style = self.get_component_rich_style(f"log-view--{line.level}") if line.level else self.rich_style
        strip = Strip([Segment(MARKS[line.level] + line.text, style)])
        return strip.crop_extend(left, left + width, self.rich_style)
