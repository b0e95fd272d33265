"""How entries of a report are laid out as lines: wrapped, aligned and coloured on a terminal, never wrapped elsewhere.

Only characters carry meaning; colour repeats it. A place such as ``run.sh:43`` is never wrapped, so that it can be copied.
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TextIO

from rlctl.common.records import record
from rlctl.common.terminal import safe

RED, YELLOW, CYAN, BOLD, DIM = "31", "33", "36", "1", "2"
_WORD = r"[\u2e80-\uffef][，。；：、！？）,.;:)]*|[^\s\u2e80-\uffef]+|\s+"
"""What a line is broken between: a word, or a character of a language that is written without spaces."""
_LEAST_WIDTH = 30
"""Columns that wrapped text keeps on a narrow terminal."""
_PLAIN: Mapping[str, str] = {"✗": "x", "≈": "~", "·": "-", "→": "->", "■": "#", "█": "#", "░": "."}
"""Marks for streams whose encoding lacks the others."""


@record
class Screen:
    """What lines are laid out for."""

    width: int | None = None
    """Columns of the terminal; None if no terminal reads it."""
    colours: bool = False
    unicode: bool = True

    def styled(self, content: str, style: str) -> str:
        """Text in a colour, if the screen has colours."""
        return f"\x1b[{style}m{content}\x1b[0m" if self.colours and style and content else content

    def mark(self, mark: str) -> str:
        """A mark, or its plain form if the stream cannot encode it."""
        return mark if self.unicode else "".join(_PLAIN.get(letter, letter) for letter in mark)

    def wrapped(self, content: str, indent: int = 0) -> list[str]:
        """Text broken to the width that is left of a column."""
        content = clean(content)
        return [content] if self.width is None else wrapped(content, max(self.width - indent, _LEAST_WIDTH))


def screen(stream: TextIO) -> Screen:
    """The screen behind a stream, as wide and colourful as the environment says."""
    utf = (getattr(stream, "encoding", "") or "").lower().replace("-", "") in ("utf8", "")
    if not stream.isatty():
        return Screen(unicode=utf)
    colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Screen(shutil.get_terminal_size().columns, colours, utf)


@record
class Item:
    """One entry: a mark, what it is about, where that was written, what happens, and what to do."""

    mark: str
    style: str
    title: str
    at: str = ""
    body: str = ""
    advice: str = ""
    brief: bool = False
    """Whether the place is left off if it does not fit into the first line."""

    def lines(self, to: Screen) -> Iterator[str]:
        """The entry as lines; the place stands at the right edge of a terminal, else in parentheses."""
        mark = to.styled(to.mark(self.mark), self.style)
        first, *more = to.wrapped(self.title, 4) or [""]
        if to.width is None:
            yield f"  {mark} {first}" + (f"  ({safe(self.at)})" if self.at else "")
        else:
            gap = to.width - 4 - cells(first) - cells(self.at)
            beside = bool(self.at) and not more and gap >= 2
            yield f"  {mark} {first}" + (" " * gap + to.styled(safe(self.at), DIM) if beside else "")
            yield from (f"    {line}" for line in more)
            if self.at and not beside and not self.brief:
                yield f"    {to.styled(safe(self.at), DIM)}"
        if self.body:
            yield from (f"    {line}" for line in to.wrapped(self.body, 4))
        if self.advice:
            yield from advice_lines(self.advice, 4, to)


def advice_lines(advice: str, indent: int, to: Screen) -> Iterator[str]:
    """What to do, after an arrow."""
    arrow = to.mark("→")
    first, *more = to.wrapped(advice, indent + len(arrow) + 1)
    yield " " * indent + to.styled(arrow, CYAN) + f" {first}"
    yield from (" " * (indent + len(arrow) + 1) + line for line in more)


def clean(content: str) -> str:
    """Text in one line, without what would control a terminal."""
    return " ".join(safe(content).split())


def cells(content: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in content)


def padded(content: str, width: int) -> str:
    """A text with spaces up to a width."""
    return content + " " * (width - cells(content))


def wrapped(content: str, width: int) -> list[str]:
    """Text broken between words; a word that is longer than a line stays whole."""
    lines, used = [""], 0
    for word in re.findall(_WORD, content):
        size = cells(word)
        if used and used + size > width:
            lines.append("")
            used = 0
        if used or not word.isspace():
            lines[-1] += word
            used += size
    return [line.rstrip() for line in lines]
