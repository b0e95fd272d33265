"""What a framework's own checks refuse: rows of a table, each a condition on its keys, and where the framework tests it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from importlib import import_module
from itertools import islice
from typing import Any

from rlctl.adapters.engine.dialect import Detection, Dialect
from rlctl.adapters.engine.reading import TextView, resolved_over
from rlctl.adapters.engine.rules import version_of
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.tree import GONE, find
from rlctl.adapters.engine.unread import written_unread
from rlctl.common.errors import closest
from rlctl.common.messages.reasons import said, translated
from rlctl.common.records import record
from rlctl.common.report import Level
from rlctl.documents import Document, dotted, read_yaml

_NAMED = re.compile(r"\{([\w.]+)\}")
REFUSES, IGNORES = "runner-refuses", "runner-ignores"
"""Codes of what a framework refuses, and of what it accepts and does not use."""
NOWHERE = said("no module of it names the key")
"""Where a key is read that is never read."""
UNKNOWN = (TypeError, ValueError, ZeroDivisionError, KeyError, AttributeError)
"""What a computation raises if a value is not known here, or is no number."""


@record
class Values:
    """The values in effect of one file, by the framework's keys: what is written over the framework's defaults."""

    view: TextView
    program: str = ""
    """The program that a launch script starts, as ``verl.trainer.main_ppo``; empty if that is not known."""
    tried: Mapping[str, Any] = field(default_factory=dict)
    """Values that are tried in place of those of the file."""

    def __getitem__(self, key: str) -> Any:
        """A value; None for a key without a default.

        Raises:
            TypeError: the value is an expression that cannot be resolved here.
        """
        if key in self.tried:
            return self.tried[key]
        value = self.view.get(key)
        if isinstance(value, str) and "${" in value:
            raise TypeError(said("{key} is not resolved", key=key))
        return value

    def number(self, key: str, default: int = 1) -> int:
        """An integer; ``default`` for null."""
        value = self[key]
        return default if value is None else int(value)

    def written(self, key: str) -> bool:
        return key in self.tried or self.view.written(key)

    def changed(self, key: str, value: Any) -> Values:
        """The same with another value."""
        return replace(self, tried={**self.tried, key: value})

    def below(self, key: str) -> Values:
        """The same, with keys counted from a mapping."""
        return replace(self, view=self.view.inside(key, ""))


NEAREST: Any = object()
"""In place of a remedy's value: the whole numbers nearest to that of the file which its row does not refuse."""
SPAN, OFFERED, BITS = 128, 2, 20
"""How far from a number each other one is tried, how many of these are offered, and how often it is halved and doubled."""


@record
class Remedy:
    """A change of one key that ends a refusal: the hint is made of it, and editors can apply it."""

    key: str
    """Of the framework's file."""
    value: object = GONE
    """The value as YAML writes it (``fp8``, ``null``, ``[attn]``), or plain; a function that computes one; several names, of
    which the one nearest to that of the file is taken; ``NEAREST``; ``GONE`` removes the key."""
    other: str = ""
    """The key that may be changed instead."""

    def settled(self, row: Requirement, values: Values) -> Settled:
        """What it is for a file that breaks its row."""
        try:
            return Settled(self.key, self._values(row, values), self.other)
        except UNKNOWN:
            return Settled(self.key, None, self.other)

    def _values(self, row: Requirement, values: Values) -> tuple[object, ...] | None:
        if self.value is GONE:
            return ()
        if self.value is NEAREST:
            return _accepted_near(values[self.key], lambda number: row.refused(values.changed(self.key, number)))
        if isinstance(self.value, tuple):
            name = closest(str(values[self.key]), self.value)
            return (name,) if name else None
        value = self.value(values) if callable(self.value) else self.value
        return (read_yaml("value: " + value, "value").values["value"] if isinstance(value, str) else value,)


@record
class Settled:
    """A change of one key that ends a refusal of a file."""

    key: str
    values: tuple[object, ...] | None
    """Any of which does, the nearest first; empty if the key is to be removed, None if no value is known to fit."""
    other: str = ""
    """The key that may be changed instead."""


