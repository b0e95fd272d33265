"""What each canonical key is called in every dialect, and what a key of one of them means.

All of it is read from the tables; no dialect is known by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from rlctl.adapters import dialect, names
from rlctl.adapters.engine.lacking import lacking
from rlctl.adapters.engine.rules import (
    ABSENT,
    Absent,
    Chosen,
    DefaultFrom,
    DialectKey,
    Dropped,
    Key,
    Noted,
    Rule,
    VersionedDefault,
    flat,
    matches,
    split,
    version_of,
)
from rlctl.adapters.engine.schema import Composition
from rlctl.adapters.engine.table import Table, generic
from rlctl.common.messages.reasons import said, together
from rlctl.config import Config
from rlctl.config.inspect import sections_in, walk
from rlctl.documents import KeyPath

NOTED: Mapping[str, str] = {
    "carried": "kept, but not used: {reason}",
    "dead": "has no effect: {reason}",
    "unsupported": "unsupported: {reason}",
}


@dataclass(frozen=True)
class Spelling:
    """How one dialect says a canonical key, in one kind of its files."""

    dialect: str
    kinds: tuple[str, ...]
    keys: tuple[DialectKey, ...] = ()
    """None where the dialect has nothing for it."""
    how: str = "mapped"
    notes: tuple[str, ...] = ()
    """How the value changes, or why there is nothing."""

    def as_data(self) -> dict[str, Any]:
        found = [
            {"key": key.name, "default": default_text(key.default), "since": key.since, "until": key.until}
            for key in self.keys
        ]
        return {
            "dialect": self.dialect, "kinds": list(self.kinds), "keys": found, "how": self.how, "notes": list(self.notes)
        }  # fmt: skip


@dataclass(frozen=True)
class Meaning:
    """What a key of a dialect means."""

    dialect: str
    key: str
    kinds: tuple[str, ...]
    releases: tuple[str, ...] = ()
    """The releases that have it; empty where no list says."""
    default: Any = field(default_factory=Absent)
    canonical: tuple[str, ...] = ()
    """The canonical keys that it fills; none where it has no meaning elsewhere."""
    notes: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        return {
            "dialect": self.dialect,
            "key": self.key,
            "kinds": list(self.kinds),
            "releases": list(self.releases),
            "default": default_text(self.default),
            "canonical": list(self.canonical),
            "notes": list(self.notes),
        }


def others() -> tuple[str, ...]:
    """The dialects that have tables."""
    return tuple(name for name in names() if dialect(name).tables)


# From a canonical key to the dialects


def spellings(path: str) -> list[Spelling]:
    """How each dialect says a canonical key, kinds of file that say it alike together; ``path`` is without options' names."""
    found: list[Spelling] = []
    for name in others():
        alike: dict[str, Spelling] = {}
        for kind, table in dialect(name).tables.items():
            said = _said(name, kind, table, path)
            if said is not None:
                same = repr((said.keys, said.how, said.notes))
                alike[same] = replace(said, kinds=(*alike[same].kinds, kind)) if same in alike else said
        found += [item for item in alike.values() if item.keys] or list(alike.values())
    return found


def _said(name: str, kind: str, table: Table, path: str) -> Spelling | None:
    keys: dict[str, DialectKey] = {}
    rules: dict[int, Rule] = {}
    for key, rule in _pairs(table).of(path):
        keys.setdefault(key.name, key)
        rules[id(rule)] = rule
    if keys:
        plain = {key: found for key, found in keys.items() if "*" not in key} or keys
        plain = {key: replace(found, default=default_over_releases(name, table, found)) for key, found in plain.items()}
        notes = dict.fromkeys(note for rule in rules.values() for note in _notes(rule))
        how = "derived" if any(_how(rule) == "derived" for rule in rules.values()) else "mapped"
        return Spelling(name, (kind,), tuple(plain.values()), how, tuple(notes))
    filling = _fills(table).get(path, ())
    notes = dict.fromkeys(note for rule in filling for note in _notes(rule))
    dropped = table.dropped_at(_plain(path))
    if filling and notes:
        return Spelling(name, (kind,), (), "derived", tuple(notes))
    if filling or dropped is not None:
        why = dropped.why(name, _plain(path)) if dropped is not None else lacking(name, _plain(path))
        return Spelling(name, (kind,), (), "dropped", (why,))
    return None


