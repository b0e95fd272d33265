"""Which key of a dialect fills which canonical key, as reading shows it.

A key is set away from what it is in a text; the canonical values that change, and that the report says come of this key, are
what it fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlctl.adapters.engine.reading import TextView
from rlctl.adapters.engine.rules import (
    Absent,
    DefaultFrom,
    DialectKey,
    Rule,
    version_of,
)
from rlctl.adapters.engine.schema import Composition
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.tree import find, put
from rlctl.documents import KeyPath
from rlctl.documents.paths import copied

Values = Mapping[str, Any]
NUMBERS = (3, 0.5, 7, 0)
WORDS: tuple[Any, ...] = (True, False, 2, 0.25, "a", ["a"], {"a": 1}, {})


def defaults(key: DialectKey, table: Table, version: str) -> list[Any]:
    """The defaults of a key in the compositions of a release."""
    engines = table.schema.engines_of(key.path, version) if key.path in table.schema else ()
    made = (table.composed_for(Composition(engine)) for engine in engines or ("",))
    return [each.default_of(key, key.path, version_of(version)) for each in made]


def tries(key: DialectKey, default: Iterable[Any], now: Any, known: Iterable[Any] = ()) -> Iterator[Any]:
    """Values of a key other than the present one: those that are known, and some of the kind of its default."""
    values = [value for value in (*known, *default) if not isinstance(value, (Absent, DefaultFrom))]
    values += key.takes if isinstance(key.takes, tuple) else ()
    typed = [value for value in values if value is not None]
    if any(isinstance(value, bool) for value in typed):
        values += (True, False)
    elif any(isinstance(value, (int, float)) for value in typed):
        values += NUMBERS
    else:
        values += WORDS
    tried = {repr(now)}
    for value in values:
        if repr(value) not in tried:
            tried.add(repr(value))
            yield value


def leaves(value: Any, place: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """The places in a canonical value that hold no sections, with what they hold."""
    if isinstance(value, Mapping) and value:
        pairs: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        pairs = enumerate(value)
    else:
        yield place, repr(value)
        return
    for name, item in pairs:
        yield from leaves(item, (*place, name))


def places(path: KeyPath, values: Any) -> list[KeyPath]:
    """Where a key of a table is in a text; for one with a wildcard, below what the text has."""
    found: list[KeyPath] = [()]
    for part in path:
        if part in ("*", "**"):
            found = [(*at, name) for at in found for name in _names(find(values, at) if at else values)]
        else:
            found = [(*at, part) for at in found]
    return found


def _names(section: Any) -> list[Any]:
    if isinstance(section, Mapping):
        return list(section)[:3]
    return list(range(min(2, len(section)))) if isinstance(section, list) else []


def _read(rule: Rule, view: TextView) -> dict[KeyPath, tuple[str, tuple[KeyPath, ...]]] | None:
    try:
        flows = list(rule.read(view))
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError):
        return None  # a value that the rule refuses
    return {leaf: (value, flow.keys) for flow in flows if flow.to for leaf, value in leaves(flow.value, flow.to)}


def _meets(one: KeyPath, other: KeyPath) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def _starred(path: KeyPath) -> KeyPath:
    return tuple("*" if isinstance(part, int) else part for part in path)


def read_pairs(
    rule: Rule,
    table: Table,
    version: str,
    values: Values,
    keys: Sequence[DialectKey],
    known: Mapping[str, Sequence[Any]],
) -> Iterator[tuple[str, KeyPath]]:
    """The canonical leaves that each key fills in a text: they change with it, and the report names it."""

    def view(tree: Values) -> TextView:
        return TextView(table, version_of(version), tree, {})

    before = _read(rule, view(values))
    if before is None:
        return
    for key in keys:
        for at in places(key.path, values):
            now = find(values, at)
            for value in tries(key, defaults(key, table, version), now, known.get(key.name, ())):
                tree = copied(values)
                put(tree, at, value)
                after = _read(rule, view(tree))
                for leaf in {*before, *after} if after is not None else ():
                    was, now_is = before.get(leaf), (after or {}).get(leaf)
                    if (was and was[0]) != (now_is and now_is[0]):
                        used = [path for item in (was, now_is) if item for path in item[1]]
                        if any(_meets(at, path) for path in used):
                            yield key.name, _starred(leaf)
