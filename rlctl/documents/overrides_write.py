"""Values to Hydra overrides: what is to be changed, key by key, in Hydra's own grammar."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlctl.common.errors import DocumentError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.documents.paths import KeyPath, dotted

_KEY = re.compile(r"[A-Za-z_$][\w$-]*|0|[1-9]\d*", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z_./][\w./+@%*-]*", re.ASCII)
_KEY_TEXT = re.compile(r"(?:\\.|[\w/\-+.$%*@?|])+", re.ASCII)
_RESERVED = re.compile(r"true|false|null|[-+]?(?:inf|nan)|[-+.]?\d[\d_.]*(?:e[-+]?\d+)?|\.", re.IGNORECASE)
_INTERPOLATION = re.compile(r"\$\{[^{}'\"\\]+\}")
_BACKSLASHES = re.compile(r"(\\+)(?=['\"]|\Z)")

Spell = Callable[[str], str]
"""How a text is spelled as a value: plain, or in quotes."""


@record
class Change:
    """An override to write."""

    path: KeyPath
    value: Any
    prefix: str = ""
    """``+`` to add a key, ``++`` to add or set it, nothing to set one that is there."""

    @property
    def key(self) -> str:
        """The key with its prefix, as it stands before ``=``."""
        return self.prefix + ".".join(str(part) for part in self.path)

    def text(self, spell: Spell | None = None) -> str:
        """The whole override."""
        return f"{self.key}={hydra_value(self.value, spell or hydra_string)}"


def changes(values: Mapping[Any, Any], prefix: Callable[[KeyPath], str] = lambda path: "") -> Iterator[Change]:
    """An override for each leaf of a tree, in order; a mapping with keys that no path can name is one leaf.

    Raises:
        DocumentError: a key at the top cannot be written as an override.
    """
    for path, value in _leaves(values, ()):
        if not all(_KEY.fullmatch(str(part)) for part in path):
            raise DocumentError(
                said("'{path}' cannot be written as an override", path=dotted(path)), hint="write YAML: --format yaml"
            )
        yield Change(path, value, prefix(path))


def _leaves(values: Mapping[Any, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        place = (*path, key)
        if isinstance(value, Mapping) and value and all(_KEY.fullmatch(str(inner)) for inner in value):
            yield from _leaves(value, place)
        else:
            yield place, value


def hydra_value(value: Any, spell: Spell | None = None) -> str:
    """A value in Hydra's grammar: ``null``, ``True``, ``1e-6``, ``[a,b]``, ``{k:v}``.

    Raises:
        DocumentError: the grammar has no form for a key in it.
    """
    text = spell or hydra_string
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_dict_key(key)}:{hydra_value(item, text)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(hydra_value(item, text) for item in value) + "]"
    return text(str(value))


def _float(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return str(value)
    digits, exponent, power = repr(value).partition("e")
    return f"{digits.removesuffix('.0')}e{int(power)}" if exponent else digits


def _dict_key(key: Any) -> str:
    text = str(key)
    escaped = re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", text)
    reserved = _RESERVED.fullmatch(text) and not isinstance(key, int)
    if reserved or not _KEY_TEXT.fullmatch(escaped):
        raise DocumentError(
            said("the key {text!r} cannot be written as an override", text=text), hint="write YAML: --format yaml"
        )
    return escaped


def hydra_string(text: str) -> str:
    """A text as it stands where nothing misreads it, else in quotes."""
    if _PLAIN.fullmatch(text) and not _RESERVED.fullmatch(text):
        return text
    if _INTERPOLATION.fullmatch(text):
        return text
    return hydra_quoted(text, "'" if '"' in text and "'" not in text else '"')


def hydra_quoted(text: str, quote: str) -> str:
    """A text in quotes of one kind; backslashes are doubled only where a quote follows, as Hydra reads them."""
    return quote + hydra_escaped(text, quote) + quote


def hydra_escaped(text: str, quote: str) -> str:
    """The text between the quotes, with quotes and backslashes escaped as Hydra reads them."""
    doubled = _BACKSLASHES.sub(lambda match: _doubled(match, text, quote), text)
    return doubled.replace(quote, f"\\{quote}")


def _doubled(match: re.Match[str], text: str, quote: str) -> str:
    after = text[match.end() : match.end() + 1]
    return match[1] * 2 if after in ("", quote) else match[1]
