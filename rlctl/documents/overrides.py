"""Overrides as Hydra's users write them: ``key=value``, ``+key=value``, ``++key=value``, ``~key``, ``group@package=choice``.

Hydra's own parser does the grammar; what an override may change is the adapters' question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.common.records import record
from rlctl.documents.document import Document
from rlctl.documents.paths import KeyPath, copied, dotted, merged

MAX_LENGTH = 20_000
"""The longest override that is read, in characters; Hydra's parser takes seconds for more."""
MAX_OVERRIDES = 5_000
_MAX_NESTING = 30
_KEY_PART = re.compile(r"[^.\[\]]+")
_EXPECTED = (
    "expected key=value, +key=value, ++key=value or ~key; put a value with special characters in quotes: key='a, b'"
)


@record
class Override:
    """A Hydra override, as written on a command line."""

    kind: Literal["set", "add", "force", "delete"]
    """``key=``, ``+key=``, ``++key=`` or ``~key``."""
    key: str
    """The key or config group as written, without prefix, package and value."""
    path: KeyPath
    """The key in parts, each a string; an index of a list is a string of digits."""
    value: Any
    """Plain values; interpolations stay strings. None for ``~key``."""
    text: str
    """The whole override as written."""
    at: Location
    """Where its value stands."""
    package: str | None = None
    """What follows ``@`` in ``group@package=choice``."""
    key_at: Location | None = None
    """Where its key stands, if not where its value does: in a script that may be a variable's."""

    @property
    def is_group(self) -> bool:
        """Whether it can only choose from a config group; ``model_engine=megatron`` looks like a key and is not told."""
        return self.package is not None or "/" in self.key


def read_overrides(
    lines: Iterable[str | tuple[str, Location] | tuple[str, Location, Location]], name: str
) -> list[Override]:
    """Read overrides in order.

    Args:
        lines: Each an override, alone or with the place of its value, and of its key if that is another; alone, its place is
            its number under ``name``.
        name: What the overrides are called in messages, such as ``command line``.

    Raises:
        DocumentError: one is no override, or is a sweep over several values.
    """
    placed = [(line, Location(name, number)) if isinstance(line, str) else line for number, line in enumerate(lines, 1)]
    if len(placed) > MAX_OVERRIDES:
        raise DocumentError(
            said("{count} overrides; rlctl reads at most {most}", count=len(placed), most=MAX_OVERRIDES),
            at=Location(name),
        )
    if not placed:
        return []
    read = [(_read_plain(text, at) or _read(_parser(), text, at), at, other) for text, at, *other in placed]
    return [replace(found, key_at=other[0]) if other and other[0] != at else found for found, at, other in read]


@cache
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


_PLAIN = re.compile(r"(\+{0,2})([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=(.+)", re.ASCII)
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)")
_WORD = re.compile(r"(?:[A-Za-z_/]|\.(?![0-9]))[\w/.\-]*", re.ASCII)
_WORDS = re.compile(r"[A-Za-z_/][\w/.\-]*(?: [\w/.\-]+)+", re.ASCII)
_QUOTED = re.compile(r"""'[^'"\\$]*'|"[^'"\\$]*\"""")
_ITEM = re.compile(r"""\s*('[^'"\\]*'|"[^'"\\]*"|[\w/.+\-]+)\s*(?:,|$)""", re.ASCII)
_VARIABLE = re.compile(r"\$\{oc\.env:[A-Za-z_]\w*(?:,[\w/.\-]+)?\}", re.ASCII)
_KINDS: Mapping[str, Literal["set", "add", "force"]] = {"": "set", "+": "add", "++": "force"}
_NAMED = {"true": True, "false": False, "null": None}
_FLOATS = ("inf", "nan")
"""Words that Hydra reads as numbers."""


def _read_plain(text: str, at: Location) -> Override | None:
    """An override of the usual form, as Hydra reads it; None for any other. Importing Hydra takes longer than a check."""
    match = _PLAIN.fullmatch(text)
    if match is None or len(text) > MAX_LENGTH:
        return None
    kind, key, written = match.groups()
    try:
        value = _list(written[1:-1]) if written[0] == "[" and written[-1] == "]" else _scalar(written)
    except ValueError:
        return None
    return Override(_KINDS[kind], key, tuple(key.split(".")), value, text, at)


