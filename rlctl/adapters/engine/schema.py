"""The schema of a kind of file: the keys that each release and composition has, and their defaults.

``schemas/FRAMEWORK/KIND.tsv`` holds it, a line for each key: the key, and its defaults as JSON, each after the releases that
have it, separated by tabs. In ``data.seed<tab>3-5 null<tab>6:megatron,veomni 1`` the default is null in 0.3 to 0.5 whatever
trains the model, and 1 in 0.6 with Megatron and VeOmni, where the other engines have no such key. After ``@`` stands the trainer
whose config says otherwise: ``7-9@fully_async 1``. ``7?`` is of a key that the newest patch release of 0.7 has and an older one
lacks, ``7<`` of one that the newest lacks. A part ``*`` of a key stands for an index or a name of the user's, a last ``**`` for
all that users name themselves below. A value that is left out is not known. ``tests/upstream/make_schemas.py`` writes the files.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rlctl.adapters.engine.rules import ABSENT, Version, matches, split
from rlctl.documents.paths import KeyPath

FOLDER = Path(__file__).parents[1] / "schemas"


class Composition(NamedTuple):
    """What a framework composes its config for."""

    engine: str = ""
    """What trains the model; empty where there is one composition only."""
    trainer: str = ""
    """An asynchronous trainer with a config of its own; empty for the usual one."""


class Span(NamedTuple):
    """The releases and compositions in which a key has one default."""

    releases: frozenset[str]
    engines: frozenset[str]
    """Empty for all of them."""
    trainer: str
    everywhere: bool
    """Whether every patch release has the key."""
    newest: bool
    """Whether the newest patch release has it."""
    default: Any

    def holds(self, release: str, composition: Composition) -> bool:
        """Whether it is the default in a composition; of an unknown engine, where it is that of every engine."""
        own = not self.engines or composition.engine in self.engines
        return release in self.releases and own and self.trainer in ("", composition.trainer)


class Schema(Mapping[KeyPath, frozenset[str]]):
    """Every key of a kind of file, by generic path, with the releases that have it. Lines are parsed when they are asked for."""

    def __init__(self, lines: Mapping[str, str] | None = None) -> None:
        """``lines``: the rest of each line of the file, by its key."""
        self._lines = lines or {}
        self._spans: dict[str, tuple[Span, ...]] = {}
        self._releases: dict[str, frozenset[str]] = {}
        self._sections: dict[KeyPath, frozenset[str]] = {}

    def __getitem__(self, path: KeyPath) -> frozenset[str]:
        text = ".".join(map(str, path))
        if text.count(".") >= len(path):  # a part that holds a dot is the user's own
            raise KeyError(path)
        if text not in self._releases:
            self._releases[text] = frozenset().union(*(span.releases for span in self._of(text)))
        return self._releases[text]

    def __iter__(self) -> Iterator[KeyPath]:
        return map(split, self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def _of(self, key: str) -> tuple[Span, ...]:
        if key not in self._spans:
            self._spans[key] = tuple(_span(text) for text in self._lines[key].split("\t"))
        return self._spans[key]

    @cached_property
    def tops(self) -> frozenset[Any]:
        """The first parts of all keys."""
        return frozenset(key.partition(".")[0] for key in self._lines)

    @cached_property
    def _patterns(self) -> dict[Any, list[KeyPath]]:
        """The keys that hold a name of the user's, by their first part."""
        found: dict[Any, list[KeyPath]] = {}
        for path in (split(key) for key in self._lines if "*" in key):
            found.setdefault(path[0], []).append(path)
        return found

    def releases(self, path: KeyPath) -> frozenset[str] | None:
        """The releases that have the key at a generic path, or one that stands for it; None where none has."""
        standing = next((self[item] for item in self._patterns.get(path[0], ()) if matches(item, path)), None)
        if path in self:
            return self[path] | (standing or frozenset())
        return standing

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._lines)

    def _inside(self, key: str) -> list[str]:
        """The keys in a mapping."""
        first = bisect_left(self._sorted, f"{key}.")
        return self._sorted[first : bisect_left(self._sorted, f"{key}/", first)]  # "/" comes right after "."

    def releases_of_any(self, path: KeyPath) -> frozenset[str]:
        """The releases that have a key, or a mapping with keys; none where no release has."""
        if path not in self._sections:
            key = ".".join(map(str, path))
            own = self.releases(path) or frozenset()
            self._sections[path] = own.union(*(self[split(name)] for name in self._inside(key)))
        return self._sections[path]

    def default(self, path: KeyPath, version: Version, composition: Composition = Composition()) -> Any:
        """The default of a key; ABSENT where a composition lacks the key, or does not say."""
        key, release = ".".join(map(str, path)), ".".join(map(str, version))
        spans = [span for span in self._of(key) if span.holds(release, composition)] if key in self._lines else ()
        return max(spans, key=lambda span: bool(span.trainer)).default if spans else ABSENT

    def engines_of(self, path: KeyPath, release: str) -> frozenset[str]:
        """The engines that alone have a key in a release; none where all of them have it."""
        spans = self._of(".".join(map(str, path)))
        return frozenset().union(*(span.engines for span in spans if release in span.releases))

    def engines(self, release: str) -> frozenset[str]:
        """The engines that a release composes a config for."""
        return frozenset().union(*(self.engines_of(split(key), release) for key in self._lines))

    def is_free(self, path: KeyPath, release: str, composition: Composition | None = None) -> bool:
        """Whether users name what is in a mapping above a key: one that is empty in a release, or holds ``**``.

        Args:
            path: of the key.
            release: of the framework.
            composition: the one that has the mapping; None for any.
        """
        above = (".".join(map(str, path[:length])) for length in range(1, len(path)))
        lines = [(key, name) for key in above for name in (key, f"{key}.**") if name in self._lines]
        spans = (span for key, name in lines for span in self._of(name) if name != key or span.default == {})
        return any(
            release in span.releases and (composition is None or span.holds(release, composition)) for span in spans
        )

    def in_composition(
        self, path: KeyPath, release: str, composition: Composition, *, everywhere: bool = False, newest: bool = False
    ) -> bool:
        """Whether a composition has a key, or a mapping with keys: in any patch release, ``everywhere`` or the newest."""
        key = ".".join(map(str, path))
        below = (key, *self._inside(key)) if key in self._lines else self._inside(key)
        spans = (span for name in below for span in self._of(name))
        wanted = (span for span in spans if span.everywhere >= everywhere and span.newest >= newest)
        return any(span.holds(release, composition) for span in wanted)


def _span(text: str) -> Span:
    where, _, value = text.partition(" ")
    where, _, trainer = where.partition("@")
    releases, _, engines = where.partition(":")
    own = frozenset(engines.split(",")) if engines else frozenset()
    default = json.loads(value) if value else ABSENT
    mark = releases[-1] if releases[-1] in "?<" else ""
    return Span(releases_in(releases.removesuffix(mark)), own, trainer, not mark, mark != "<", default)


@cache
def releases_in(text: str) -> frozenset[str]:
    """The releases that a line says: ``4-7,10`` is 0.4, 0.5, 0.6, 0.7 and 0.10, and ``2026.8`` is itself."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        whole = "." in first
        found |= {first} if whole else {f"0.{minor}" for minor in range(int(first), int(last or first) + 1)}
    return frozenset(found)


@cache
def schema(framework: str, kind: str) -> Schema:
    """The schema of a kind of file of a framework."""
    text = (FOLDER / framework / f"{kind}.tsv").read_text(encoding="utf-8")
    return Schema(dict(line.split("\t", 1) for line in text.splitlines() if not line.startswith("#")))
