"""The keys and values that a release of a format has, for completion and hover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from rlctl.adapters import dialect
from rlctl.adapters.engine.rules import Absent, Chosen, Key, flat
from rlctl.adapters.engine.rules import version_of as version
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.values import Names
from rlctl.common.errors import RlctlError
from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.documents import KeyPath
from rlctl.editing.values import alternatives

Tree = Mapping[tuple[str, ...], tuple[str, ...]]
"""The names below each section, without indices."""


def split_name(name: str) -> tuple[str, str]:
    """A dialect and its release, as of ``verl@0.9``; of none, rlctl's own."""
    framework, _, release = name.partition("@")
    return framework or "rlctl", release


@cache
def tree(name: str, kind: str) -> Tree:
    """The keys of a release, by section.

    Args:
        name: dialect with release, as ``verl@0.9``.
        kind: of its files; empty is the usual one.
    """
    framework, release = split_name(name)
    paths = _canonical() if framework == "rlctl" else paths_of(table(framework, kind), release)
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for path in paths:
        for length in range(1, len(path) + 1):
            found.setdefault(path[: length - 1], {})[path[length - 1]] = None
    return {parent: tuple(names) for parent, names in found.items()}


def table(framework: str, kind: str) -> Table:
    """The table of a kind of file; of an unknown one, that of the usual kind."""
    tables = dialect(framework).tables
    return tables.get(kind) or next(iter(tables.values()))


def paths_of(known: Table, release: str) -> Iterable[tuple[str, ...]]:
    """The keys of a release, without indices."""
    for path in dict.fromkeys((*known.schema, *known.index)):
        listed = known.schema.releases_of_any(path)
        if release in listed if listed else path in known.index and known.index[path].applies(version(release)):
            yield _plain(path)


def _plain(path: KeyPath) -> tuple[str, ...]:
    return tuple(str(part) for part in path if part not in ("*", "**") and not isinstance(part, int))


def _canonical() -> Iterable[tuple[str, ...]]:
    for key in walk(Config):
        yield plain(key.path)


def plain(key: str) -> tuple[str, ...]:
    """The parts of a canonical key, without indices."""
    return tuple(part for part in key.replace("[]", "").replace("{}", "").split(".") if part)


@cache
def values(name: str, kind: str, key: str) -> tuple[str, ...]:
    """The words that a key takes, as it is written; none if it takes any text or number."""
    framework, release = split_name(name)
    if framework == "rlctl":
        return _canonical_values(key)
    rows, path = table(framework, kind), tuple(key.split("."))
    found: list[Any] = []
    for rule in flat(rows.rules):
        own = [known for known in rule.keys if _plain(known.path) == path]
        if not own:
            continue
        if isinstance(own[0].takes, tuple):
            found += own[0].takes
        elif isinstance(rule, Chosen):
            found += rule.names
        elif isinstance(rule, Key) and isinstance(rule.convert, Names):
            found += rule.convert.names
        elif isinstance(rule, Key):
            found += _canonical_values(rule.to)
    default = rows.default_at(path, version(release))
    if not found and isinstance(default, bool):
        found = ["true", "false"]
    words = (str(value).lower() if isinstance(value, bool) else value for value in found if value is not None)
    return tuple(dict.fromkeys(str(word) for word in words if not isinstance(word, Absent)))


@cache
def _canonical_values(key: str) -> tuple[str, ...]:
    from rlctl.config.explain import explain

    plain = key.removesuffix(".type").removesuffix(".name")
    try:
        found = explain(plain)
    except RlctlError:
        return ()
    if found.options:
        return tuple(option.name for option in found.options)
    info = next((known.info for known in walk(Config) if known.pattern == found.pattern), None)
    hints = alternatives(info.type) if info is not None else ()
    words = [str(item) for hint in hints if get_origin(hint) is Literal for item in get_args(hint)]
    return (*words, *(("true", "false") if bool in hints else ()))
