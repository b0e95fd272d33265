"""The texts of a shell script as they are worked out: in pieces that know where they were written and what they depend on.

A piece from the environment keeps its symbol, ``${oc.env:NAME,default}``, beside the text it has here; one that cannot be
known without running something keeps the reason. One from a variable that holds a secret is its symbol and nothing else;
what is computed from it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlctl.common.errors import Location
from rlctl.common.messages.reasons import said
from rlctl.common.secrets import expression, is_secret

_PLAIN_DEFAULT = re.compile(r"[A-Za-z0-9_/.%@+:-]*")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text."""

    text: str
    """What it is here."""
    at: Location
    """Where it was written."""
    symbol: str = ""
    """How it is written so that the environment still decides it; empty where it is what it is."""
    names: frozenset[str] = frozenset()
    """The environment variables that it depends on."""
    unset: frozenset[str] = frozenset()
    """The unset variables and arguments that it was computed from, as empty texts."""
    problem: str = ""
    """Why it cannot be known by reading."""
    secret: str = ""
    """The variable whose secret it stands for; the text is the symbol then."""
    quoted: bool = True
    """Whether it stays one word: literal text, and expansions in quotes."""


Text = tuple[Piece, ...]


def literal(text: str, at: Location) -> Text:
    """A text that was written as it is."""
    return (Piece(text, at),) if text else ()


def unknown(problem: str, at: Location, *names: str) -> Text:
    """A text that reading alone does not tell; the variables that would decide it, if they were given."""
    return (Piece("", at, names=frozenset(names), problem=problem),)


def named(text: Text, name: str) -> Text:
    """A text whose unknown parts are decided by the variable that holds it, unless another one decides them."""
    return tuple(
        replace(piece, names=frozenset({name})) if piece.problem and not piece.names else piece for piece in text
    )


def unknown_items(problem: str, at: Location) -> list[Text]:
    """The items of an array that reading alone does not tell, neither their values nor their number."""
    return [unquoted(unknown(problem, at))]


def plain(text: Text) -> str:
    """The text as a string; pieces that are only known where the script runs are empty."""
    return "".join(piece.text for piece in text)


def symbolic(text: Text) -> str:
    """A text in which the environment still decides what it decides."""
    return "".join(piece.symbol or piece.text for piece in text)


def names(text: Text) -> frozenset[str]:
    """The environment variables that a text depends on."""
    return frozenset().union(*(piece.names for piece in text))


def unset(text: Text) -> frozenset[str]:
    """The unset variables that a text was computed from."""
    return frozenset().union(*(piece.unset for piece in text))


def problem(text: Text) -> Piece | None:
    """The first piece that is not known."""
    return next((piece for piece in text if piece.problem), None)


def hidden(text: Text) -> Piece | None:
    """The first piece that nothing can be computed from: it is not known, or it stands for a secret."""
    return next((_not_computed(piece) for piece in text if piece.problem or piece.secret), None)


def _not_computed(piece: Piece) -> Piece:
    if piece.problem:
        return piece
    why = said("it is computed from ${name}, which holds a secret", name=piece.secret)
    return replace(piece, text="", symbol="", secret="", names=frozenset(), problem=why)


def open_end(items: Sequence[Text]) -> tuple[int, Text] | None:
    """The first item of a list that the shell may split into any number of items, with its place; None if there is none."""
    for place, item in enumerate(items):
        if any(piece.problem and not piece.quoted for piece in item):
            return place, item
    return None


def changed(text: Text, result: str, at: Location) -> Text:
    """The result of an operation on a text: it loses its symbol and keeps the variables that it depends on."""
    if (piece := hidden(text)) is not None:
        return (piece,)
    place = text[0].at if text else at
    return (Piece(result, place, names=names(text), unset=unset(text)),)


def unquoted(text: Text) -> Text:
    """A text that came out of an expansion outside of quotes: it is split into words."""
    return tuple(replace(piece, quoted=False) for piece in text)


def quoted(text: Text) -> Text:
    """A text that stays one word."""
    return tuple(replace(piece, quoted=True) for piece in text)


def joined(texts: Sequence[Text], separator: str, at: Location) -> Text:
    """Several texts as one."""
    found: list[Piece] = []
    for index, text in enumerate(texts):
        found += (*literal(separator, at), *text) if index else text
    return tuple(found)


def from_environment(name: str, value: str, default: Text | None, at: Location) -> Text:
    """The text of an environment variable, or of its default; of a secret only the name."""
    if is_secret(name, value):
        return from_secret(name, default, at)
    below = "" if default is None else f",{_default(symbolic(default))}"
    place = default[0].at if default else at
    depends = frozenset({name}) | (names(default) if default else frozenset())
    return (Piece(value, place, f"${{oc.env:{name}{below}}}", depends),)


def from_secret(name: str, default: Text | None, at: Location) -> Text:
    """A placeholder for an environment variable that holds a secret; a default that is no secret itself is kept."""
    keeps = default is not None and not is_secret(name, plain(default)) and not hidden(default)
    symbol = f"${{oc.env:{name},{_default(symbolic(default))}}}" if keeps and default is not None else expression(name)
    return (Piece(expression(name), at, symbol, frozenset({name}), secret=name),)


def _default(text: str) -> str:
    if "${" in text or _PLAIN_DEFAULT.fullmatch(text):
        return text
    return "'" + text.replace("'", "\\'") + "'"


def words(text: Text) -> list[Text]:
    """A text split as the shell does, at blanks that came out of expansions."""
    found: list[list[Piece]] = []
    current: list[Piece] | None = None
    empty: list[Piece] = []
    """Variables that are not set, before a word or where there is none."""
    for piece in text:
        if piece.quoted or piece.problem:
            current, empty = [*(current or empty), piece], []
            continue
        parts = re.split(r"[ \t\n]+", piece.text)
        if len(parts) == 1:
            if piece.text or (piece.unset and current is not None):
                current, empty = [*(current or empty), piece], []
            elif piece.unset:
                empty.append(piece)
            continue
        for index, part in enumerate(parts):
            if index and current is not None:
                found.append(current)
                current = None
            empty = empty if not index else []
            if part:
                current, empty = [*(current or empty), replace(piece, text=part, symbol="")], []
    if current is not None:
        found.append(current)
    return [tuple(word) for word in found]
