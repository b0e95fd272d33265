"""Values to YAML text that reads like a person wrote it, and that every YAML loader reads back as the same values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.common.terminal import UNSEEN
from rlctl.documents.document import Comment, holds_mapping
from rlctl.documents.paths import KeyPath, dotted
from rlctl.documents.scalars import needs_quotes

WIDTH = 120
"""A list stands on one line where the line stays within this many characters."""
_INDENT = 2
_MAX_DEPTH = 100
_MAX_KEY = 1000  # a YAML reader gives up on a key of more than 1024 characters
_PLAIN = re.compile(r"(?:[^\W_]|[_/.$(^\\+~<=;])(?:[^\x00-\x20\x7f-\xa0:#]|:(?=[^\s])|(?<=[^\s])#| (?=[^\s#]))*")
_FLOW_UNSAFE = re.compile(r"[\[\]{},:?]")
_UNPRINTABLE = re.compile(rf"[\t\ud800-\udfff\ufffe\uffff]|{UNSEEN.pattern}")
_BLOCK = re.compile(r"[^\s](?:[^\n]|\n(?! +(?:\n|\Z)))*\n*")
_BREAKS = re.compile(rf"(?:[\n\ud800-\udfff\ufffe\uffff]|{UNSEEN.pattern})+")


def write_yaml(
    values: Mapping[Any, Any],
    *,
    comments: Mapping[KeyPath, Comment] | None = None,
    head: Sequence[str] = (),
    tail: Sequence[str] = (),
    as_comment: bool = False,
) -> str:
    """Return ``values`` as YAML, keys in their order.

    Args:
        values: Plain values; tuples are written as lists and enums as their values.
        comments: What to put above and beside keys and list items. Under ``()`` stand the head and the tail of the
            document, where ``head`` and ``tail`` are not given.
        head: Comment lines that start the text.
        tail: Comment lines that end it.
        as_comment: The lines become comments, which lose blank lines and blanks at their ends: strings that have them are quoted.

    Raises:
        DocumentError: a value YAML has no form for, a key that is not a valid name, or a tree deeper than 100 levels.
    """
    check_depth(values, ())
    notes = comments or {}
    document = notes.get((), Comment())
    lines: list[str] = []
    if top := list(head or document.above):
        lines += [*(comment_line(line) for line in top), ""]
    Emitter(notes, lines, as_comment=as_comment).mapping(values, (), 0)
    if bottom := list(tail or document.below):
        lines += ["", *(comment_line(line) for line in bottom)]
    return "\n".join(lines) + "\n"


def comment_line(text: str) -> str:
    """Return one line of comment; line breaks and control characters in it become blanks. Empty stays empty."""
    flat = _BREAKS.sub(" ", text).rstrip()
    return flat and (f"#{flat}" if flat.startswith("#") else f"# {flat}")


class Emitter:
    """Appends lines of block-style YAML."""

    def __init__(self, comments: Mapping[KeyPath, Comment], lines: list[str], *, as_comment: bool = False) -> None:
        self.comments = comments
        self.lines = lines
        self.as_comment = as_comment
        self._commented = {path[:length] for path in comments for length in range(len(path))}

    def mapping(self, values: Mapping[Any, Any], path: KeyPath, indent: int) -> None:
        """Append the entries of a mapping at ``indent``, or ``{}``."""
        if not values:
            self.lines.append(" " * indent + "{}")
        for key, value in values.items():
            place = (*path, key)
            self._above(place, indent)
            self.node(f"{' ' * indent}{key_text(key, place)}:", value, place, indent)

    def node(self, start: str, value: Any, path: KeyPath, indent: int) -> None:
        """Append ``start`` and the value after it, on the same line or below."""
        beside = self._beside(path)
        if isinstance(value, Mapping) and value:
            self.lines.append(start + beside)
            self.mapping(value, path, indent + _INDENT)
        elif is_list(value) and value and self._needs_lines(value, path, len(start)):
            self.lines.append(start + beside)
            self.items(value, path, indent + _INDENT)
        elif isinstance(value, str) and (block := self._block(value, indent + _INDENT)) is not None:
            header, *body = block
            self.lines += [f"{start} {header}{beside}", *body]
        else:
            self.lines.append(f"{start} {inline_text(value, path, in_flow=False)}{beside}")

    def _block(self, value: str, indent: int) -> list[str] | None:
        lines = block_text(value, indent)
        trimmed = self.as_comment and any(not line or line.endswith((" ", "\t")) for line in lines or ())
        return None if trimmed else lines

    def items(self, values: Sequence[Any], path: KeyPath, indent: int) -> None:
        """Append the items of a list at ``indent``."""
        for index, value in enumerate(values):
            place = (*path, index)
            self._above(place, indent)
            start = " " * indent + "-"
            nested = isinstance(value, Mapping) or (is_list(value) and self._needs_lines(value, place, len(start)))
            if not value or not nested or self.comments.get(place, Comment()).beside:
                self.node(start, value, place, indent)
                continue
            first = len(self.lines)
            if isinstance(value, Mapping):
                self.mapping(value, place, indent + _INDENT)
            else:
                self.items(value, place, indent + _INDENT)
            self._join(first, start, indent)

    def _join(self, first: int, start: str, indent: int) -> None:
        """Put the dash before the first line of its item, unless a comment stands there."""
        if self.lines[first].lstrip().startswith("#"):
            self.lines.insert(first, start)
        else:
            self.lines[first] = f"{start} {self.lines[first][indent + _INDENT :]}"

    def _needs_lines(self, values: Sequence[Any], path: KeyPath, used: int) -> bool:
        plain = _as_plain(values)
        if holds_mapping(plain) or path in self._commented or any("\n" in item for item in _strings(plain)):
            return True
        return used + 1 + len(inline_text(values, path, in_flow=False)) > WIDTH

    def _above(self, path: KeyPath, indent: int) -> None:
        if (comment := self.comments.get(path)) is not None:
            for line in comment.above:
                self.lines.append((" " * indent + comment_line(line)).rstrip())

    def _beside(self, path: KeyPath) -> str:
        comment = self.comments.get(path)
        line = comment_line(comment.beside) if comment is not None else ""
        return f"  {line}" if line else ""


def check_depth(value: Any, path: KeyPath) -> None:
    """Refuse a tree of more than 100 levels, and so one that holds itself."""
    if len(path) > _MAX_DEPTH:
        raise DocumentError(
            said("'{path}' is nested deeper than {most} levels", path=dotted(path[:3]), most=_MAX_DEPTH)
        )
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if is_list(value) else ()
    for key, item in items:
        check_depth(item, (*path, key))


def is_list(value: Any) -> bool:
    """Return whether a value is written as a list."""
    return isinstance(value, list | tuple)


def key_text(key: Any, path: KeyPath) -> str:
    """Return a key as it stands before the colon."""
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise DocumentError(
            said(
                "the key {key!r} of '{path}' is {kind}; expected a string",
                key=key,
                path=dotted(path[:-1]),
                kind=type(key).__name__,
            )
        )
    text = inline_text(key, path, in_flow=True)
    if len(text) > _MAX_KEY:
        raise DocumentError(
            said("a key of {count} characters cannot be written; at most {most}", count=len(text), most=_MAX_KEY)
        )
    return text


def inline_text(value: Any, path: KeyPath, *, in_flow: bool) -> str:
    """Return a value on one line; collections in flow style.

    Raises:
        DocumentError: YAML has no form for it.
    """
    if isinstance(value, Mapping):
        pairs = (f"{key_text(k, (*path, k))}: {inline_text(v, (*path, k), in_flow=True)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if is_list(value):
        return "[" + ", ".join(inline_text(v, (*path, i), in_flow=True) for i, v in enumerate(value)) + "]"
    return _scalar_text(value.value if isinstance(value, Enum) else value, path, in_flow=in_flow)


def _scalar_text(value: Any, path: KeyPath, *, in_flow: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return string_text(value, path, in_flow=in_flow)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, int):
        try:
            return int.__repr__(value)
        except ValueError:
            raise DocumentError(
                said("'{path}' is an integer with too many digits to write", path=dotted(path))
            ) from None
    raise DocumentError(
        said("'{path}' is of type {kind}, which YAML cannot represent", path=dotted(path), kind=type(value).__name__),
        hint="expected a mapping, a list, a string, a number, true, false or null",
    )


def float_text(value: float) -> str:
    """Return a float with a dot and a signed exponent, as YAML 1.1 loaders want it: ``1.0e-06``."""
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    digits, exponent, power = float.__repr__(value).partition("e")
    return digits + ("" if "." in digits else ".0") + exponent + power


def string_text(value: str, path: KeyPath = (), *, in_flow: bool) -> str:
    """Return a string on one line: plain where no loader would misread it, else in quotes."""
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise DocumentError(
            said("'{path}' contains a lone surrogate, which is not valid text", path=dotted(path)),
            at=Location(dotted(path)),
        )
    if (value == "???" and not in_flow) or _is_plain(value, in_flow=in_flow):
        return value
    if "\n" in value or _UNPRINTABLE.search(value):
        return _UNPRINTABLE.sub(_escape, json.dumps(value, ensure_ascii=False))
    if ("\\" in value or '"' in value) and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: str, *, in_flow: bool) -> bool:
    if not _PLAIN.fullmatch(value) or needs_quotes(value) or _UNPRINTABLE.search(value):
        return False
    return not (in_flow and _FLOW_UNSAFE.search(value))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def block_text(value: str, indent: int) -> list[str] | None:
    """Return a string of several lines as a literal block, its header first; None where that would not be exact."""
    if "\n" not in value.rstrip("\n") or not _BLOCK.fullmatch(value) or _UNPRINTABLE.search(value):
        return None
    body = value.rstrip("\n")
    ends = len(value) - len(body)
    header = "|" + ("-" if ends == 0 else "" if ends == 1 else "+")
    return [header, *(line and " " * indent + line for line in body.split("\n")), *[""] * (ends - 1)]


def _as_plain(values: Sequence[Any]) -> list[Any]:
    return [_as_plain(v) if is_list(v) else {} if isinstance(v, Mapping) else v for v in values]


def _strings(values: list[Any]) -> list[str]:
    nested = [text for value in values if isinstance(value, list) for text in _strings(value)]
    return [value for value in values if isinstance(value, str)] + nested
