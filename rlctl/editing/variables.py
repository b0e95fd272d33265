"""Where a launch script sets the variable that an override uses, so that an edit keeps the script's own knob working.

    lr=${LR:-1e-6}                     <- the edit belongs here
    ... actor.optim.lr=${lr}           <- not here, where it would disconnect LR and lr

Found by the form of the lines alone: the caller reads the edited script again and sees whether it means what was wanted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

WORD = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\;])*"""
"""A word of bash, with its quotes."""
_PLAIN = re.compile(r"[\w./:+@%,-]+", re.ASCII)
"""A value that means the same with and without quotes."""
_REFERENCE = re.compile(r"\$(?:(?P<name>\w+)|\{(?P<braced>\w+)(?::?[-=](?P<default>.*))?\})", re.ASCII | re.DOTALL)
_MOST = 8
"""Variables that are followed from one to the next."""


@dataclass(frozen=True, slots=True)
class Default:
    """The place of the value that a variable has unless the environment says otherwise."""

    variable: str
    line: int
    """Counted from 0."""
    start: int
    end: int

    def with_value(self, lines: Sequence[str], value: str) -> list[str]:
        """The lines of the script with another value at this place."""
        line = lines[self.line]
        return [*lines[: self.line], line[: self.start] + value + line[self.end :], *lines[self.line + 1 :]]


def is_plain(value: str) -> bool:
    """Whether a value can be the default of a variable as it is, however that is quoted."""
    return _PLAIN.fullmatch(value) is not None


def uses_variable(word: str) -> bool:
    """Whether bash replaces a part of a word: there is a ``$`` or a backtick outside single quotes and not escaped."""
    bare = re.sub(r"\\.", "", word)
    within = ""
    for character in bare:
        if character in "\"'" and within in ("", character):
            within = "" if within else character
        elif character in "$`" and within != "'":
            return True
    return False


def default_of(lines: Sequence[str], line: int, start: int, end: int, used: Collection[int]) -> Default | None:
    """The default behind a value that is one variable and nothing else; None for any other value, and without a default.

    Args:
        lines: of the script.
        line: of the value, counted from 0.
        start: of the value in its line.
        end: of the value in its line.
        used: the lines that are known to hold values of the command that is started.
    """
    for _ in range(_MOST):
        start, end = _without_quotes(lines[line], start, end)
        found = _REFERENCE.fullmatch(lines[line], start, end)
        if found is None:
            return None
        name = found["name"] or found["braced"]
        if found["default"] is not None:
            start, end = _without_quotes(lines[line], *found.span("default"))
        else:
            place = _assignment(lines, line, name, used)
            if place is None:
                return None
            line, start, end = place
            start, end = _without_quotes(lines[line], start, end)
            inner = _REFERENCE.fullmatch(lines[line], start, end)
            if inner is not None and inner["default"] is not None:
                name = inner["braced"]
                start, end = _without_quotes(lines[line], *inner.span("default"))
                if (
                    _REFERENCE.fullmatch(lines[line], start, end) is None
                ):  # a computed one too: the variable still replaces it
                    return Default(name, line, start, end)
        if is_plain(lines[line][start:end]):
            return Default(name, line, start, end)
    return None


def _assignment(lines: Sequence[str], before: int, name: str, used: Collection[int]) -> tuple[int, int, int] | None:
    """Line and span of the value that a variable is given last before a line; one in use before one of a branch not taken."""
    given = re.compile(rf"(?<!\S)(?:{name}=(?P<value>{WORD})|:\s+\"?\$\{{{name}:?=(?P<default>[^}}]*)\}})", re.ASCII)
    found = [
        (number, *match.span("value" if match["value"] is not None else "default"))
        for number, line in enumerate(lines[:before])
        if not line.lstrip().startswith("#")
        for match in given.finditer(line)
    ]
    return max(found, key=lambda place: (place[0] in used, place), default=None)


def _without_quotes(line: str, start: int, end: int) -> tuple[int, int]:
    if end - start >= 2 and line[start] == line[end - 1] and line[start] in "\"'":
        return start + 1, end - 1
    return start, end
