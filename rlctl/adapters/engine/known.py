"""The keys that each release of a dialect has, as a list of facts in the ``known.txt`` of its package.

A line is a kind of file, the releases, and a key: ``ppo 4-7,10 data.seed`` is in 0.4 to 0.7 and in 0.10. A part ``*`` stands
for an index or a name of the user's, a last ``**`` for all that users name themselves below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.rules import matches, split
from rlctl.documents.paths import KeyPath


class Known(Mapping[KeyPath, frozenset[str]]):
    """Every key of a kind of file, by generic path, with the releases that have it. Keys stay text until they are asked for."""

    def __init__(self, releases: Mapping[str, str] | None = None) -> None:
        """``releases`` are written as in the file, by dotted key."""
        self._releases = releases or {}

    def __getitem__(self, path: KeyPath) -> frozenset[str]:
        text = ".".join(map(str, path))
        if text.count(".") >= len(path):  # a part that holds a dot is the user's own
            raise KeyError(path)
        return releases_in(self._releases[text])

    def __iter__(self) -> Iterator[KeyPath]:
        return map(split, self._releases)

    def __len__(self) -> int:
        return len(self._releases)

    @cached_property
    def tops(self) -> frozenset[Any]:
        """The first parts of all keys."""
        return frozenset(key.partition(".")[0] for key in self._releases)

    @cached_property
    def _patterns(self) -> dict[Any, list[KeyPath]]:
        """The keys that hold a name of the user's, by their first part."""
        found: dict[Any, list[KeyPath]] = {}
        for path in (split(key) for key in self._releases if "*" in key):
            found.setdefault(path[0], []).append(path)
        return found

    def releases(self, path: KeyPath) -> frozenset[str] | None:
        """The releases that have the key at a generic path, or one that stands for it; None where no line says."""
        if path in self:
            return self[path]
        return next((self[item] for item in self._patterns.get(path[0], ()) if matches(item, path)), None)

    @cached_property
    def ancestors(self) -> dict[KeyPath, frozenset[str]]:
        """Every key and every mapping that holds one, with the releases that have it."""
        found: dict[KeyPath, frozenset[str]] = {}
        for path, releases in self.items():
            for length in range(1, len(path) + 1):
                found[path[:length]] = found.get(path[:length], frozenset()) | releases
        return found


@cache
def releases_in(text: str) -> frozenset[str]:
    """The releases that a line of the list has: ``4-7,10`` is 0.4, 0.5, 0.6, 0.7 and 0.10."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= {f"0.{minor}" for minor in range(int(first), int(last or first) + 1)}
    return frozenset(found)


@cache
def known_keys(package: str, kind: str) -> Known:
    """Every key of a kind of file, with the releases that have it."""
    found: dict[str, str] = {}
    for releases, key in _lines(package).get(kind, ()):
        found[key] = f"{found[key]},{releases}" if key in found else releases
    return Known(found)


@cache
def _lines(package: str) -> Mapping[str, list[tuple[str, str]]]:
    """Releases and key of every line of a package's table, by the kind of file."""
    found: dict[str, list[tuple[str, str]]] = {}
    text = Path(import_module(package).__path__[0], "known.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            kind, releases, key = line.split(" ", 2)
            found.setdefault(kind, []).append((releases, key))
    return found
