"""A dialect's table for one kind of file: its rules and notes, indexed by key; defaults by version."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    Absent,
    DefaultFrom,
    DialectKey,
    Dropped,
    FromSchema,
    Key,
    Noted,
    Rule,
    Same,
    Version,
    flat,
    matches,
    split,
    version_of,
)
from rlctl.adapters.engine.schema import Composition, Schema
from rlctl.documents.paths import KeyPath, copied
from rlctl.documents.scalars import plain_value

_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([A-Za-z_][\w.]*)(?:,([^${}]*|\{\}))?\}")
"""A default that is the value of another key, of which ``oc.select`` says what it is where that key is not there."""


TO_BE_SET = "???"
"""The default of a key that has to be set."""
UNSAID = (None, "None")
"""Defaults that leave a value to the framework's code; verl's Megatron config of 0.4 spells null ``None``."""


def generic(path: Sequence[Any]) -> KeyPath:
    """A path with ``*`` for every list index, as tables name it."""
    return tuple(["*" if isinstance(part, int) else part for part in path])


@dataclass(frozen=True, eq=False)
class Table:
    """The rules of one kind of file in one dialect. Each is its own: two of the same rules are not one."""

    rules: tuple[Rule, ...]
    notes: tuple[Noted, ...] = ()
    schema: Schema = field(default_factory=Schema)
    """The keys that each release has, and their defaults; empty where the table itself is complete."""

    releases_with: frozenset[str] = frozenset()
    """The releases that have this kind of file; all of them where it is empty."""
    typed: bool = False
    """Whether the framework turns the text of a variable into the number that a key holds."""
    resolvers: frozenset[str] = frozenset()
    """The resolvers that expressions in a file may name, as ``oc.env``; all that Hydra has where it is empty."""
    unlisted: Mapping[str, str] = field(default_factory=dict)
    """Keys that may be set although the release's own config lacks them, as a recipe's config or a launcher has them, with the
    first release for which that holds; empty for all."""
    composition: Composition = field(default_factory=Composition)
    """What the framework composes its config for, which decides defaults."""

    @cached_property
    def index(self) -> dict[KeyPath, DialectKey]:
        """Every key that a rule reads, by generic path; the first rule that names it wins, for the releases of all that do."""
        found: dict[KeyPath, DialectKey] = {}
        for rule in self.rules:
            for key in rule.keys:
                before = found.get(key.path)
                found[key.path] = key if before is None else _joined(before, key)
        return found

    @cached_property
    def filled(self) -> list[tuple[Rule, list[KeyPath]]]:
        """Every rule, those inside others too, with the canonical keys that it fills."""
        return [
            (rule, [split(name.replace("[]", ".*").replace("{}", ".*")) for name in rule.canonical])
            for rule in flat(self.rules)
        ]

    @cached_property
    def plain(self) -> dict[str, str]:
        """Dialect key to canonical key, for keys whose value is the same on both sides."""
        same = [rule for rule in self.rules if isinstance(rule, Key) and isinstance(rule.convert, Same)]
        return {key.name: rule.to for rule in reversed(same) for key in reversed(rule.keys)}

    @cached_property
    def patterns(self) -> dict[Any, list[KeyPath]]:
        """The keys that hold a wildcard, by their first part."""
        found: dict[Any, list[KeyPath]] = {}
        for path in self.index:
            if "*" in path or "**" in path:
                found.setdefault(path[0], []).append(path)
        return found

    @cached_property
    def tops(self) -> frozenset[Any]:
        """The first parts of all keys that the table or a release knows."""
        noted = {note.path[0] for note in self.notes}
        return frozenset({path[0] for path in self.index} | noted) | self.schema.tops

    @cached_property
    def _notes_at(self) -> dict[KeyPath, list[Noted]]:
        return {}

    @cached_property
    def _roots(self) -> dict[Any, list[Noted]]:
        roots: dict[Any, list[Noted]] = {}
        for note in self.notes:
            roots.setdefault(note.path[0], []).append(note)
        return roots

    @cached_property
    def known_leaves(self) -> dict[str, dict[KeyPath, bool]]:
        """By release and place, whether the release has a leaf there: filled as places are asked for."""
        return {}

    @cached_property
    def misleads(self) -> bool:
        """Whether any note is on a reward, data or a loss that is not read."""
        return any(note.misleads for note in self.notes)

    @cached_property
    def dropped(self) -> dict[KeyPath, Dropped]:
        """Canonical keys that the dialect has nothing for."""
        found: dict[KeyPath, Dropped] = {}
        for rule in self.rules:
            if isinstance(rule, Dropped):
                found[tuple(rule.to.replace("[]", ".*").replace("{}", ".*").split("."))] = rule
        return found

    def key_at(self, path: KeyPath) -> DialectKey | None:
        """The table's key at a place in the text."""
        wanted = generic(path)
        exact = self.index.get(wanted)
        if exact is not None or wanted[0] not in self.patterns:
            return exact
        if wanted not in self._matched:
            found = (self.index[item] for item in self.patterns[wanted[0]] if matches(item, wanted))
            self._matched[wanted] = next(found, None)
        return self._matched[wanted]

    @cached_property
    def _matched(self) -> dict[KeyPath, DialectKey | None]:
        """The keys at places that a pattern may match: filled as places are asked for."""
        return {}

    def default_at(self, path: KeyPath, version: Version) -> Any:
        """The default of the key at a place; ABSENT where it has none, ``DefaultFrom`` where it follows another."""
        place = generic(path)
        key = self.index.get(place)
        if key is None:
            default = followed(self.schema.default(place, version, self.composition))
            return ABSENT if default == TO_BE_SET else default
        return self.default_of(key, place, version)

    def default_of(self, key: DialectKey, path: KeyPath, version: Version) -> Any:
        """What a rule's key is without a value: ABSENT where silence says nothing, else the composition's default.

        Where the composition leaves it to the framework's code, and the rule says what that does, it is the rule's own.
        """
        place, own = generic(path), key.default_in(version)
        if isinstance(own, Absent) or not self.has(key, place, version):
            return ABSENT
        default = followed(self.schema.default(place, version, self.composition))
        if default == TO_BE_SET:
            return ABSENT
        left_open = isinstance(default, Absent) or default in UNSAID
        if isinstance(own, FromSchema):
            return None if left_open and not isinstance(default, Absent) else default
        return own if left_open else default

    def has(self, key: DialectKey, path: KeyPath, version: Version) -> bool:
        """Whether a release has a key of a rule at a place; of one that no schema lists, the rule says what silence means."""
        place, release = generic(path), release_of(version)
        if not key.applies(version):
            return False
        releases = self.schema.releases_of_any(place[:-1] if place[-1] == "**" else place)
        if release in releases or self.schema.is_free(place, release):
            return True
        said_by_rule = not self.schema or key.path[-1] == "**" or not isinstance(key.default, FromSchema)
        if not releases and said_by_rule:
            return True
        return self.is_unlisted(place, version)

    def is_unlisted(self, place: KeyPath, version: Version) -> bool:
        """Whether a release takes a key that its config does not list."""
        found = (since for pattern, since in self.unlisted.items() if matches(split(pattern), place))
        return any(not since or version >= version_of(since) for since in found)

    def is_everywhere(self, path: KeyPath, version: Version) -> bool:
        """Whether every patch release composes a key at a place, or no schema can say."""
        place = generic(path)
        unknown = self.schema.releases(place) is None
        return unknown or self.schema.in_composition(place, release_of(version), self.composition, everywhere=True)

    def takes(self, path: KeyPath, version: Version, *, newest: bool = True) -> bool:
        """Whether what the newest patch release, or any, composes has a key, or no release does, so that no schema can say."""
        place, release = generic(path), release_of(version)
        releases = self.schema.releases(place)
        of_users = releases is not None and place not in self.schema and release in releases
        if of_users:
            return True
        if releases is None:
            key = self.index.get(place)
            return key is None or self.has(key, place, version)
        composed = self.schema.in_composition(place, release, self.composition, newest=newest)
        return composed or self.schema.is_free(place, release, self.composition) or self.is_unlisted(place, version)

    def composed_for(self, composition: Composition) -> Table:
        """The same table with the defaults of a composition. Made once, for it keeps what it worked out."""
        if composition not in self._composed:
            made = copy(self)  # with what was worked out of its rules, but not of its defaults
            made.__dict__.pop("_trees", None)
            object.__setattr__(made, "composition", composition)
            self._composed[composition] = made
        return self._composed[composition]

    @cached_property
    def _composed(self) -> dict[Composition, Table]:
        return {}

    def note_for(self, path: KeyPath, version: Version) -> Noted | None:
        """What the table says of a key without a rule; a note for this version before one for another."""
        wanted = generic(path)
        found = self._notes_at.get(wanted)
        if found is None:
            roots = (wanted[0], "*", "**")
            near = [note for root in roots for note in self._roots.get(root, ())]
            found = [note for note in near if note.path == wanted or ("*" in note.key and matches(note.path, wanted))]
            if self.schema and self.releases(path) is None:
                found = [note for note in found if note.free or note.kind != "carried" or note.path[-1] != "**"]
            self._notes_at[wanted] = found
        return next((note for note in found if note.applies(version)), found[0] if found else None)

    def dropped_at(self, canonical: KeyPath) -> Dropped | None:
        """The entry that says why a canonical key is dropped."""
        wanted = generic(canonical)
        exact = self.dropped.get(wanted)
        if exact is not None:
            return exact
        return next((rule for pattern, rule in self._dropped_below if matches(pattern, wanted)), None)

    @cached_property
    def _dropped_below(self) -> list[tuple[KeyPath, Dropped]]:
        """Those that stand for more keys than one."""
        return [(pattern, rule) for pattern, rule in self.dropped.items() if "*" in pattern or "**" in pattern]

    def knows(self, path: KeyPath, version: Version) -> bool:
        """Whether a release has a key or section at a place, whatever its default is."""
        if self.key_at(path) is not None or self.note_for(path, version) is not None:
            return True
        wanted = generic(path)
        return bool(self.schema.releases_of_any(wanted)) or any(known[: len(wanted)] == wanted for known in self.index)

    def is_section(self, path: KeyPath, version: Version, release: str) -> bool:
        """Whether a release has keys below a place."""
        place = generic(path)
        below = [key for key in self._below.get(place, ()) if len(key) > len(place)]
        return any(
            release in self.schema[key] if key in self.schema else self.index[key].applies(version) for key in below
        )

    @cached_property
    def _below(self) -> dict[KeyPath, list[KeyPath]]:
        """The keys below every section."""
        found: dict[KeyPath, list[KeyPath]] = {}
        for path in dict.fromkeys((*self.schema, *self.index)):
            for length in range(1, len(path)):
                found.setdefault(path[:length], []).append(path)
        return found

    def releases(self, path: KeyPath) -> frozenset[str] | None:
        """The releases that have the key; None where no list says."""
        return self.schema.releases(generic(path))

    def defaults_tree(self, version: Version) -> dict[str, Any]:
        """The dialect's defaults as a tree, for interpolations that name keys which the file lacks. Made once, not changed."""
        if version not in self._trees:
            self._trees[version] = self._defaults_tree(version)
        return self._trees[version]

    @cached_property
    def _trees(self) -> dict[Version, dict[str, Any]]:
        return {}

    def _defaults_tree(self, version: Version) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for path in self.index:
            value = self.default_at(path, version)
            if isinstance(value, (Absent, DefaultFrom)) or "*" in path or "**" in path:
                continue
            _put(tree, path, copied(value) if isinstance(value, (dict, list)) else value)
        return tree


