"""Texts that a run has recorded, in the reader's language: its folder holds the English ones, not what they were made of.

A reason knows its values; read back from ``run.json`` or ``events.jsonl`` it is only text. The template that made it is found
by its words. Of several that fit, the one with the most words in it is taken; a text that none fits is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from string import Formatter

from rlctl.common import language
from rlctl.common.messages.reasons import reasons

_FEWEST_LETTERS = 6
"""Letters that a template has at least, besides its values: fewer would fit texts that were never made of it."""


def recalled(text: str, spoken: str = "") -> str:
    """A recorded English text in a language, the reader's by default."""
    spoken = spoken or language.chosen()
    if spoken == "en" or not text:
        return text
    for start in _starts(text):
        whole = _as_a_whole(text[start:], spoken)
        if whole is not None:
            return text[:start] + whole
    if "\n" in text:
        return "\n".join(recalled(line, spoken) for line in text.split("\n"))
    return text


def _starts(text: str) -> list[int]:
    """Where a reason may begin: after the indent, and after each ``file:line: `` or ``worker: `` of the first line."""
    indent = len(text) - len(text.lstrip(" "))
    return [indent, *(found.end() for found in re.finditer(": ", text.split("\n", 1)[0]))]


def _as_a_whole(text: str, spoken: str) -> str | None:
    """A text that is a reason; None if it is not one."""
    known = reasons(spoken).get(text)
    if known is not None:
        return known
    for pieces, names, other in _templates(spoken):
        if all(piece in text for piece in pieces):
            found = re.fullmatch("(.*?)".join(map(re.escape, pieces)), text, re.DOTALL)
            if found:
                values = dict(zip(names, found.groups(), strict=True))
                return "".join(
                    literal + (recalled(values[name], spoken) if name is not None else "")
                    for literal, name in _parts(other)
                )
    return None


@cache
def _templates(spoken: str) -> list[tuple[tuple[str, ...], tuple[str, ...], str]]:
    """The texts around the values of each template, the values' names, and the other language's template."""
    made = []
    for english, other in reasons(spoken).items():
        if "{" not in english:
            continue
        try:
            parts = list(_parts(english))
        except ValueError:  # a constant with braces in it
            continue
        names = tuple(name for _, name in parts if name is not None)
        pieces = tuple(literal for literal, _ in parts) + (("",) if parts[-1][1] is not None else ())
        if names and len(re.findall("[A-Za-z]", "".join(pieces))) >= _FEWEST_LETTERS:
            made.append((pieces, names, other))
    return sorted(made, key=lambda template: -sum(map(len, template[0])))


def _parts(template: str) -> Iterator[tuple[str, str | None]]:
    """Literal texts of a template, each with the name of the value after it."""
    for literal, name, _, _ in Formatter().parse(template):
        yield literal, name
