"""What is known of one key, for a person who asks: ``rlctl explain``, the TUI's help.

A key is asked for as it stands in a file (``data.train[0].path``), after ``--set``, or by its pattern
(``data.train[].path``, ``algorithm.advantage<grpo>.epsilon``).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.config.chinese import key_help, option_help
from rlctl.config.dump import to_plain
from rlctl.config.fields import Choice
from rlctl.config.inspect import FieldInfo, KeyInfo, fields_of, help_of, sections_in, type_text, walk
from rlctl.config.root import Config

_TOKEN = re.compile(r"\.?(?P<name>[^.\[\]<>{}]+)|(?P<item>\[[^\]]*\]|\{[^}]*\})|<(?P<option>[^<>]+)>")
Token = tuple[str, str]
"""What a part of a key is (``name``, ``item`` or ``option``), and its text."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a choice, by its name."""

    name: str
    pattern: str
    """``algorithm.advantage<grpo>``."""
    help: str
    keys: tuple[str, ...]
    """Patterns of the keys that come with it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a key of the canonical config."""

    pattern: str
    """``data.train[].path``, ``algorithm.advantage<grpo>.epsilon``."""
    path: str
    """As written after ``--set``."""
    help: str
    type: str
    default: str
    """As YAML would have it; empty where the key must be set."""
    unit: str
    range: str
    required: bool
    secret: bool
    options: tuple[Option, ...] = ()
    """Of a choice, the names it can take."""
    below: tuple[str, ...] = ()
    """Of a section, the patterns of its keys."""
    also: tuple[str, ...] = ()
    """Patterns of other options' keys that are written the same way."""


def explain(key: str) -> Explanation:
    """Explain a key.

    Raises:
        ConfigError: there is no such key; the hint names the nearest.
    """
    patterns = _find(Config, _tokens(key), "")
    if not patterns:
        near = nearest_keys(key)
        raise ConfigError(
            said("there is no key {key!r}", key=key),
            hint=said("did you mean {near}?", near=", ".join(near)) if near else "'rlctl schema' prints every key",
        )
    first, *others = patterns
    return _explanation(_keys()[first], tuple(others))


def nearest_keys(key: str, *, limit: int = 3) -> list[str]:
    """The known keys closest to one that is not: those that end so, then those spelled alike."""
    paths = dict.fromkeys(key.path for key in _keys().values())
    plain = "".join(text if kind == "name" else "" for kind, text in _tokens(key)[-1:])
    ending = [path for path in paths if plain and path.rsplit(".", 1)[-1] == plain]
    alike = difflib.get_close_matches(key, paths, n=limit, cutoff=0.6)
    near = difflib.get_close_matches(plain, {path.rsplit(".", 1)[-1] for path in paths}, n=1, cutoff=0.75)
    alike += [path for path in paths if (last := path.rsplit(".", 1)[-1]) in near or (len(plain) > 3 and plain in last)]
    ending.sort(key=lambda path: -difflib.SequenceMatcher(None, key, path).ratio())
    return list(dict.fromkeys([*ending, *alike]))[:limit]


@cache
def _keys() -> dict[str, KeyInfo]:
    return {key.pattern: key for key in walk(Config)}


def _tokens(key: str) -> list[Token]:
    return [(str(match.lastgroup), match[str(match.lastgroup)]) for match in _TOKEN.finditer(key.strip())]


def _find(cls: type, tokens: Sequence[Token], prefix: str) -> list[str]:
    """The patterns below a section that the tokens name."""
    if not tokens or tokens[0][0] != "name":
        return []
    info = fields_of(cls).get(tokens[0][1])
    if info is None:
        return []
    pattern = f"{prefix}{info.name}"
    rest = _after_items(info, tokens[1:])
    if not rest:
        return [pattern]
    return [found for held, suffix in sections_in(info.type) for found in _inside(held, rest, f"{pattern}{suffix}")]


