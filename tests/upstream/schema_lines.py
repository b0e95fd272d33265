"""The lines of a schema file, from what each release and composition has: see ``rlctl/adapters/engine/schema.py``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rlctl.adapters.engine.rules import Absent
from rlctl.adapters.engine.schema import Composition

Place = tuple[str, Composition]
Facts = Mapping[Place, Mapping[str, Any]]
"""The default of every key, ABSENT where it is not known, by release and composition."""


def lines(facts: Facts, partial: Mapping[tuple[Place, str], str] | None = None) -> Iterator[str]:
    """The lines of a file, from what each release and composition has.

    Args:
        facts: the defaults.
        partial: the marks of the places and keys that not every patch release has.
    """
    keys = sorted({key for found in facts.values() for key in found})
    for key in keys:
        usual = [(place, found[key]) for place, found in facts.items() if key in found and not place[1].trainer]
        other = [(place, found[key]) for place, found in facts.items() if key in found and place[1].trainer]
        own = [
            (place, value)
            for place, value in other
            if _text(facts.get((place[0], Composition(place[1].engine)), {}).get(key, _NONE)) != _text(value)
        ]
        some = {place: mark for place in facts if (mark := (partial or {}).get((place, key)))}
        yield "\t".join([key, *_spans(usual, facts, "", some), *_own_spans(own, facts, some)])


_NONE = object()


def _own_spans(own: Sequence[tuple[Place, Any]], facts: Facts, some: Mapping[Place, str]) -> Iterator[str]:
    for trainer in dict.fromkeys(composition.trainer for (_, composition), _ in own):
        yield from _spans([item for item in own if item[0][1].trainer == trainer], facts, trainer, some)


def _spans(having: Sequence[tuple[Place, Any]], facts: Facts, trainer: str, some: Mapping[Place, str]) -> Iterator[str]:
    """The spans of one key: releases that follow each other, with the same default in the same engines, are one."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for release in dict.fromkeys(release for release, _ in facts):
        every = {made.engine for name, made in facts if name == release and made.trainer == trainer}
        by_value: dict[tuple[str, str], set[str]] = {}
        for (name, made), value in having:
            if name == release:
                by_value.setdefault((_text(value), some.get((name, made), "")), set()).add(made.engine)
        for (value, mark), engines in by_value.items():
            among = "" if engines == every else ":" + ",".join(sorted(engines))
            found.setdefault((mark, among, value), []).append(release)
    for (mark, among, value), releases in found.items():
        yield f"{ranges(releases)}{mark}{among}{'@' + trainer if trainer else ''}{' ' if value else ''}{value}"


def _text(value: Any) -> str:
    if value is _NONE:
        return "none"
    return "" if isinstance(value, Absent) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def ranges(releases: Iterable[str]) -> str:
    """Releases as a line says them."""
    names = list(releases)
    minors = [int(name.removeprefix("0.")) for name in names if name.startswith("0.")]
    whole = [name for name in names if not name.startswith("0.")]
    found = []
    for _, group in groupby(enumerate(sorted(minors)), lambda item: item[1] - item[0]):
        run = [minor for _, minor in group]
        found.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join([*found, *whole])
