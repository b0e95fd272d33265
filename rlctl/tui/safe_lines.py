"""The one place where what the app shows loses its control characters: every line of every widget passes it."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from rlctl.common.terminal import without_controls


class SafeLines(LineFilter):
    """Leaves control characters out of a line: a run's name, or a model's answer, must not control the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.control else Segment(without_controls(segment.text), segment.style)
            for segment in segments
        ]
