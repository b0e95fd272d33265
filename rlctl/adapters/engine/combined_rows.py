"""Further kinds of rows, for a value that two keys of one side say together, or that another canonical key says.

``rows.py`` has the others. What none of them can express is a ``CustomRule``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlctl.adapters.engine.rows import FollowsFrom
from rlctl.adapters.engine.rules import (
    ABSENT,
    SAME,
    Absent,
    Converter,
    DialectKey,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Same,
    Writing,
    computed,
    converted,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record


@record
class Items(Rule):
    """Several keys of the dialect that are the items of one canonical list."""

    of: tuple[DialectKey, ...]
    to: str
    formula: str = ""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return self.of

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, view: Reading) -> Iterator[Flow]:
        values = [view.get(key.name) for key in self.of]
        yield Flow(view.to(self.to), values, tuple(view.path(key.name) for key in self.of))

    def write(self, view: Writing) -> Iterator[Out]:
        values = view.get(self.to)
        for key, value in zip(self.of, values if isinstance(values, (list, tuple)) else (), strict=False):
            yield Flow(view.path(key.name), value, (view.to(self.to),))


@record
class SwitchedKey(Rule):
    """A switch and a key of the dialect for one canonical value: the switch is off for one of its values."""

    switch: str
    key: str
    to: str
    off: Any
    """The canonical value that the switch stands for when it is off."""
    default: Any
    """Of the key; the switch is off by default."""
    convert: Converter = SAME

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return (DialectKey(self.switch, False), DialectKey(self.key, self.default))

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,)

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
class ReadFrom(FollowsFrom):
    """As ``FollowsFrom``, of keys that say so by name: other rows write them, or nothing does."""

    of: tuple[DialectKey, ...] = field(kw_only=True)

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return self.of

    def read(self, view: Reading) -> Iterator[Flow]:
        made = computed(self.reads(view), SAME, None)
        if not isinstance(made.value, Absent):
            used = tuple(view.path(key.name) for key in self.of)
            yield Flow(view.to(self.to), made.value, used, made.how, made.note)


@dataclass(frozen=True)
class KeyOrOther(Key):
    """A key that holds another canonical value where its own leaves it open, because the dialect has no word for that."""

    open: Any = field(kw_only=True)
    """The canonical value that leaves it open."""
    other: str = field(kw_only=True)
    """The canonical key that is written then, by the same converter."""
    because: str = field(kw_only=True)

    def write(self, view: Writing) -> Iterator[Out]:
        if view.get(self.to) != self.open:
            yield from super().write(view)
            return
        raw, used = self.convert.write(view.get(self.other), view), (view.to(self.to), view.to(self.other))
        yield Flow(view.path(self.key), raw, used, "derived", self.because, always=self.always)


@record
class OtherEntries(Rule):
    """The entries of a free canonical mapping that have no key of their own in the dialect: they are lost."""

    to: str
    known: tuple[str, ...]
    """Entries that other rows write."""
    reason: str
    """Why one is lost; ``{name}`` stands for it."""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return ()

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,)

    def read(self, view: Reading) -> Iterator[Flow]:
        return iter(())

    def write(self, view: Writing) -> Iterator[Out]:
        values = view.get(self.to)
        for name in values if isinstance(values, Mapping) else ():
            if name not in self.known:
                yield Inexpressible(((*view.to(self.to), name),), said(self.reason, name=name))


@record
class IfWritten(Same):
    """What the text says at a key, whose absence says nothing of the canonical one."""

    key: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return value if view.written(self.key) else ABSENT


def negated(condition: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A condition: the other does not hold."""
    return lambda view: not condition(view)


def every(*conditions: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A condition: all of these hold."""
    return lambda view: all(condition(view) for condition in conditions)


def has(canonical: str) -> Callable[[Writing], bool]:
    """A condition: the config has a value at a canonical key, other than null, zero, false and empty."""
    return lambda view: bool(view.get(canonical))
