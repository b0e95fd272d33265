"""Trees of plain values: walking, setting, and whether a canonical place exists under the options that were chosen."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin

from rlctl.adapters.engine.rules import ABSENT
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.fields import Choice, Interval
from rlctl.config.inspect import fields_of, sections_in
from rlctl.documents.paths import KeyPath, copied


def find(tree: Any, path: KeyPath) -> Any:
    """The value at a path; ABSENT where there is none."""
    for part in path:
        if isinstance(tree, dict) or isinstance(tree, Mapping):  # noqa: SIM101 - in one call, dicts take four times as long
            if part not in tree:
                return ABSENT
            tree = tree[part]
        elif isinstance(tree, (list, tuple)) and isinstance(part, int) and part < len(tree):
            tree = tree[part]
        else:
            return ABSENT
    return tree


def put(tree: MutableMapping[Any, Any], path: KeyPath, value: Any) -> None:
    """Set a value's copy at a path, making mappings and lists on the way; an integer part is a list's index.

    A copy, because what is put is often a table's default, and what is in the tree is filled further.
    """
    place: Any = tree
    for part, after in itertools.pairwise(path):
        place = _inner(place, part, [] if isinstance(after, int) else {})
    last = path[-1]
    if isinstance(place, list):
        assert isinstance(last, int)
        place.extend([None] * (last + 1 - len(place)))
    place[last] = copied(value) if isinstance(value, (dict, list)) else value


def _inner(place: Any, part: Any, empty: Any) -> Any:
    if isinstance(place, list):
        place.extend([None] * (part + 1 - len(place)))
        if place[part] is None:
            place[part] = empty
        return place[part]
    found = place.get(part)
    if not isinstance(found, (dict, list)) or (isinstance(found, list) and isinstance(empty, dict)):
        place[part] = empty
    return place[part]


def remove(tree: MutableMapping[Any, Any], path: KeyPath) -> None:
    """Remove a value, and the mappings that hold nothing without it."""
    if len(path) > 1 and isinstance(tree.get(path[0]), MutableMapping):
        remove(tree[path[0]], path[1:])
        if not tree[path[0]]:
            del tree[path[0]]
    elif len(path) == 1:
        tree.pop(path[0], None)


CHOICES: tuple[KeyPath, ...] = (
    ("buffer",),
    ("algorithm", "objective"),
    ("algorithm", "advantage"),
    ("algorithm", "policy_loss"),
    ("train", "engine"),
    ("rollout", "engine"),
)
"""Settings that are a type and its options."""
ROLE_ENGINES: tuple[KeyPath, ...] = (("reference", "engine"), ("critic", "engine"))
"""Choices that follow ``train.engine`` if nothing is said."""


def type_choices(tree: MutableMapping[Any, Any]) -> None:
    """Give each choice that holds options and no type the type it has by default."""
    for path in CHOICES:
        section = find(tree, path)
        default: Any = Config()
        for part in path:
            default = getattr(default, str(part))
        if isinstance(section, MutableMapping) and "type" not in section:
            section["type"] = default.choice
    engine = find(tree, ("train", "engine", "type"))
    for role in ("reference", "critic"):
        section = find(tree, (role, "engine"))
        if isinstance(section, MutableMapping) and "type" not in section:
            section["type"] = "fsdp2" if engine is ABSENT else engine


@dataclass(frozen=True, slots=True)
class Gate:
    """A section on the way to a canonical key that may be missing: null, or another option of a choice."""

    depth: int
    null: bool
    """Whether it is null unless it is set."""
    tag: str
    """The key with the option's name; empty where it is no choice."""
    options: frozenset[str]
    """The options under which the key exists."""
    default: str
    choice: type[Choice] | None = None


def missing_section(path: KeyPath, tree: Mapping[str, Any]) -> str:
    """Why a canonical place does not exist under what ``tree`` chooses: a null section, another option; empty if it does."""
    found = gates(tuple("*" if isinstance(part, int) else part for part in path))
    if found is None:
        return "there is no such key"
    for gate in found:
        value = find(tree, path[: gate.depth])
        where = ".".join(str(part) for part in path[: gate.depth])
        if value is None or (value is ABSENT and gate.null):
            return said("{where} is null", where=where)
        if gate.tag:
            name = value.get(gate.tag, gate.default) if isinstance(value, Mapping) else gate.default
            chosen = gate.choice.option(name) if gate.choice is not None else None
            if (chosen[0] if chosen is not None else name) not in gate.options:
                return said("{where} is {name}, which has no {path}", where=where, name=name, path=path[gate.depth])
    return ""


@cache
def gates(path: KeyPath) -> tuple[Gate, ...] | None:
    """The gates on the way to a canonical key, its list indexes as ``*``; None where the schema has no such key."""
    return _gates(Config, path, 0)


def _gates(cls: type, path: KeyPath, depth: int) -> tuple[Gate, ...] | None:
    """The gates below a section from ``path[depth]`` on."""
    if depth == len(path) or path[depth] == getattr(cls, "tag", None):
        return ()
    info = fields_of(cls).get(str(path[depth]))
    if info is None:
        return None
    return _through(info.type, info.default, path, depth + 1)


@cache
def _kinds_of(hint: Any) -> tuple[bool, Any, Any]:
    """Whether a type may be null, and the types of its items, if it is a list, and of its values, if it is a mapping."""
    origin, held = get_origin(hint), get_args(hint)
    null = type(None) in held and origin in (Union, types.UnionType)
    return null, held[0] if origin is tuple else None, held[1] if origin is dict else None


def _through(hint: Any, default: Any, path: KeyPath, depth: int) -> tuple[Gate, ...] | None:
    if depth == len(path):
        return ()
    null, items, values = _kinds_of(hint)
    if items is not None and path[depth] == "*":
        return _through(items, None, path, depth + 1)
    if values is not None:
        return _through(values, None, path, depth + 1)
    held = [found for found, _ in sections_in(hint)]
    if not held or Interval in held:
        return ()
    own = (Gate(depth, default is None, "", frozenset(), ""),) if null else ()
    if issubclass(held[0], Choice):
        return _options(held[0], default, path, depth, own)
    below = _gates(held[0], path, depth)
    return None if below is None else own + below


def _options(
    choice: type[Choice], default: Any, path: KeyPath, depth: int, own: tuple[Gate, ...]
) -> tuple[Gate, ...] | None:
    if path[depth] == choice.tag:
        return own
    under = {name: _gates(option, path, depth) for name, option in choice.registry.items()}
    known = {name: below for name, below in under.items() if below is not None}
    if not known:
        return None
    usual = default.choice if isinstance(default, Choice) else ""
    gate = Gate(depth, False, choice.tag, frozenset(known), usual, choice)
    return (*own, gate, *max(known.values(), key=len))


GONE: Any = object()
"""In place of a value: the key is no longer there."""


def changed_leaves(before: Any, after: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """The keys of two trees that say something else, or nothing any more (``GONE``), with their new value."""
    if isinstance(after, Mapping) and after and before is GONE:
        before = {}
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            yield from changed_leaves(before.get(key, GONE), after.get(key, GONE), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from changed_leaves(old, new, (*path, index))
    elif type(before) is not type(after) or before != after:
        yield path, after
