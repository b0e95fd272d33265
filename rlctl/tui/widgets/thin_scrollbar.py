"""Scroll bars as a thin line at the edge, the part in sight as a stronger one."""

from __future__ import annotations

from rich.color import Color
from rich.segment import Segment, Segments
from rich.style import Style
from textual.scrollbar import ScrollBarRender

VERTICAL, HORIZONTAL = "▐", "▄"
BACK, BAR = Color.parse("#555555"), Color.parse("bright_magenta")
"""Where no style says otherwise."""


class ThinScrollBarRender(ScrollBarRender):
    """Draws the part in sight half a cell wide, and nothing for the rest."""

    @classmethod
    def render_bar(
        cls,
        size: int = 25,
        virtual_size: float = 50,
        window_size: float = 20,
        position: float = 0,
        thickness: int = 1,
        vertical: bool = True,
        back_color: Color = BACK,
        bar_color: Color = BAR,
    ) -> Segments:
        glyph = (VERTICAL if vertical else HORIZONTAL) * (thickness if vertical else 1)
        blank = " " * len(glyph)
        length = int(size)
        first = last = 0
        if window_size and size and virtual_size > window_size:
            last = max(1, round(window_size * size / virtual_size))
            first = round((size - last) * min(1.0, position / (virtual_size - window_size)))
            last += first
        parts = [
            Segment(glyph, Style(color=bar_color, bgcolor=back_color, meta={"@mouse.down": "grab"}))
            if first <= place < last
            else Segment(
                blank,
                Style(bgcolor=back_color, meta={"@mouse.down": "scroll_up" if place < first else "scroll_down"}),
            )
            for place in range(length)
        ]
        if vertical:
            return Segments(parts, new_lines=True)
        return Segments(([*parts, Segment.line()]) * thickness, new_lines=False)