def _accepted_near(now: object, is_refused: Callable[[int], object]) -> tuple[int, ...] | None:
    """Whole numbers that are not refused: the nearest to one that is, then one by halving and one by doubling it."""
    if isinstance(now, bool) or not isinstance(now, int):
        return None
    around = (number for distance in range(1, SPAN) for number in (now - distance, now + distance) if number > 0)
    near = list(islice((number for number in around if not is_refused(number)), OFFERED))
    halves, doubles = ([now >> bits for bits in range(1, BITS)], [now << bits for bits in range(1, BITS)])
    for ladder in (halves, doubles):
        step = next((place for place, number in enumerate(ladder) if number > 0 and not is_refused(number)), None)
        if step is not None:
            last = ladder[step - 1] if step else now
            near += [ladder[step]] if near else [_limit(last, ladder[step], is_refused)]
    return tuple(dict.fromkeys(near)) or None


def _limit(refused_one: int, taken: int, is_refused: Callable[[int], object]) -> int:
    """The number between two that is not refused, and next to one that is."""
    while abs(taken - refused_one) > 1:
        middle = (taken + refused_one) // 2
        refused_one, taken = (middle, taken) if is_refused(middle) else (refused_one, middle)
    return taken


@record
class Requirement:
    """One thing that a framework refuses before, or while, it starts."""

    key: str
    """The key that the message is about."""
    refused: Callable[[Values], object]
    """Whether the framework refuses the values. A condition that cannot be computed here, for a value that is not known or no
    number, refuses nothing."""
    message: str
    """What is wrong; ``{key}`` stands for the value of a key."""
    source: str
    """The framework's file and function."""
    hint: str | Remedy | Settled = ""
    """What to do: a change, which is settled once a file breaks the row, or words."""
    writer_code: str = ""
    """The code of what the framework's writer says of the same, if it does."""
    check_code: str = ""
    """The code of what ``rlctl check`` says of the same, if it does."""
    numbers: Mapping[str, Callable[[Values], object]] = field(default_factory=dict)
    """Computed numbers that the message names beside keys."""
    since: str = ""
    """The first release that refuses it there; empty for the newest whose source was read."""
    older: Mapping[str, str] = field(default_factory=dict)
    """The file and function in releases before ``since``, by the first release that has it there."""
    until: str = ""
    """The last release that refuses it; empty if the newest does."""
    level: Level = Level.ERROR
    """An error if every run of the config stops or trains something else; a warning if that depends on its data."""
    code: str = REFUSES
    """``runner-refuses``, or ``runner-ignores`` for a setting that the framework accepts and does not use."""
    kinds: tuple[str, ...] = ()
    """The kinds of file that it is for; empty for those of its table."""
    when: str = "start"
    """When the framework stops, as in the messages ``when-...``."""

    def place(self, series: str, newest: str) -> str | None:
        """The file and function of a release that refuse it; None if the release does not.

        Args:
            series: the release, as ``0.5``.
            newest: the newest release whose source was read.
        """
        places = {**self.older, self.since or newest: self.source}
        asked = version_of(series)
        if self.until and asked > version_of(self.until):
            return None
        known = [since for since in places if version_of(since) <= asked]
        return places[max(known, key=version_of)] if known else None

    def advice(self, values: Values) -> str | Settled:
        """What to do about a file that breaks it."""
        if isinstance(self.hint, Remedy):
            return self.hint.settled(self, values)
        return self.hint if isinstance(self.hint, Settled) else self.worded(self.hint, values)

    def worded(self, text: str, values: Values) -> str:
        """Its message, or its hint, with its values, in the reader's language."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return _shown(self.numbers[name](values) if name in self.numbers else values[name])

        return _NAMED.sub(value, translated(text))


def fault_row(
    key: str, fault: Callable[[Values], str], message: str, source: str, hint: str | Remedy, **others: Any
) -> Requirement:
    """A row that refuses what a function finds a fault in; the message names it as ``{fault}``.

    Args:
        key: that the message is about.
        fault: what is wrong, in words; empty if nothing is.
        message: of the row.
        source: the framework's file and function.
        hint: what to do.
        others: fields of the row, as ``when``.
    """
    return Requirement(key, fault, message, source, hint, numbers={"fault": fault}, **others)


@record
class Requirements:
    """What a framework refuses, release by release."""

    release: str
    """The newest release whose source was read."""
    rows: tuple[Requirement, ...]
    kinds: tuple[str, ...] = ()
    """The kinds of file that they are for; empty for all."""
    strict: Callable[[str], bool] = lambda key: True
    """Whether the framework refuses an unknown key, by the key; it ignores the others."""
    no_null: tuple[Callable[[str], bool], str] | None = None
    """Whether the framework refuses null for a section, by its key, and where; None if it takes null for any."""
    older: tuple[str, ...] = ()
    """Older releases whose source was read, as ``0.5``."""

    @property
    def newest(self) -> Requirements:
        """What the newest release refuses."""
        found = self.of(series_of(self.release))
        assert found is not None
        return found

    def of(self, series: str) -> Requirements | None:
        """What a release such as ``0.5`` refuses; None if its source was not read."""
        if series not in self._by_series:
            self._by_series[series] = self._of(series)
        return self._by_series[series]

    @cached_property
    def _by_series(self) -> dict[str, Requirements | None]:
        return {}

    def _of(self, series: str) -> Requirements | None:
        newest = series_of(self.release)
        if series != newest and series not in self.older:
            return None
        places = [(row, row.place(series, newest)) for row in self.rows]
        rows = tuple(replace(row, source=place) for row, place in places if place is not None)
        return replace(self, release=self.release if series == newest else series, rows=rows)


def series_of(release: str) -> str:
    """``0.9`` of ``0.9.1``."""
    return ".".join(release.split(".")[:2])


def requirements_of(framework: str) -> Requirements | None:
    """What a framework refuses; None for a dialect without a table of it."""
    name = f"rlctl.adapters.{framework}.requirements"
    try:
        found: Requirements = import_module(name).REQUIREMENTS
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None
    return found


def refused(
    requirements: Requirements,
    dialect: Dialect,
    document: Document,
    *,
    release: str,
    environment: Mapping[str, str],
    kind: str = "",
    program: str = "",
) -> list[tuple[Requirement, str]]:
    """The requirements that a file breaks, each with its message; their hints have their values, too.

    Args:
        requirements: of the framework.
        dialect: the framework's.
        document: the file's values.
        release: of the framework, by which the file is read; "" to see by its keys.
        environment: variables that the file may name.
        kind: of the file, where it does not say; "" to see by its keys.
        program: the one that a launch script starts; "" if that is not known.
    """
    taken = dialect.detect(document, version=release, kind=kind)
    table, version = dialect.table_for(document, taken.kind), version_of(taken.version)
    resolved = resolved_over(table, version, document, environment)
    values = Values(TextView(table, version, resolved.values, {}), program)
    is_usual = not requirements.kinds or taken.kind in requirements.kinds
    rows = [row for row in requirements.rows if (taken.kind in row.kinds if row.kinds else is_usual)]
    nulls = _null_sections(requirements, table, taken.version, document) if is_usual else ()
    broken = [*nulls, *_broken(rows, values)]
    reported = {row.key for row, _ in broken}
    unread = _unread(dialect.name, taken, table, document)
    return [*broken, *(item for item in unread if item[0].key not in reported)]


def _null_sections(
    requirements: Requirements, table: Table, release: str, document: Document
) -> Iterator[tuple[Requirement, str]]:
    """A line for each section that is written as null, where the framework takes none for it."""
    if requirements.no_null is None:
        return
    is_refused, source = requirements.no_null
    for path, value in document.leaves():
        key = dotted(path)
        if value is None and is_refused(key) and table.is_section(path, version_of(release), release):
            row = Requirement(key, bool, said("{key} is null; expected a section", key=key), source, Settled(key, ()))
            yield row, translated(row.message)


def _unread(framework: str, taken: Detection, table: Table, document: Document) -> Iterator[tuple[Requirement, str]]:
    """A line for each key that the file sets to something, and no module of the release names."""
    for path in written_unread(framework, taken.kind, taken.version, table, document):
        key = dotted(path)
        value = _shown(find(document.values, path))
        message = said(
            "{key} is {value}, but the framework never reads the key: the run is the same without it",
            key=key,
            value=value,
        )
        yield (
            Requirement(key, bool, message, translated(NOWHERE), Settled(key, ()), level=Level.WARNING, code=IGNORES),
            translated(message),
        )


def _broken(rows: Iterable[Requirement], values: Values) -> Iterator[tuple[Requirement, str]]:
    for row in rows:
        try:
            if row.refused(values):
                advice = row.advice(values)
                yield replace(row, hint=advice), row.worded(row.message, values)
        except UNKNOWN:
            continue


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return translated(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
