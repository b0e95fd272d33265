"""ROLL: the same rules under other role names, as its SFT and distillation files call the policy otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from rlctl.adapters.engine.rules import (
    DefaultFrom,
    DialectKey,
    Dropped,
    Flow,
    Noted,
    Out,
    Reading,
    Rule,
    Version,
    Writing,
)
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.documents.paths import KeyPath


def renamed(key: str, names: Mapping[str, str]) -> str:
    """A key of the table with its first part renamed."""
    first, dot, rest = key.partition(".")
    return names.get(first, first) + dot + rest


@record
class _Renamed:
    """A view of a text or a config in which roles are asked for by other names."""

    view: Any
    names: Mapping[str, str]

    @property
    def version(self) -> Version:
        return cast("Version", self.view.version)

    @property
    def options(self) -> Mapping[str, str]:
        return cast("Mapping[str, str]", self.view.options)

    def path(self, key: str) -> KeyPath:
        return cast("KeyPath", self.view.path(renamed(key, self.names)))

    def to(self, canonical: str) -> KeyPath:
        return cast("KeyPath", self.view.to(canonical))

    def inside(self, key: str | KeyPath, canonical: str | KeyPath) -> Any:
        return self.view.inside(renamed(key, self.names) if isinstance(key, str) else key, canonical)

    def default(self, key: DialectKey) -> Any:
        return self.view.default(_key(key, self.names))

    def has(self, key: DialectKey) -> bool:
        return bool(self.view.has(_key(key, self.names)))

    def is_everywhere(self, key: DialectKey) -> bool:
        return bool(self.view.is_everywhere(_key(key, self.names)))


@record
class _Read(_Renamed):
    """A text whose roles are asked for by other names."""

    def get(self, key: str, default: Any = None) -> Any:
        return self.view.get(renamed(key, self.names), default)

    def written(self, *keys: str) -> bool:
        return bool(self.view.written(*(renamed(key, self.names) for key in keys)))


@record
class _Write(_Renamed):
    """A file whose roles are written by other names."""

    @property
    def config(self) -> Config:
        return cast("Config", self.view.config)

    def get(self, canonical: str, *default: Any) -> Any:
        return self.view.get(canonical, *default)

    def explicit(self, *canonical: str) -> bool:
        return bool(self.view.explicit(*canonical))


def _key(key: DialectKey, names: Mapping[str, str]) -> DialectKey:
    default = DefaultFrom(renamed(key.default.key, names)) if isinstance(key.default, DefaultFrom) else key.default
    return replace(key, name=renamed(key.name, names), default=default)


@record
class Spelled(Rule):
    """A rule whose keys begin with other role names."""

    rule: Rule
    names: Mapping[str, str]

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return tuple(_key(key, self.names) for key in self.rule.keys)

    @property
    def canonical(self) -> tuple[str, ...]:
        return self.rule.canonical

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        return ((_key(key, self.names), name) for key, name in self.rule.pairs)

    def read(self, view: Reading) -> Iterable[Flow]:
        return self.rule.read(_Read(view, self.names))

    def write(self, view: Writing) -> Iterable[Out]:
        return self.rule.write(_Write(view, self.names))


@record
class Without(Rule):
    """A rule in a file that lacks some roles: nothing is read of them or written to them."""

    rule: Rule
    roles: frozenset[str]

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return tuple(key for key in self.rule.keys if key.name.partition(".")[0] not in self.roles)

    @property
    def canonical(self) -> tuple[str, ...]:
        return self.rule.canonical

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        return (pair for pair in self.rule.pairs if pair[0].name.partition(".")[0] not in self.roles)

    def read(self, view: Reading) -> Iterable[Flow]:
        return self.rule.read(view)

    def write(self, view: Writing) -> Iterable[Out]:
        for flow in self.rule.write(view):
            if isinstance(flow, Flow) and flow.to and flow.to[0] in self.roles:
                yield replace(flow, to=())
            else:
                yield flow


def without(rules: Iterable[Rule], *roles: str) -> list[Rule]:
    """Rules for a file that lacks some roles."""
    gone = frozenset(roles)
    return [
        Without(rule, gone) if any(key.name.partition(".")[0] in gone for key in rule.keys) else rule for rule in rules
    ]


def spelled(rules: Iterable[Rule], names: Mapping[str, str]) -> list[Rule]:
    """Rules with other role names; those that name no role are left as they are."""
    return [Spelled(rule, names) if _asks_for(rule, names) else rule for rule in rules]


def _asks_for(rule: Rule, names: Mapping[str, str]) -> bool:
    """Whether a rule has or reads keys of these roles, or has no keys at all, so that what it follows from may be theirs."""
    if not rule.keys:
        return not isinstance(rule, Dropped)
    keys = (*rule.keys, *(key for key, _ in rule.pairs))
    return any(key.name.partition(".")[0] in names for key in keys)


def spelled_notes(notes: Iterable[Noted], names: Mapping[str, str]) -> list[Noted]:
    """Notes with other role names."""
    return [replace(note, key=renamed(note.key, names)) if note.path[0] in names else note for note in notes]
