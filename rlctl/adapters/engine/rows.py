"""Kinds of rows for what several keys say together, for what no key says, and for what only one direction has.

Each is a table's line: conditions are functions, the flows are made here. What none of them can express is a ``CustomRule``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from rlctl.adapters.engine.rules import (
    ABSENT,
    SAME,
    Absent,
    Converter,
    DialectKey,
    Flow,
    Group,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Version,
    Writing,
    computed,
    exported,
    imported,
    version_of,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record

Told = str | Callable[[Writing], str]
"""A reason, or how it is made of the config that is written."""


def _text(told: Told, view: Writing) -> str:
    return told if isinstance(told, str) else told(view)


def always(view: Reading | Writing) -> bool:
    """A condition that always holds."""
    return True


def never(view: Reading | Writing) -> bool:
    """A condition that never holds."""
    return False


def unsaid(view: Reading) -> Absent:
    """What a text says of a key that only the written file decides."""
    return ABSENT


@record
class Switches(Rule):
    """Several switches of the dialect that are one word of the canonical config."""

    switches: tuple[DialectKey, ...]
    to: str
    words: Mapping[str, tuple[bool | None, ...]]
    """What the switches are for each word; None is either, and is not written. The first word that fits is read."""
    open: tuple[str, ...] = ()
    """Words that leave the switches to the dialect's defaults."""
    missing: str = ""
    """What is said of a word that is in neither; ``{word}`` stands for it."""
    if_written: bool = False
    """Read only if one of the switches is written, because the dialect has no default for the word."""
    formula: str = ""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return self.switches

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, view: Reading) -> Iterator[Flow]:
        names = [key.name for key in self.switches]
        if not any(key.exists(view.version) for key in self.switches) and not view.written(*names):
            return
        if self.if_written and not view.written(*names):
            return
        said = [bool(self._value(key, view)) for key in self.switches]
        for word, wanted in self.words.items():
            if all(want in (None, have) for want, have in zip(wanted, said, strict=True)):
                yield Flow(view.to(self.to), word, tuple(view.path(name) for name in names))
                return

    def _value(self, key: DialectKey, view: Reading) -> Any:
        """The switch; without a value and a default it is as in the first word that says it."""
        value = view.get(key.name, ABSENT)
        if not isinstance(value, Absent):
            return value
        place = self.switches.index(key)
        return next((wanted[place] for wanted in self.words.values() if wanted[place] is not None), False)

    def write(self, view: Writing) -> Iterator[Out]:
        word, used = view.get(self.to), (view.to(self.to),)
        if isinstance(word, Absent) or not any(key.exists(view.version) for key in self.switches):
            return
        if word in self.open:
            yield Flow((), None, used)
        elif word in self.words:
            for key, value in zip(self.switches, self.words[word], strict=True):
                if value is not None:
                    yield Flow(view.path(key.name), value, used)
        else:
            yield Inexpressible(used, said(self.missing, word=word))


@record
class FollowsFrom(Rule):
    """A canonical key that no key of the dialect sets: what it is follows from other keys, or is always the same."""

    to: str
    writes: Callable[[Writing], Any]
    """What the dialect will do with the file that is written."""
    reason: Told
    """What is said where the config asks for something else."""
    reads: Callable[[Reading], Any] = unsaid
    """What it does with a text, ``Computed`` if the report says how; ABSENT leaves it to the canonical default."""
    note: Told = ""
    """What is said where it asks for the same."""
    open: tuple[Any, ...] = ()
    """Values that leave it to the framework."""
    harmless: tuple[tuple[Callable[[Writing], bool], Told], ...] = ()
    """Conditions under which a difference changes nothing, and why."""
    idle: Callable[[Writing], bool] = never
    """Whether no result hangs on the difference."""
    formula: str = ""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return ()

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, view: Reading) -> Iterator[Flow]:
        made = computed(self.reads(view), SAME, None)
        if not isinstance(made.value, Absent):
            yield Flow(view.to(self.to), made.value, (), made.how, made.note)

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
    """What is written, told or lost of a canonical value under a condition, beside the row that reads it."""

    to: str
    """The canonical key."""
    when: Callable[[Writing], bool]
    note: Told = ""
    key: str = ""
    """The dialect's key; empty writes nothing."""
    value: Any = ABSENT
    """What is written, or a function of the view that makes it; ABSENT is the canonical value."""
    lost: Told = ""
    """Why the value is not, or not exactly, expressed."""
    idle: bool = False
    """No result hangs on what is lost."""
    always: bool = False
    how: Provenance = "derived"
    beside: tuple[str, ...] = ()
    """Further canonical keys of which the same is said."""
    fills: bool = False
    """Whether no other row of the table fills the canonical keys."""
    formula: str = ""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return ()

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to, *self.beside) if self.fills else ()

    def read(self, view: Reading) -> Iterator[Flow]:
        return iter(())

    def write(self, view: Writing) -> Iterator[Out]:
        canonical, used = view.get(self.to), tuple(view.to(name) for name in (self.to, *self.beside))
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
    """A key that fills nothing and is never written, and what is said of it."""

    key: str
    note: str | Callable[[Reading], str]
    default: Any = ABSENT
    since: str = ""
    until: str = ""
    when: Callable[[Reading], bool] = always
    """Whether anything is said; other values are carried."""
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

    def write(self, view: Writing) -> Iterator[Out]:
        return iter(())


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
    default: Any = ABSENT
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


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no switch."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@record
class OneOf(Rule):
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

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return self.of

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, view: Reading) -> Iterator[Flow]:
        name = self.reads(view)
        raw = view.get(name, ABSENT)
        if not isinstance(raw, Absent):
            yield from imported(self.convert, raw, view, name, self.to)
        for key in self.of:
            if key.name != name and key.exists(view.version) and view.written(key.name):
                repeats = view.get(key.name) in (None, raw)
                yield Flow(
                    (), None, (view.path(key.name),), "mapped" if repeats else "dead", said(self.reason, name=name)
                )

    def write(self, view: Writing) -> Iterator[Out]:
        value, used = view.get(self.to), (view.to(self.to),)
        names = "" if isinstance(value, Absent) else self.writes(view)
        if not names:
            return
        places = (view.path(name) for name in ((names,) if isinstance(names, str) else names))
        yield from exported(self.convert, value, view, used, places)


@record
class InReleases(Group):
    """Rows that only some releases have, whose canonical keys others fill in another way."""

    rules: tuple[Rule, ...]
    since: str = ""
    until: str = ""

    def _applies(self, version: Version) -> bool:
        return DialectKey("", ABSENT, self.since, self.until).exists(version)

    def read(self, view: Reading) -> Iterator[Flow]:
        for rule in self.rules if self._applies(view.version) else ():
            yield from rule.read(view)

    def write(self, view: Writing) -> Iterator[Out]:
        for rule in self.rules if self._applies(view.version) else ():
            yield from rule.write(view)


def since(release: str) -> Callable[[Reading | Writing], bool]:
    """A condition: the release, or a newer one."""
    first = version_of(release)
    return lambda view: view.version >= first


def before(release: str) -> Callable[[Reading | Writing], bool]:
    """A condition: a release before this one."""
    first = version_of(release)
    return lambda view: view.version < first