class Tables(Mapping[str, Table]):
    """The tables of a dialect by kind of file, each made when it is first asked for: a file needs one or two of them."""

    def __init__(self, makers: Mapping[str, Callable[[], Table]]) -> None:
        self._makers = makers
        self._made: dict[str, Table] = {}

    def __getitem__(self, kind: str) -> Table:
        if kind not in self._made:
            self._made.setdefault(kind, self._makers[kind]())  # two threads that ask at once get the same one
        return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, kind: object) -> bool:
        return kind in self._makers


def _joined(before: DialectKey, key: DialectKey) -> DialectKey:
    """A key that two rules read: the first with a default, in the releases of both."""
    first, other = (key, before) if isinstance(before.default, Absent) else (before, key)
    since = min(first.since, other.since, key=version_of) if first.since and other.since else ""
    until = max(first.until, other.until, key=version_of) if first.until and other.until else ""
    return replace(first, takes=first.takes or other.takes, since=since, until=until)


def release_of(version: Version) -> str:
    """A version as a schema names it."""
    return ".".join(map(str, version))


def followed(default: Any) -> Any:
    """A default, or the key that it follows where it is a reference and no more."""
    found = _REFERENCE.fullmatch(default) if isinstance(default, str) else None
    if found is None:
        return ABSENT if isinstance(default, str) and "${" in default else default
    return DefaultFrom(found[1], ABSENT if found[2] is None else {} if found[2] == "{}" else plain_value(found[2]))


def _put(tree: dict[str, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        inner = tree.setdefault(str(part), {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree.setdefault(str(path[-1]), value)


def joined(*parts: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules of several areas, in order."""
    return tuple(rule for part in parts for rule in part)
