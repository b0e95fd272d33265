"""Rows for one canonical value that several keys say together, in the dialect or in the canonical config.

``rules.py`` has the rows for one key, ``one_sided_rows.py`` those for what only one side has a key for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from rlctl.adapters.engine.conditions import always, never
from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    SAME,
    Absent,
    Converter,
    DialectKey,
    Flow,
    FromSeveral,
    Inexpressible,
    Key,
    OneValue,
    Out,
    Reading,
    Rule,
    Same,
    Writing,
    converted,
    exported,
    imported,
    trains,
)
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.common.records import record


@record
class Items(FromSeveral):
    """Several keys of the dialect that are the items of one canonical list."""

    of: tuple[DialectKey, ...]
    to: str
    formula: str = ""

    def read(self, view: Reading) -> Iterator[Flow]:
        values = [view.get(key.name) for key in self.of]
        yield Flow(view.to(self.to), values, tuple(view.path(key.name) for key in self.of))

    def write(self, view: Writing) -> Iterator[Out]:
        values = view.get(self.to)
        for key, value in zip(self.of, values if isinstance(values, (list, tuple)) else (), strict=False):
            yield Flow(view.path(key.name), value, (view.to(self.to),))


@record
class Switches(FromSeveral):
    """Several switches of the dialect that are one word of the canonical config."""

    of: tuple[DialectKey, ...]
    to: str
    words: Mapping[str, tuple[bool | None, ...]]
    """What the switches are for each word; None is either, and is not written. The first word that fits is read."""
    open: tuple[str, ...] = ()
    """Words that leave the switches to the dialect's defaults."""
    missing: str = ""
    """What the report says of any other word; ``{word}`` is replaced by it."""
    if_written: bool = False
    """Read only if one of the switches is written, because the dialect has no default for the word."""
    off: bool = False
    """Whether a switch without a default is off; else it is as in the first word that says it."""
    formula: str = ""

    def read(self, view: Reading) -> Iterator[Flow]:
        names = [key.name for key in self.of]
        if not any(view.has(key) for key in self.of) and not view.written(*names):
            return
        if self.if_written and not view.written(*names):
            return
        values = [bool(self._value(key, view)) for key in self.of]
        for word, wanted in self.words.items():
            if all(want in (None, have) for want, have in zip(wanted, values, strict=True)):
                yield Flow(view.to(self.to), word, tuple(view.path(name) for name in names))
                return

    def _value(self, key: DialectKey, view: Reading) -> Any:
        value = view.get(key.name, ABSENT)
        if not isinstance(value, Absent) or self.off:
            return value
        place = self.of.index(key)
        return next((wanted[place] for wanted in self.words.values() if wanted[place] is not None), False)

    def write(self, view: Writing) -> Iterator[Out]:
        word, used = view.get(self.to), (view.to(self.to),)
        if isinstance(word, Absent) or not any(view.has(key) for key in self.of):
            return
        if word in self.open:
            yield Flow((), None, used)
        elif word in self.words:
            for key, value in zip(self.of, self.words[word], strict=True):
                if value is not None:
                    yield Flow(view.path(key.name), value, used)
        else:
            yield Inexpressible(used, said(self.missing, word=word))


@record
class SwitchedKey(OneValue):
    """A switch and a key of the dialect for one canonical value: the switch is off for one of its values."""

    switch: str
    key: str
    to: str
    off: Any
    """The canonical value when the switch is off."""
    default: Any = FROM_SCHEMA
    """Of the key."""
    silent: Any = FROM_SCHEMA
    """Of the switch, where no schema says it."""
    convert: Converter = SAME

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return (DialectKey(self.switch, self.silent), DialectKey(self.key, self.default))

    def read(self, view: Reading) -> Iterator[Flow]:
        value = self.off
        if view.get(self.switch):
            value = converted(self.convert, view.get(self.key), view, self.key)
        yield Flow(view.to(self.to), value, (view.path(self.switch), view.path(self.key)))

    def write(self, view: Writing) -> Iterator[Out]:
        value, used = view.get(self.to), (view.to(self.to),)
        if isinstance(value, Absent):
            return
        yield Flow(view.path(self.switch), value != self.off, used)
        if value != self.off:
            raw = self.convert.write(value, view)
            yield Flow(view.path(self.key), raw, used, self.convert.how, same=isinstance(self.convert, Same))