@dataclass(frozen=True)
class Pairs:
    """Which keys of a table fill which canonical keys, from both sides, with the rules that say so."""

    keys: Mapping[str, Sequence[tuple[DialectKey, Rule]]]
    """By canonical key, as users write it."""
    canonical: Mapping[KeyPath, Mapping[str, Rule]]
    """By key of the dialect."""

    def of(self, path: str) -> Sequence[tuple[DialectKey, Rule]]:
        """The keys of a canonical key; for one that has none, those of the section that it is in."""
        above = (path[:end] for end in range(len(path), 0, -1) if end == len(path) or path[end] in ".[{")
        return next((self.keys[place] for place in above if place in self.keys), ())

    def filled_by(self, path: KeyPath) -> dict[str, Rule]:
        """The canonical keys of a key, or of the mapping it is in; a section only if nothing that is in it is among them."""
        found = dict(self.canonical.get(path, {}))
        for length in range(len(path), 0, -1):
            found = found or self._at(path[:length], below=length < len(path))
        return {name: rule for name, rule in found.items() if not any(_is_inside(other, name) for other in found)}

    def _at(self, path: KeyPath, *, below: bool) -> dict[str, Rule]:
        """What the keys at a place fill, and those that stand for all that is in it."""
        found: dict[str, Rule] = {}
        for key, filled in self.canonical.items():
            place = key[:-1] if below and key[-1] == "**" else key
            if place[-1] != "**" and matches(place, path):
                found.update(filled)
        return found


def _is_inside(path: str, section: str) -> bool:
    return path.startswith(section) and path[len(section) :][:1] in (".", "[", "{") and path != section


@cache
def _pairs(table: Table) -> Pairs:
    keys: dict[str, list[tuple[DialectKey, Rule]]] = {}
    canonical: dict[KeyPath, dict[str, Rule]] = {}
    later: list[tuple[DialectKey, str, Rule]] = []
    for rule in flat(table.rules):
        own = {key.name for key in rule.keys}
        for key, name in rule.pairs:
            keys.setdefault(named(name), []).append((key, rule))
            if key.name in own:
                canonical.setdefault(key.path, {}).setdefault(named(name), rule)
            else:  # what the rule that has the key says comes first
                later.append((key, named(name), rule))
    for key, name, rule in later:
        canonical.setdefault(key.path, {}).setdefault(name, rule)
    return Pairs(keys, canonical)


@cache
def filled() -> Mapping[str, tuple[str, ...]]:
    """The canonical keys that every key of every dialect fills."""
    found: dict[str, dict[str, None]] = {}
    for name in others():
        for table in dialect(name).tables.values():
            for path in _pairs(table).canonical:
                found.setdefault(".".join(map(str, path)), {}).update(dict.fromkeys(_pairs(table).filled_by(path)))
    return {key: tuple(paths) for key, paths in found.items()}


@cache
def named(name: str) -> str:
    """A canonical key of a table as users write it, without options; for an entry of a free mapping, the mapping."""
    path = _plain(name.removesuffix(".**"))
    for length in range(len(path), 0, -1):
        exact = _names().get(path[:length])
        if exact or (exact := next((name for plain, name in _names().items() if matches(plain, path[:length])), None)):
            return exact
    raise KeyError(name)


@cache
def _names() -> Mapping[KeyPath, str]:
    """Canonical keys and sections, without options, by the path that tables name them by."""
    paths = (*canonical_paths(), *(key.path for key in walk(Config)))
    return {_plain(path): path for path in reversed(paths)}


@cache
def _fills(table: Table) -> Mapping[str, list[Rule]]:
    """The rules of a table by the canonical keys that they fill."""
    found: dict[str, list[Rule]] = {}
    paths = {_plain(path): path for path in canonical_paths()}
    for rule in flat(table.rules):
        for pattern in map(_plain, () if isinstance(rule, Dropped) else rule.canonical):
            whole = [paths[pattern]] if pattern in paths else []
            if not whole and "**" in pattern:
                whole = [path for plain, path in paths.items() if matches(pattern, plain)]
            for path in whole:
                found.setdefault(path, []).append(rule)
    return found


@cache
def canonical_paths() -> tuple[str, ...]:
    """Every canonical key that holds a value, without options; of a choice its type."""
    found: dict[str, None] = {}
    for key in walk(Config):
        if key.path.split(".")[0] in ("extensions", "stages", "rlctl"):
            continue
        held = sections_in(key.info.type)
        if not held:
            found[key.path] = None
        for section, suffix in held:
            if tag := getattr(section, "tag", None):
                found[f"{key.path}{suffix}.{tag}"] = None
    return tuple(found)


def _plain(path: str) -> KeyPath:
    """A canonical key as tables name it, with ``*`` for the items of lists."""
    text = path.replace("[]", ".*").replace("{}", ".*")
    return tuple("*" if isinstance(part, int) else part for part in split(text))


def _how(rule: Rule) -> str:
    return "derived" if rule.formula else rule.convert.how if isinstance(rule, Key) else "mapped"


