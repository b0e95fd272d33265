"""Rich's console, for text from files and processes: whatever is printed, only the console itself controls the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rlctl.common.terminal import safe


class SafeConsole(Console):
    """A console that shows control characters of what it prints as pictures."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(safe(segment.text), segment.style)