def _inside(held: type, tokens: Sequence[Token], pattern: str) -> list[str]:
    if not _is_choice(held):
        return _find(held, tokens, f"{pattern}.")
    if tokens[0] == ("name", held.tag):
        return [re.sub(r"(\[\]|\{\})$", "", pattern)] if len(tokens) == 1 else []
    kind, name = tokens[0]
    rest = tokens[1:] if kind == "option" else tokens
    found = held.option(name) or ((name, held.registry[name]) if name in held.registry else None)
    if kind == "option" and found is None:
        return []
    options = dict([found]) if kind == "option" and found is not None else held.registry
    if not rest:
        return [re.sub(r"(\[\]|\{\})$", "", pattern)]
    return [found for option, cls in options.items() for found in _find(cls, rest, f"{pattern}<{option}>.")]


def _after_items(info: FieldInfo, tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens after those that only pick an item of a list or a mapping."""
    while tokens and tokens[0][0] == "item":
        tokens = tokens[1:]
    kinds = {suffix for _, suffix in sections_in(info.type)}
    if kinds == {"{}"} and len(tokens) > 0 and tokens[0][0] == "name":
        held = sections_in(info.type)[0][0]
        return tokens if tokens[0][1] in fields_of(held) else tokens[1:]
    if kinds == {"[]"} and tokens and tokens[0][0] == "name" and tokens[0][1].isdecimal():
        return tokens[1:]
    return tokens


def _explanation(key: KeyInfo, also: tuple[str, ...]) -> Explanation:
    info = key.info
    return Explanation(
        pattern=key.pattern,
        path=key.path,
        help=key_help(key),
        type=shown_type(info),
        default="" if info.required else shown_default(default_of(key)),
        unit=info.unit,
        range=str(info.range) if info.range is not None else "",
        required=info.required,
        secret=info.secret,
        options=tuple(_options(key)),
        below=tuple(_below(key)),
        also=also,
    )


def _is_choice(held: type) -> TypeGuard[type[Choice]]:
    return issubclass(held, Choice)


def shown_type(info: FieldInfo) -> str:
    """The type of a field as a person would say it; a section is a section, whatever its class is called."""
    held = [cls for cls, _ in sections_in(info.type) if not _is_choice(cls)]
    text = type_text(info.type)
    for cls in held:
        text = re.sub(rf"\b{cls.__name__.lower()}\b", "section", text)
    return text


def shown_default(value: Any) -> str:
    """A default as YAML in one line; a section that changes none of its own defaults is ``{}``."""
    return _inline(to_plain(value, sparse=True))


def default_of(key: KeyInfo) -> Any:
    """The value of a key that a file does not set: its own default, or the one that the section above it sets."""
    above = key.pattern.rpartition(".")[0]
    parent = _keys().get(re.sub(r"(\[\]|\{\})?(<[^<>]*>)?$", "", above))
    outer = default_of(parent) if parent is not None else None
    return getattr(outer, key.info.attribute) if type(outer) is key.owner else key.info.default


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z_./][\w./+-]*", value) and value not in _WORDS else json.dumps(value)
    return json.dumps(value)


_WORDS = {"null", "true", "false", "yes", "no", "on", "off"}


def _choices(info: FieldInfo) -> Iterable[tuple[type[Choice], str]]:
    return [(cls, suffix) for cls, suffix in sections_in(info.type) if _is_choice(cls)]


def _options(key: KeyInfo) -> Iterable[Option]:
    for setting, suffix in _choices(key.info):
        options: Mapping[str, type] = setting.registry
        for name, cls in options.items():
            pattern = f"{key.pattern}{suffix}<{name}>"
            yield Option(name, pattern, option_help(cls), tuple(f"{pattern}.{field}" for field in help_of(cls)))


def _below(key: KeyInfo) -> Iterable[str]:
    for cls, suffix in sections_in(key.info.type):
        if not _is_choice(cls):
            yield from (f"{key.pattern}{suffix}.{name}" for name in fields_of(cls))
