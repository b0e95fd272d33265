"""Kinds of rows for what several keys say together, for what no key says, and for what only one direction has.

Each is a table's line: conditions are functions, the flows are made here. What none of them can express is a ``CustomRule``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    SAME,
    Absent,
    Converter,
    DialectKey,
    Flow,
    Group,
    Inexpressible,
    InexpressibleError,
    Out,
    Reading,
    Rule,
    Same,
    Version,
    Writing,
    computed,
    converted,
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
    reads: Callable[[Reading], Any]
    """What the dialect does with a text; ABSENT leaves it to the canonical default."""
    writes: Callable[[Writing], Any]
    """What it will do with the file that is written."""
    reason: Told
    """What is said where the config asks for something else."""
    note: str = ""
    """What is said where it asks for the same."""
    open: tuple[Any, ...] = ()
    """Values that leave it to the framework."""
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
        value = self.reads(view)
        if not isinstance(value, Absent):
            yield Flow(view.to(self.to), value, ())

    def write(self, view: Writing) -> Iterator[Out]:
        asked, used = view.get(self.to), (view.to(self.to),)
        if isinstance(asked, Absent) or asked in self.open:
            return
        if _is_same(asked, self.writes(view)):
            yield Flow((), None, used, "mapped", self.note)
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
    fills: bool = False
    """Whether no other row of the table fills the canonical key."""
    formula: str = ""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return ()

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,) if self.fills else ()

    def read(self, view: Reading) -> Iterator[Flow]:
        return iter(())

    def write(self, view: Writing) -> Iterator[Out]:
        canonical, used = view.get(self.to), (view.to(self.to),)
        if isinstance(canonical, Absent) or not self.when(view):
            return
        if self.lost:
            yield Inexpressible(used, _text(self.lost, view), idle=self.idle)
        if not self.key and (self.note or not self.lost):
            yield Flow((), None, used, "derived", _text(self.note, view))
        elif self.key:
            same = isinstance(self.value, Absent)
            value = canonical if same else self.value(view) if callable(self.value) else self.value
            how, note = "mapped" if same else "derived", _text(self.note, view)
            yield Flow(view.path(self.key), value, used, how, note, same=same, always=self.always)  # type: ignore[arg-type]


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
    formula: str = ""

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return (DialectKey(self.key, self.default, self.since, self.until),)

    @property
    def canonical(self) -> tuple[str, ...]:
        return ()

    def read(self, view: Reading) -> Iterator[Flow]:
        if view.written(self.key) and self.when(view):
            note = self.note if isinstance(self.note, str) else self.note(view)
            yield Flow((), None, (view.path(self.key),), "dead" if self.dead(view) else "mapped", note)

    def write(self, view: Writing) -> Iterator[Out]:
        return iter(())


@record
class OneOf(Rule):
    """Several keys of the dialect for one canonical key, of which its release or another key says which one decides."""

    of: tuple[DialectKey, ...]
    to: str
    reads: Callable[[Reading], str]
    """The key that decides in a text."""
    writes: Callable[[Writing], str]
    """The key to write; empty for none."""
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
        raw, used = view.get(name, ABSENT), (view.path(name),)
        if not isinstance(raw, Absent):
            value = raw if isinstance(raw, str) and "${" in raw else converted(self.convert, raw, view, name)
            made = computed(value, self.convert.how, self.convert.note)
            same = made is not value and (isinstance(self.convert, Same) or value == raw)
            if not isinstance(made.value, Absent):
                yield Flow(view.to(self.to), made.value, used, made.how, made.note, same=same)
        for key in self.of:
            if key.name != name and view.written(key.name):
                repeats = view.get(key.name) in (None, raw)
                yield Flow(
                    (), None, (view.path(key.name),), "mapped" if repeats else "dead", said(self.reason, name=name)
                )

    def write(self, view: Writing) -> Iterator[Out]:
        value, used = view.get(self.to), (view.to(self.to),)
        name = "" if isinstance(value, Absent) else self.writes(view)
        if not name:
            return
        try:
            raw = self.convert.write(value, view)
        except InexpressibleError as error:
            yield Inexpressible(used, error.args[0])
            return
        made = computed(raw, self.convert.how, self.convert.note)
        if made.lost:
            yield Inexpressible(used, made.lost, idle=made.idle)
        if not isinstance(made.value, Absent):
            same = made is not raw and (isinstance(self.convert, Same) or raw == value)
            yield Flow(view.path(name), made.value, used, made.how, made.note, same=same, always=made.always)


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