def _notes(rule: Rule) -> list[str]:
    if isinstance(rule, Key):
        return [note for note in (rule.formula or rule.note or rule.convert.note,) if note]
    if isinstance(rule, Chosen):
        renamed = {theirs: ours for theirs, ours in rule.names.items() if theirs != ours}
        changed = together(said("{theirs} is {ours}", theirs=theirs, ours=ours) for theirs, ours in renamed.items())
        return [changed] if changed else []
    return [rule.formula] if rule.formula else []


def default_over_releases(name: str, table: Table, key: DialectKey) -> Any:
    """The default of a key in the usual composition; a ``VersionedDefault`` where releases differ, ABSENT where there is none."""
    engines = table.schema.engines_of(key.path, dialect(name).versions[-1]) if key.path in table.schema else ()
    usual = dialect(name).composition({}, next(kind for kind, own in dialect(name).tables.items() if own is table))
    composed = table.composed_for(Composition(min(engines)) if engines and usual.engine not in engines else usual)
    found: dict[str, Any] = {}
    for release in dialect(name).versions:
        if table.releases_with and release not in table.releases_with:
            continue
        default = composed.default_of(key, key.path, version_of(release))
        if not isinstance(default, Absent) and repr(default) != repr(next(reversed(found.values()), ABSENT)):
            found[release] = default
    return VersionedDefault(found) if len(found) > 1 else next(iter(found.values()), ABSENT)


def default_text(value: Any) -> str:
    """A dialect's default as shown to a person; empty where there is none."""
    if isinstance(value, Absent):
        return ""
    if isinstance(value, DefaultFrom):
        return said("same as {key}", key=value.key)
    if isinstance(value, VersionedDefault):
        return together(
            said("{value} from {release}", value=default_text(item), release=start)
            for start, item in value.values.items()
        )
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


# From a key of a dialect to its meaning


def meanings(key: str) -> list[Meaning]:
    """What a key means in each dialect that has it; ``dialect:key`` asks one of them."""
    wanted, colon, rest = key.partition(":")
    only, name = (wanted, rest) if colon and wanted in names() else ("", key)
    path = generic(split(name.replace("[", ".").replace("]", "")))
    found = []
    for owner in others() if not only else (only,):
        by_kind = [(kind, table) for kind, table in dialect(owner).tables.items() if _knows(table, path)]
        if by_kind:
            found.append(_meaning(owner, name, path, dict(by_kind)))
    return found


def _knows(table: Table, path: KeyPath) -> bool:
    noted = any(note.path == path for note in table.notes)
    keys = (*table.index, *_pairs(table).canonical)
    return path in table.index or path in table.schema or noted or any(matches(item, path) for item in keys)


def _meaning(owner: str, name: str, path: KeyPath, tables: Mapping[str, Table]) -> Meaning:
    canonical: dict[str, None] = {}
    notes: dict[str, None] = {}
    releases: set[str] = set()
    default: Any = Absent()
    for table in tables.values():
        key = table.key_at(path)
        if key is not None and isinstance(default, Absent):
            default = default_over_releases(owner, table, key)
        releases |= table.schema.get(path, frozenset())
        for target, rule in _pairs(table).filled_by(path).items():
            canonical[target] = None
            notes.update(dict.fromkeys(_notes(rule)))
        if not canonical:
            rules = [rule for rule in flat(table.rules) if any(item.path == path for item in rule.keys)]
            notes.update({_noted(note): None for note in table.notes if matches(note.path, path)})
            notes.update({note: None for rule in rules for note in _notes(rule)})
    known = tuple(item for item in dialect(owner).versions if item in releases)
    return Meaning(owner, name, tuple(tables), known, default, tuple(canonical), tuple(notes))


def _noted(note: Noted) -> str:
    return said(NOTED[note.kind], reason=note.reason)


def nearest(key: str, *, limit: int = 3) -> list[str]:
    """The keys of all dialects closest to one that none has."""
    known = dict.fromkeys(
        ".".join(str(part) for part in path)
        for name in others()
        for table in dialect(name).tables.values()
        for path in (*table.index, *table.schema)
        if "**" not in path
    )
    lasts = dict.fromkeys(name.rpartition(".")[2] for name in known)
    last = next(iter(difflib.get_close_matches(key.rpartition(".")[2], lasts, n=1, cutoff=0.85)), "")
    ending = [name for name in known if name.rpartition(".")[2] == last]
    ending.sort(key=lambda name: -difflib.SequenceMatcher(None, key, name).ratio())
    near = difflib.get_close_matches(key, known, n=limit, cutoff=0.7)
    return list(dict.fromkeys([*ending[:limit], *near]))[:limit]
