"""Rows for what only one side has a key for, and for what is only read or only written.

Conditions are functions of a view (``conditions.py``). What no row can express is a ``CustomRule``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.conditions import always, never
from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    SAME,
    Absent,
    DialectKey,
    Flow,
    FromSeveral,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Rule,
    Writing,
    computed,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record

Reason = str | Callable[[Writing], str]
"""What the report says, or a function of the config that is written."""


def _text(reason: Reason, view: Writing) -> str:
    return reason if isinstance(reason, str) else reason(view)


def unsaid(view: Reading | Writing) -> Absent:
    """What one side says of a key that only the other side decides."""
    return ABSENT


@record
class FollowsFrom(FromSeveral):
    """A canonical key that no key of the dialect sets: its value follows from other keys, or is always the same."""

    to: str
    writes: Callable[[Writing], Any]
    """What the dialect will do with the file that is written."""
    reason: Reason
    """What the report says if the config asks for something else."""
    reads: Callable[[Reading], Any] = unsaid
    """What it does with a text, ``Computed`` if the report says how; ABSENT leaves it to the canonical default."""
    note: Reason = ""
    """What it says if the config asks for the same."""
    open: tuple[Any, ...] = ()
    """Values that leave it to the framework."""
    harmless: tuple[tuple[Callable[[Writing], bool], Reason], ...] = ()
    """Conditions under which a difference changes nothing, and why."""
    idle: Callable[[Writing], bool] = never
    """Whether the difference affects no results."""
    of: tuple[DialectKey, ...] = ()
    """The keys that it follows from, if the report should name them; other rows write them, or nothing does."""
    formula: str = ""

    def read(self, view: Reading) -> Iterator[Flow]:
        made = computed(self.reads(view), SAME, None)
        if not isinstance(made.value, Absent):
            used = tuple(view.path(key.name) for key in self.of)
            yield Flow(view.to(self.to), made.value, used, made.how, made.note)

    def write(self, view: Writing) -> Iterator[Out]:
        asked, used = view.get(self.to), (view.to(self.to),)
        if isinstance(asked, Absent) or asked in self.open:
            return
        if _is_same(asked, self.writes(view)):
            if note := _text(self.note, view):
                yield Flow((), None, used, "mapped", note)
            return
        why = next((why for condition, why in self.harmless if condition(view)), None)
        if why is not None:
            yield Flow((), None, used, "derived", _text(why, view))
        else:
            yield Inexpressible(used, _text(self.reason, view), idle=self.idle(view))


def _is_same(asked: Any, does: Any) -> bool:
    """Whether a value is asked for that the dialect has; of a section whether it is there."""
    return (
        (asked is None) == (does is None) if isinstance(asked, Mapping) or isinstance(does, Mapping) else asked == does
    )


@record
class WriteOnly(Rule):
    """What is written, reported or lost of a canonical value under a condition; another row reads it, if any does."""

    to: str
    """The canonical key."""
    when: Callable[[Writing], bool]
    note: Reason = ""
    key: str = ""
    """The dialect's key; empty writes nothing."""
    value: Any = ABSENT
    """What is written, or a function of the view that makes it; ABSENT is the canonical value."""
    lost: Reason = ""
    """Why the value is not, or not exactly, expressed."""
    idle: bool = False
    """What is lost affects no results."""
    always: bool = False
    how: Provenance = "derived"
    others: tuple[str, ...] = ()
    """Further canonical keys that the same is reported of."""
    fills: bool = False
    """Whether no other row of the table fills the canonical keys."""
    formula: str = ""

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to, *self.others) if self.fills else ()

    def write(self, view: Writing) -> Iterator[Out]:
        canonical, used = view.get(self.to), tuple(view.to(name) for name in (self.to, *self.others))
        if isinstance(canonical, Absent) or not self.when(view):
            return
        if self.lost:
            yield Inexpressible(used, _text(self.lost, view), idle=self.idle)
        if not self.key and (self.note or not self.lost):
            yield Flow((), None, used, self.how, _text(self.note, view))
        elif self.key:
            same = isinstance(self.value, Absent)
            value = canonical if same else self.value(view) if callable(self.value) else self.value
            how: Provenance = "mapped" if same else self.how
            yield Flow(view.path(self.key), value, used, how, _text(self.note, view), same=same, always=self.always)


@record
class ReadOnly(Rule):
    """A key that fills nothing and is never written, and what the report says of it."""

    key: str
    note: str | Callable[[Reading], str]
    default: Any = FROM_SCHEMA
    since: str = ""
    until: str = ""
    when: Callable[[Reading], bool] = always
    """Whether the report says anything; other values are carried."""
    dead: Callable[[Reading], bool] = never
    """Whether the key's value is ignored, rather than repeats what holds anyway."""
    about: tuple[str, ...] = ()
    """The canonical keys that its name is about, although it does not fill them."""

    @property
    def formula(self) -> str:  # type: ignore[override]
        return self.note if isinstance(self.note, str) else ""

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return (DialectKey(self.key, self.default, self.since, self.until),)

    @property
    def canonical(self) -> tuple[str, ...]:
        return self.about

    def read(self, view: Reading) -> Iterator[Flow]:
        if view.written(self.key) and self.when(view):
            note = self.note if isinstance(self.note, str) else self.note(view)
            yield Flow((), None, (view.path(self.key),), "dead" if self.dead(view) else "mapped", note)


@record
class OtherEntries(FromSeveral):
    """The entries of a free canonical mapping that have no key of their own in the dialect: they are lost."""

    to: str
    known: tuple[str, ...]
    """Entries that other rows write."""
    reason: str
    """Why an entry is lost; ``{name}`` is replaced by it."""
    of: tuple[DialectKey, ...] = ()
    """The keys of the known entries, for the printed table, if other rows name these entries."""

    def write(self, view: Writing) -> Iterator[Out]:
        values = view.get(self.to)
        for name in values if isinstance(values, Mapping) else ():
            if name not in self.known:
                yield Inexpressible(((*view.to(self.to), name),), said(self.reason, name=name))