def _list(text: str) -> list[Any]:
    """A list of numbers, words and quoted texts.

    Raises:
        ValueError: it has none, or others.
    """
    values, place = [], 0
    while match := _ITEM.match(text, place):
        values.append(_scalar(match[1]))
        place = match.end()
        if place == len(text):
            break
    if place < len(text) or not values or text.endswith(","):
        raise ValueError(text)
    return values


def _closed(text: str) -> str:
    """A quoted text with a letter for each variable that it names; outside of quotes, Hydra takes no default made of others."""
    if "$" not in text:
        return text
    while (less := _VARIABLE.sub("x", text)) != text:
        text = less
    return text


def _scalar(text: str) -> Any:
    """A number, a word or a quoted text; one may name variables of the environment.

    Raises:
        ValueError: it is none that is read here.
    """
    if text.lower() in _NAMED:
        return _NAMED[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _QUOTED.fullmatch(_closed(text)):
        return text[1:-1]
    plain = _VARIABLE.sub("x", text)
    if (_WORD.fullmatch(plain) or _WORDS.fullmatch(plain)) and text.lower() not in _FLOATS:
        return text
    raise ValueError(text)


def _read(parser: Any, text: str, at: Location) -> Override:
    parsed = _parse(parser, text, at)
    if parsed.is_sweep_override():
        raise DocumentError(
            said("the override {short} is a sweep over several values; one run takes one", short=_short(text)),
            at=at,
            hint="for a list write key=[a,b]; for a string with commas write key='a,b'",
        )
    kind: Literal["set", "add", "force", "delete"] = "set"
    if parsed.is_delete():
        kind = "delete"
    elif parsed.is_force_add():
        kind = "force"
    elif parsed.is_add():
        kind = "add"
    value = parsed.value()
    _check_keys(value, text, at)
    key = parsed.key_or_group
    if not key:
        raise DocumentError(
            said("the override {short} cannot be read: it names no key", short=_short(text)), at=at, hint=_EXPECTED
        )
    return Override(kind, key, tuple(_KEY_PART.findall(key)), value, text, at, parsed.package)


def _parse(parser: Any, text: str, at: Location) -> Any:
    from hydra.errors import HydraException

    if len(text) > MAX_LENGTH or _nesting(text) > _MAX_NESTING:
        limits = said(
            "rlctl reads at most {characters} characters and {levels} levels of brackets",
            characters=MAX_LENGTH,
            levels=_MAX_NESTING,
        )
        raise DocumentError(
            said("the override {short} is too long or nested too deep", short=_short(text)), at=at, hint=limits
        )
    try:
        return parser.parse_rule(text, "override")
    except HydraException as error:
        reason, column = _reason(error, text)
        where = said(" at character {number}", number=column + 1) if column is not None else ""
        raise DocumentError(
            said(
                "the override {short} cannot be read{where}: {reason}", short=_short(text), where=where, reason=reason
            ),
            at=at,
            hint=_EXPECTED,
        ) from None
    except (RecursionError, ValueError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DocumentError(
            said("the override {short} cannot be read: {reason}", short=_short(text), reason=reason),
            at=at,
            hint=_EXPECTED,
        ) from None


_ENDS = "the value ends too early"
_UNEXPECTED = re.compile(r"(?:extraneous|mismatched) input ('[^']*'|\S+) expecting")


def _reason(error: Exception, text: str) -> tuple[str, int | None]:
    """Return Hydra's complaint in one line, and the character it is about."""
    cause = error.__cause__
    token = getattr(cause, "offendingToken", None)
    column = getattr(token, "column", None) if token is not None else getattr(cause, "startIndex", None)
    if type(cause).__name__ == "LexerNoViableAltException":
        at = getattr(cause, "startIndex", 0)
        if text[at : at + 1] in "'\"":
            return "the quote is not closed", column
        return said("the character {character!r} needs quotes here", character=text[at : at + 1]), column
    if token is not None:
        return said("{token!r} is not expected here", token=token.text) if token.text != "<EOF>" else _ENDS, column
    if found := _UNEXPECTED.match(str(error)):
        return said("{token} is not expected here", token=found[1]), column
    reason = (str(error).splitlines() or ["it is empty"])[0].replace("'<EOF>'", "the end").replace("<EOF>", "the end")
    return reason, column


def _nesting(text: str) -> int:
    depth = deepest = 0
    for character in re.findall(r"[\[\](){}]", text):
        depth += 1 if character in "[({" else -1
        deepest = max(deepest, depth)
    return deepest


def _short(text: str) -> str:
    shown = text if len(text) <= 100 else f"{text[:80]}..."
    return repr(shown)


def _check_keys(value: Any, text: str, at: Location) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, bool) or not isinstance(key, str | int):
                hint = said("write it in quotes: '{key}'", key=key)
                raise DocumentError(
                    said("the key {key!r} in the override {short} is not a valid name", key=key, short=_short(text)),
                    at=at,
                    hint=hint,
                )
            _check_keys(item, text, at)
    elif isinstance(value, list):
        for item in value:
            _check_keys(item, text, at)


def apply_overrides(document: Document, overrides: Sequence[Override]) -> Document:
    """Return a new document with the overrides applied in order.

    As in Hydra, a mapping is merged into a mapping and anything else replaces what was there. Whether a key may be
    set or must be added is not asked here. Deleting what is not there changes nothing.

    Raises:
        DocumentError: an override chooses a config group, or its path runs through a list where no item is.
    """
    changed = replace(
        document,
        values=copied(document.values),
        marks=dict(document.marks),
        comments=dict(document.comments),
        key_marks=dict(document.key_marks),
    )
    for override in overrides:
        if override.is_group:
            raise DocumentError(
                said(
                    "the override {short} chooses from a config group, which this file does not have",
                    short=_short(override.text),
                ),
                at=override.at,
            )
        _apply(changed, override)
    added = {override.path for override in overrides if override.kind in ("add", "force")}
    appended = {override.path for override in overrides if override.kind == "add"}
    overridden = {override.path for override in overrides if override.kind == "set"}
    return replace(
        changed,
        added=document.added | added,
        appended=document.appended | appended,
        overridden=document.overridden | overridden,
    )


def _apply(document: Document, override: Override) -> None:
    container: Any = document.values
    path: KeyPath = ()
    for part in override.path[:-1]:
        key = _key_in(container, part, override)
        path = (*path, key)
        inside = container[key] if _has(container, key) else None
        if not isinstance(inside, dict | list):
            if override.kind == "delete":
                return
            _forget(document, path)
            inside = container[key] = {}
            document.marks[path] = override.at
        container = inside
    key = _key_in(container, override.path[-1], override)
    path = (*path, key)
    if override.kind == "delete":
        _delete(document, container, path, override)
        return
    document.key_marks.pop(path, None)
    if override.key_at is not None:
        document.key_marks[path] = override.key_at
    old = container[key] if _has(container, key) else None
    container[key] = merged(old, override.value)
    if isinstance(old, dict) and isinstance(override.value, dict):
        for inner, item in override.value.items():
            _mark(document, (*path, inner), item, override.at)
    else:
        _forget(document, path)
        _mark(document, path, override.value, override.at)


def _delete(document: Document, container: Any, path: KeyPath, override: Override) -> None:
    if isinstance(container, list):
        raise DocumentError(
            said("the override {short} deletes an item of a list", short=_short(override.text)),
            at=override.at,
            hint="write the list without the item: key=[a,b]",
        )
    if path[-1] not in container:
        return
    found = container[path[-1]]
    if override.value is not None and override.value != found:
        raise DocumentError(
            said(
                "the override {short} deletes a value that '{path}' does not have",
                short=_short(override.text),
                path=dotted(path),
            ),
            at=override.at,
            hint=said("write ~{key}", key=override.key),
        )
    del container[path[-1]]
    _forget(document, path)
    document.marks.pop(path, None)
    document.comments.pop(path, None)


def _key_in(container: Any, part: str | int, override: Override) -> str | int:
    if isinstance(container, list):
        number = natural(str(part))
        if number is not None and number < len(container):
            return number
        raise DocumentError(
            said(
                "the override {short} names item {part!r} of a list of {count}",
                short=_short(override.text),
                part=part,
                count=len(container),
            ),
            at=override.at,
            hint="items count from 0; to replace the list write key=[a,b]",
        )
    number = natural(str(part))
    return number if part not in container and number is not None and number in container else part


def _has(container: Any, key: str | int) -> bool:
    return isinstance(container, list) or key in container


def _forget(document: Document, path: KeyPath) -> None:
    """Drop the marks and comments below ``path``: they were those of a value that is gone."""
    size = len(path)
    for notes in (document.marks, document.comments):
        for old in [old for old in notes if len(old) > size and old[:size] == path]:
            del notes[old]


def _mark(document: Document, path: KeyPath, value: Any, at: Location) -> None:
    document.marks[path] = at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        _mark(document, (*path, key), item, at)
