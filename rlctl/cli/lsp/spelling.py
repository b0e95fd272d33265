"""Other words for a key or a value that a release does not have: those that are spelled alike, else the default.

They need no config that can be read, which a text with several mistakes is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from rlctl.adapters.engine.rules import version_of
from rlctl.cli.lsp import keys
from rlctl.cli.lsp.texts import KeyAt, Span, Text
from rlctl.common.report import Finding

NEAR_KEY, NEAR_WORD = 0.75, 0.5
"""How alike two names of keys, or two words, are at least, as ``difflib`` counts."""
MOST = 3
"""Words that are offered."""
BAD_VALUES = frozenset({"bad-value", "out-of-range", "unknown-value"})
"""Findings that say that a value is none of its key's."""


def respelled(text: Text, item: Finding, name: str, kind: str) -> Iterator[str]:
    """The text with other words where a finding is, the likeliest first; whether they resolve it has to be checked.

    Args:
        text: that has the finding.
        item: the finding.
        name: dialect with release, as ``verl@0.9``.
        kind: of the framework's files that the text is; empty if that is not known.
    """
    key = text.find(item.key, near=item.at.line - 1) if item.at is not None and item.at.line else None
    if key is None:
        return
    parts = tuple(part for part in key.path if part != "*")
    siblings = keys.tree(name, kind).get(parts[:-1], ())
    if parts[-1] not in siblings:
        written = _at(text, key.span)
        start = written[: len(written) - len(parts[-1])]
        for near in get_close_matches(parts[-1], siblings, MOST, NEAR_KEY):
            yield _with(text, key.span, f"{start}{near}")
        return
    yield from (_with(text, place, word) for place, word in _values(text, item, key, name, kind))


def _values(text: Text, item: Finding, key: KeyAt, name: str, kind: str) -> Iterator[tuple[Span, str]]:
    place = _inside_quotes(text, key.value)
    written = _at(text, place)
    if not written or "$" in written:
        return
    words = keys.values(name, kind, key.name)
    near = get_close_matches(written.lower(), words, MOST, NEAR_WORD)
    yield from ((place, word) for word in near if word != written)
    if near or item.code not in BAD_VALUES:
        return
    framework, release = keys.split_name(name)
    if framework != "rlctl":
        default = keys.table(framework, kind).default_at(tuple(key.name.split(".")), version_of(release))
        if isinstance(default, bool | int | float):
            yield place, str(default).lower() if isinstance(default, bool) else str(default)


def _at(text: Text, place: Span) -> str:
    return text.lines[place.line][place.start : place.end]


def _inside_quotes(text: Text, place: Span) -> Span:
    written = _at(text, place)
    quoted = len(written) > 1 and written[0] == written[-1] and written[0] in "\"'"
    return Span(place.line, place.start + 1, place.end - 1) if quoted else place


def _with(text: Text, place: Span, word: str) -> str:
    """The text with another word at a place."""
    lines = text.content.splitlines(keepends=True)
    line = lines[place.line]
    lines[place.line] = f"{line[: place.start]}{word}{line[place.end :]}"
    return "".join(lines)