@record
class OneOf(FromSeveral):
    """Several keys of the dialect for one canonical key, of which its release or another key says which one decides."""

    of: tuple[DialectKey, ...]
    to: str
    reads: Callable[[Reading], str]
    """The key that decides in a text."""
    writes: Callable[[Writing], str | tuple[str, ...]]
    """The key to write, or several, for releases of what reads them; empty for none."""
    convert: Converter = SAME
    reason: str = "{name} decides"
    """What is said of the other keys; ``{name}`` is the one that decides."""
    formula: str = ""

    def read(self, view: Reading) -> Iterator[Flow]:
        name = self.reads(view)
        raw = view.get(name, ABSENT)
        if not isinstance(raw, Absent):
            yield from imported(self.convert, raw, view, name, self.to)
        for key in self.of:
            if key.name != name and view.has(key) and view.written(key.name):
                repeats = view.get(key.name) in (None, raw)
                yield Flow(
                    (),
                    None,
                    (view.path(key.name),),
                    "mapped" if repeats else "dead",
                    said(self.reason, name=name),
                    misleads=trains(self.to) and not repeats,
                    instead=view.path(name),
                )

    def write(self, view: Writing) -> Iterator[Out]:
        value, used = view.get(self.to), (view.to(self.to),)
        names = "" if isinstance(value, Absent) else self.writes(view)
        if not names:
            return
        places = (view.path(name) for name in ((names,) if isinstance(names, str) else names))
        yield from exported(self.convert, value, view, used, places)


@record
class ShareOrAmount(Rule):
    """A number that the canonical config has as itself or as a share of another one, and the dialect in one of the two ways."""

    key: str
    holds: Literal["share", "amount"]
    """What the dialect's key holds."""
    share: str
    amount: str
    whole: str
    """The canonical number that the share is of."""
    default: Any = FROM_SCHEMA
    convert: Converter = SAME
    when: Callable[[Writing], bool] = always
    """Whether it has an effect."""
    note: str = ""
    """What is said where it has none."""
    most: float | None = None
    """The largest number that the dialect's key can have, which is written for a larger one; None for any."""
    too_much: str = ""
    """What is said of a larger one."""
    always: Callable[[Writing], bool] = never
    formula: str = ""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return self._row.keys

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self._own, self._other)

    @property
    def _own(self) -> str:
        return self.share if self.holds == "share" else self.amount

    @property
    def _other(self) -> str:
        return self.amount if self.holds == "share" else self.share

    @cached_property
    def _row(self) -> Key:
        return Key(self.key, self._own, self.default, self.convert)

    def read(self, view: Reading) -> Iterator[Flow]:
        return self._row.read(view)

    def write(self, view: Writing) -> Iterator[Out]:
        other, whole, used = view.get(self._other), view.get(self.whole), (view.to(self._own), view.to(self._other))
        computes = is_number(other) and is_number(whole) and whole != 0
        computes &= self.holds == "share" or not is_number(view.get(self._own))
        if not self.when(view) and not view.explicit(self._own):
            yield Flow((), None, used, "derived" if is_number(other) else "mapped", self.note)
        elif not computes:
            always = self.always(view)
            for flow in self._row.write(view):
                yield replace(flow, always=always) if isinstance(flow, Flow) else flow
        else:
            if self.holds == "share":
                value, note = other / whole, said("{least:g} / {peak:g}", least=other, peak=whole)
            else:
                value, note = other * whole, said("{ratio:g} x {peak:g}", ratio=other, peak=whole)
            if self.most is not None and value > self.most:
                yield Inexpressible(used, self.too_much)
                value = self.most
            yield Flow(view.path(self.key), float(f"{value:.12g}"), used, "derived", note, always=self.always(view))
