"""An entry of a list whose long lines go on under their own text, so that marks and headings are easily found."""

from __future__ import annotations

import re

from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

_LEAD = re.compile(r" *(?:[^\w\s] ){0,2}")
"""Spaces and up to two marks, as ``☐ ! ``."""


class Hanging(Visual):
    """Lines of markup, each wrapped under what follows its spaces and marks."""

    def __init__(self, markup: str) -> None:
        self._lines = Content.from_markup(markup).split("\n", allow_blank=True)
        self._wrapped: tuple[int, Content] = (-1, Content(""))

    def __str__(self) -> str:
        return "\n".join(line.plain for line in self._lines)

    def _at(self, width: int) -> Content:
        if self._wrapped[0] != width:
            lines = [part for line in self._lines for part in _hung(line, width)]
            self._wrapped = width, Content("\n").join(lines)
        return self._wrapped[1]

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return max((line.cell_length for line in self._lines), default=0)

    def get_minimal_width(self, rules: RulesMap) -> int:
        return 1

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._at(width).get_height(rules, width)

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        return self._at(width).render_strips(width, height, style, options)


def _hung(line: Content, width: int) -> list[Content]:
    found = _LEAD.match(line.plain)
    lead = found.end() if found else 0
    room = width - line[:lead].cell_length
    if line.cell_length <= width or room < width // 2:
        return [line]
    first, *others = line[lead:].wrap(room)
    indent = Content(" " * line[:lead].cell_length)
    return [line[:lead] + first, *(indent + other for other in others)]
