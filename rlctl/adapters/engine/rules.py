"""What a dialect's table is made of: keys with their defaults, and the kinds of rule, each read in both directions.

A rule turns values of one side into flows to the other: ``Flow`` says where a value goes, ``Inexpressible`` that it cannot go
there. Rules are pure: they look at a ``Reading`` (the dialect's values) or a ``Writing`` (the canonical ones) and keep no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, Literal, Protocol, cast

from rlctl.adapters.engine.lacking import lacking
from rlctl.common.errors import nearest
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.common.ranks import Rank, rank_of
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.fields import OTHER, Choice
from rlctl.config.inspect import fields_of, sections_in
from rlctl.documents.paths import KeyPath

Provenance = Literal["mapped", "derived", "assumed", "dead", "carried"]
Version = tuple[int, ...]


class Absent:
    """Stands for: there is no value here, or the dialect has no default for it."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT = Absent()


class FromSchema:
    """Stands for: the default is what the schema of the release and composition says, and none where it says none."""

    def __repr__(self) -> str:
        return "FROM_SCHEMA"


FROM_SCHEMA = FromSchema()


@record
class VersionedDefault:
    """A default that changed: the value from each version on, oldest first."""

    values: Mapping[str, Any]


@record
class DefaultFrom:
    """A default that follows another key of the dialect."""

    key: str
    otherwise: Any = ABSENT
    """The default where a composition lacks the other key."""


class BadValueError(ValueError):
    """A dialect's key holds a value that the dialect itself does not know; the text says what was expected."""

    def __init__(self, expected: str, *, key: KeyPath = ()) -> None:
        """``key`` is the place in the text; a rule of one key leaves it out."""
        super().__init__(expected)
        self.key = key


def not_one_of(value: object, known: Iterable[object]) -> str:
    """What is wrong with a value that is none of the names that a dialect knows."""
    names = [str(name) for name in known]
    near = nearest(str(value), names)
    return said(
        "is {value!r}; expected one of {known}{nearest}",
        value=value,
        known=", ".join(names),
        nearest=f" {near}" if near else "",
    )


class InexpressibleError(ValueError):
    """A canonical value has no form in the dialect; the text says what will differ."""


@cache
def version_of(text: str) -> Version:
    """``0.9`` as numbers that compare."""
    return tuple(int(part) for part in text.split("."))


@dataclass(frozen=True)
class DialectKey:
    """One key of a dialect: what its absence means, and the versions that have it."""

    name: str
    default: Any = FROM_SCHEMA
    """ABSENT where silence says nothing; any other value is what the framework's code does where no schema says."""
    since: str = ""
    until: str = ""
    """The last version that has it."""
    words: bool = False
    """Whether its value may be text although its default is a number or a boolean."""
    takes: type | tuple[str, ...] | None = None
    """What the framework takes, if its default does not tell: a number, a list, or one of these words and no other."""

    @cached_property
    def path(self) -> KeyPath:
        return split(self.name)

    def applies(self, version: Version) -> bool:
        """Whether its row is about a version; a view also knows what the version's schema says."""
        after = not self.since or version >= version_of(self.since)
        return after and (not self.until or version <= version_of(self.until))

    def default_in(self, version: Version) -> Any:
        """Its default in a version; ABSENT where there is none. A ``DefaultFrom`` is left to the caller."""
        if not isinstance(self.default, VersionedDefault):
            return self.default
        known = [value for start, value in self.default.values.items() if version >= version_of(start)]
        return known[-1] if known else next(iter(self.default.values.values()))


@cache
def split(key: str) -> KeyPath:
    """A key of a table as a path: parts have no dots, digits are indexes of lists, ``*`` stands for any part."""
    return tuple(_part(part) for part in key.split(".")) if key else ()


def _part(text: str) -> str | int:
    number = natural(text)
    return text if number is None else number


@dataclass(frozen=True, slots=True)
class Flow:
    """One value that goes over to the other side."""

    to: KeyPath
    """Where it goes; empty where the keys are used and nothing comes of them."""
    value: Any
    keys: tuple[KeyPath, ...]
    """The places of this side that it came from; a mapping stands for all that is in it."""
    how: Provenance = "mapped"
    note: str = ""
    same: bool = False
    """Whether the value itself is unchanged, so that an expression can stand for it."""
    always: bool = False
    """Written although the other side's default is the same."""
    quiet: bool = False
    """Never written for the source's silence alone."""
    option: str = ""
    """For ``assumed``: the option that sets it."""
    implied: bool = False
    """Follows from a key that says something else, so that a value kept from an earlier conversion overrides it."""
    misleads: bool = False
    """Of a dead key: whether whoever sets it expects another reward, other data or another loss than the run has."""
    instead: KeyPath = ()
    """The key that is read instead of a misleading one."""


@record
class Inexpressible:
    """A canonical value that the dialect cannot express."""

    keys: tuple[KeyPath, ...]
    reason: str
    idle: bool = False
    """It affects no results: the report calls it carried, not unsupported."""
    rounded: bool = False
    """A nearby number is written; the reason has both: the report calls it approximated."""


class Reading(Protocol):
    """What a rule sees of the dialect while it reads."""

    @property
    def version(self) -> Version: ...
    @property
    def options(self) -> Mapping[str, str]: ...

    def get(self, key: str, default: Any = None) -> Any:
        """The value in effect: what is written, else the dialect's default, else ``default``."""

    def written(self, *keys: str) -> bool:
        """Whether any of these keys is in the text."""

    def path(self, key: str) -> KeyPath:
        """A key of the table as a place in the text."""

    def to(self, canonical: str) -> KeyPath:
        """A canonical key of the table as a path."""

    def inside(self, key: str | KeyPath, canonical: str | KeyPath) -> Reading:
        """The same, with keys counted from a mapping in the text and from a canonical section."""

    def default(self, key: DialectKey) -> Any:
        """The dialect's default of a key, that of the key it follows included."""

    def has(self, key: DialectKey) -> bool:
        """Whether the release has a key."""


class Writing(Protocol):
    """What a rule sees of the config while it writes."""

    @property
    def version(self) -> Version: ...
    @property
    def options(self) -> Mapping[str, str]: ...
    @property
    def config(self) -> Config: ...

    def get(self, canonical: str, default: Any = ABSENT) -> Any:
        """The plain value; ABSENT where a section above it is null or another option is chosen."""

    def explicit(self, *canonical: str) -> bool:
        """Whether the source says any of these itself."""

    def has(self, key: DialectKey) -> bool:
        """Whether the release has a key, composed for the engine that trains; of patch releases the newest counts."""

    def is_everywhere(self, key: DialectKey) -> bool:
        """Whether all patch releases of a release that has a key have it."""

    def default(self, key: DialectKey) -> Any:
        """The default of a key there; a ``DefaultFrom`` is left to the caller."""

    def path(self, key: str) -> KeyPath:
        """A key of the table as a place in the text."""

    def to(self, canonical: str) -> KeyPath:
        """A canonical key of the table as a path."""

    def inside(self, key: str | KeyPath, canonical: str | KeyPath) -> Writing:
        """The same, with keys counted from a mapping in the text and from a canonical section."""


Out = Flow | Inexpressible
Reader = Callable[[Reading], Iterable[Flow]]
Writer = Callable[[Writing], Iterable[Out]]


class Converter(Protocol):
    """How one value changes between the two sides."""

    @property
    def how(self) -> Provenance: ...
    @property
    def note(self) -> str: ...

    def read(self, value: Any, view: Reading) -> Any:
        """The canonical value, ``Computed`` if the report says how, or ABSENT where the dialect's value says nothing."""

    def write(self, value: Any, view: Writing) -> Any:
        """The dialect's value, ``Computed`` if the report says how, or ABSENT where the key is left out."""


class Calculation:
    """A converter whose results say themselves how they came about."""

    how: Provenance = "mapped"
    note: str = ""


@record
class Same:
    """The value itself."""

    how: Provenance = "mapped"
    note: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return value

    def write(self, value: Any, view: Writing) -> Any:
        return value


SAME = Same()


@dataclass(frozen=True, slots=True)
class Computed:
    """What a converter returns for a value that it computed, rather than renamed."""

    value: Any
    """ABSENT tells the note alone."""
    note: str = ""
    """How it was computed."""
    how: Provenance = "derived"
    lost: str = ""
    """While writing: what the written value cannot express; empty if it is exact."""
    idle: bool = False
    """What is lost affects no results."""
    rounded: bool = False
    """What is lost is the difference to a nearby number."""
    always: bool = False
    same: bool = False
    """Whether it is the value itself after all, so that an expression can stand for it."""


def computed(made: Any, convert: Converter, given: Any, note: str = "") -> Computed:
    """What a converter made of a value, with its own provenance and note, or those of the row, if it did not say any."""
    if isinstance(made, Computed):
        return made
    same = isinstance(convert, Same) or made == given
    return Computed(made, note or convert.note, convert.how, same=same)


def converted(converter: Converter, value: Any, view: Reading, key: str) -> Any:
    """The canonical value of a key's value.

    Raises:
        BadValueError: the dialect does not know the value; the error names the key, one of the several that a rule may read.
    """
    try:
        return converter.read(value, view)
    except BadValueError as error:
        raise BadValueError(error.args[0], key=error.key or view.path(key)) from error


def trains(canonical: str) -> bool:
    """Whether a canonical key is of rewards, of data or of the objective."""
    return rank_of(canonical) is Rank.OBJECTIVE or canonical.partition(".")[0] in ("rewards", "data")


def imported(
    convert: Converter, raw: Any, view: Reading, name: str, to: str, *, note: str = "", implied: bool = False
) -> Iterator[Flow]:
    """What becomes of the value of a dialect's key, for the canonical key that it fills."""
    used = (view.path(name),)
    value = raw if isinstance(raw, str) and "${" in raw else converted(convert, raw, view, name)
    made = computed(value, convert, raw, note)
    if not isinstance(made.value, Absent):
        yield Flow(view.to(to), made.value, used, made.how, made.note, same=made.same, implied=implied)
    elif view.written(name) and made.how != "carried":
        yield Flow((), None, used, "mapped", "the same as the default, so it is omitted")


def exported(
    convert: Converter,
    value: Any,
    view: Writing,
    used: tuple[KeyPath, ...],
    places: Iterable[KeyPath],
    *,
    note: str = "",
) -> Iterator[Out]:
    """What becomes of a canonical value, for the places where the dialect has it."""
    try:
        raw = convert.write(value, view)
    except InexpressibleError as error:
        yield Inexpressible(used, error.args[0])
        return
    made = computed(raw, convert, value, note)
    if made.lost:
        yield Inexpressible(used, made.lost, idle=made.idle, rounded=made.rounded)
    if not isinstance(made.value, Absent):
        for place in places:
            yield Flow(place, made.value, used, made.how, made.note, same=made.same, always=made.always)
    elif made is raw and made.note:
        yield Flow((), None, used, made.how, made.note)


class Rule:
    """One concept of a table."""

    formula = ""
    """The rule in one line, for the printed table; empty where its keys say it."""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        """The dialect's keys that it reads and writes; none by default."""
        return ()

    @property
    def canonical(self) -> tuple[str, ...]:
        """The canonical keys that it fills; none by default."""
        return ()

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        """Which key fills which canonical key: each of them all of these, unless the rule says more."""
        return product(self.keys, self.canonical)

    def read(self, view: Reading) -> Iterable[Flow]:
        """What becomes of the dialect's values; nothing for a rule that only writes."""
        return ()

    def write(self, view: Writing) -> Iterable[Out]:
        """What becomes of the canonical values; nothing for a rule that only reads."""
        return ()


class OneValue(Rule):
    """A rule that fills one canonical key."""

    to: str

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to,)


class FromSeveral(OneValue):
    """A rule that fills one canonical key from several keys of the dialect."""

    of: tuple[DialectKey, ...]

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return self.of


@dataclass(frozen=True)
class Key(Rule):
    """One key, one canonical key: the same value, a renamed one or a converted one; older spellings of the key follow it."""

    key: str
    to: str
    default: Any = FROM_SCHEMA
    """As for ``DialectKey``."""
    convert: Converter = SAME
    since: str = ""
    until: str = ""
    also: tuple[DialectKey, ...] = ()
    """Other spellings; the first that is written and not null decides."""
    always: bool = False
    quiet: bool = False
    """Written only where the source says it itself."""
    note: str = ""
    write_always_to: tuple[str, ...] = ()
    """Spellings that are written too, for versions that read another one."""
    write_when: Callable[[Writing], bool] | None = None
    """Whether this is the key to write; another rule writes the same concept otherwise."""
    implied: bool = False
    """Whether a kept value from an earlier conversion replaces the one that is read."""
    made_of: tuple[str, ...] = ()
    """Further canonical keys that the written value is computed from."""
    unset: Any = ABSENT
    """What is read if the key is not written; ABSENT reads its default."""
    words: bool = False
    """Whether its value may be text although its default is a number."""
    takes: type | tuple[str, ...] | None = None
    """As for ``DialectKey``."""
    takes_null: bool = True
    """Whether the framework reads a null that is written, and not only one that is its default."""
    formula: str = ""

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return (DialectKey(self.key, self.default, self.since, self.until, self.words, self.takes), *self.also)

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to, *self.made_of)

    def read(self, view: Reading) -> Iterator[Flow]:
        written = [key for key in self.keys if view.written(key.name)]
        if not written and not isinstance(self.unset, Absent):
            yield Flow(view.to(self.to), self.unset, (view.path(self.key),))
            return
        stated = [key for key in written if view.get(key.name) is not None] or written
        deciding = stated[0] if stated else next((key for key in self.keys if view.has(key)), self.keys[0])
        raw = view.get(deciding.name) if stated else view.default(deciding)
        if isinstance(raw, Absent):
            return
        yield from imported(self.convert, raw, view, deciding.name, self.to, note=self.note, implied=self.implied)
        for key in [key for key in written if key is not deciding]:
            other = (view.path(key.name),)
            if view.get(key.name) is None and view.has(key):
                yield Flow((), None, other, "mapped", "the default")
            else:
                why, read = said("{name} decides", name=deciding.name), view.path(deciding.name)
                yield Flow((), None, other, "dead", why, misleads=trains(self.to), instead=read)

    def _may_be_null(self, target: DialectKey, view: Writing) -> bool:
        default = view.default(target)
        allowed = default is None or isinstance(default, (Absent, DefaultFrom)) or self.convert is not SAME
        return self.takes_null and allowed

    def write(self, view: Writing) -> Iterator[Out]:
        value = view.get(self.to)
        if isinstance(value, Absent) or (self.write_when is not None and not self.write_when(view)):
            return
        there = [key for key in self.keys if view.has(key)]
        target = next((key for key in there if view.is_everywhere(key)), there[0] if there else None)
        used = tuple(view.to(name) for name in self.canonical)
        if target is None:
            if view.explicit(self.to):
                yield Inexpressible(used, said("this release has no {key}", key=self.key))
            return
        if value is None and not self._may_be_null(target, view):
            yield Flow((), None, used, "derived", said("null leaves {name} to its default", name=target.name))
            return
        places = tuple(view.path(name) for name in (target.name, *self.write_always_to))
        for out in exported(self.convert, value, view, used, places, note=self.note):
            if isinstance(out, Flow) and out.to:
                yield replace(out, always=self.always or out.always, quiet=self.quiet)
            else:
                yield out


@record
class Tree(OneValue):
    """A free mapping, taken over whole."""

    key: str
    to: str
    since: str = ""
    until: str = ""
    default: Any = FROM_SCHEMA
    but: tuple[str, ...] = ()
    """Entries that other rules take."""
    both: bool = False
    """Whether other rules take them from the canonical mapping too, where they have the same names."""
    like: str = ""
    """Another mapping of the dialect, which is used if this one is not written."""
    skips_empty: bool = False
    """Whether an empty mapping says nothing."""
    entries: Converter | None = None
    """How each entry is read, which is then reported apart from the others; it is written as it is."""
    switch: str = ""
    """The entry without which the others have no effect."""

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return (
            DialectKey(self.key, self.default, self.since, self.until),
            DialectKey(f"{self.key}.**", ABSENT, self.since, self.until),
        )

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        like = (DialectKey(self.like), DialectKey(f"{self.like}.**")) if self.like else ()
        return ((key, self.to) for key in (*self.keys, *like))

    def read(self, view: Reading) -> Iterator[Flow]:
        key = self.key if view.written(self.key) or not self.like else self.like
        value = view.get(key) if view.written(key) else ABSENT
        if self.switch and isinstance(value, Mapping) and not value.get(self.switch):
            switch = (*view.path(key), self.switch)
            others = tuple((*view.path(key), name) for name in value if name != self.switch)
            yield Flow((), None, (switch,), "mapped", "the default")
            yield Flow((), None, others, "dead", said("{switch} is off", switch=f"{key}.{self.switch}"))
        elif isinstance(value, Mapping) and self.entries is not None:
            for name, item in value.items():
                made = self.entries.read(item, view)
                yield Flow((*view.to(self.to), name), made, ((*view.path(key), name),), same=made == item)
        elif isinstance(value, Mapping) and (value or not (self.but or self.skips_empty)):
            rest = {name: item for name, item in value.items() if name not in self.but}
            taken = tuple((*view.path(key), name) for name in rest) if self.but else (view.path(key),)
            if rest or not self.but:
                yield Flow(view.to(self.to), rest, taken, same=True)
        elif value not in (None, "", {}, []) and not isinstance(value, (Absent, Mapping)):
            raise BadValueError(said("is {value!r}; expected a mapping", value=value), key=view.path(key))
        elif not isinstance(value, Absent):
            yield Flow((), None, (view.path(self.key),), "mapped", "is empty")

    def write(self, view: Writing) -> Iterator[Out]:
        value = view.get(self.to)
        if not isinstance(value, Mapping) or not value:
            return
        used = (view.to(self.to),)
        if not view.has(self.keys[0]):
            yield Inexpressible(used, said("this release has no {key}", key=self.key))
        elif self.entries is not None:
            for name, item in value.items():
                yield Flow((*view.path(self.key), name), item, ((*used[0], name), *used), same=True)
        elif self.but:
            for name, item in value.items():
                if not (self.both and name in self.but):
                    yield Flow((*view.path(self.key), name), item, used)
        else:
            yield Flow(view.path(self.key), value, used, same=True)


def nothing(view: Reading | Writing) -> tuple[()]:
    """The reader or writer of a custom rule that has only one direction."""
    return ()


@record
class CustomRule(Rule):
    """What no table can say: its keys and canonical keys are declared, and two functions do the rest."""

    name: str
    own: tuple[DialectKey, ...]
    fills: tuple[str, ...]
    reader: Reader
    writer: Writer
    formula: str = ""
    """The rule in one line, for the printed table."""
    by_key: Mapping[str, str | tuple[str, ...]] | None = field(default=None, kw_only=True)
    """The canonical keys that each key fills, for itself and all below it; a section stands for what is in it.

    A key that is not listed only helps to read the others; one of another rule may be listed too. Without it, each key fills all
    canonical keys.
    """
    why: str = field(default="", kw_only=True)
    """Why no row can express it: one sentence for readers of the table."""

    @property
    def keys(self) -> tuple[DialectKey, ...]:
        return self.own

    @property
    def canonical(self) -> tuple[str, ...]:
        return self.fills

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        if self.by_key is None:
            return super().pairs
        own = {key.name for key in self.own}
        keys = (*self.own, *(DialectKey(name) for name in self.by_key if name not in own))
        return ((key, name) for key in keys for name in self._filled_by(key.name))

    def _filled_by(self, key: str) -> tuple[str, ...]:
        above = (".".join(key.split(".")[:length]) for length in range(key.count(".") + 1, 0, -1))
        names = next((self.by_key[name] for name in above if name in self.by_key), ()) if self.by_key else ()
        return (names,) if isinstance(names, str) else names

    def read(self, view: Reading) -> Iterable[Flow]:
        return self.reader(view)

    def write(self, view: Writing) -> Iterable[Out]:
        return self.writer(view)


@record
class Switch(OneValue):
    """A key that is true where a canonical section is not null."""

    key: str
    to: str
    default: Any = FROM_SCHEMA
    since: str = ""
    until: str = ""
    always: bool = False
    on: Callable[[Any], bool] = bool
    """Whether a value of the key means on."""
    write_on: Any = True
    """What is written for on; ABSENT leaves it to the rules of the section."""
    write_off: Any = False

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return (DialectKey(self.key, self.default, self.since, self.until),)

    def read(self, view: Reading) -> Iterator[Flow]:
        value: dict[str, Any] | None = {} if self.on(view.get(self.key)) else None
        yield Flow(view.to(self.to), value, (view.path(self.key),))

    def write(self, view: Writing) -> Iterator[Out]:
        if not view.has(self.keys[0]):
            return
        section = view.get(self.to)
        if isinstance(section, Absent):
            return
        value = self.write_off if section is None else self.write_on
        if not isinstance(value, Absent):
            yield Flow(view.path(self.key), value, (view.to(self.to),), always=self.always)


@cache
def setting_at(to: str) -> type[Choice]:
    """The choice at a canonical key."""
    value: Any = Config
    for part in to.split("."):
        value = next(held for held, _ in sections_in(fields_of(value)[part].type))
    return cast(type[Choice], value)


def is_further(to: str, name: object) -> bool:
    """Whether a canonical type has no class of its own: an estimator, loss, engine or tracker that is named only."""
    found = setting_at(to).option(name)
    return found is not None and found[0] == OTHER


def further_type(to: str, name: str, dialect: str) -> str:
    """The canonical type for a dialect's name that its table maps to nothing: the name, after the dialect's if unknown."""
    return name if name in setting_at(to).further else f"{dialect}.{name}"


def own_name(name: str, dialect: str) -> str:
    """What a dialect calls a type that ``further_type`` made."""
    return name.removeprefix(f"{dialect}.")


def bare_name(name: str) -> str:
    """A further type without the name of the framework before it, by which other frameworks may have the same."""
    return name.partition(".")[2] or name


@record
class Chosen(Rule):
    """A name that picks an option of a canonical choice."""

    key: str
    to: str
    names: Mapping[str, str]
    """The dialect's name to the option; the first name of an option is the one written."""
    default: Any = FROM_SCHEMA
    since: str = ""
    until: str = ""
    dialect: str = ""
    """The dialect's own name, before which names that are neither listed nor known are kept; empty refuses them."""
    missing: str = ""
    """What is said of an option that the dialect has no name for."""
    always: bool = False
    unwritten: tuple[str, ...] = ()
    """Options that are the target's own choice: nothing is written."""
    older: Any = ABSENT
    """The only value of releases that have no such key."""

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return (DialectKey(self.key, self.default, self.since, self.until),)

    @property
    def canonical(self) -> tuple[str, ...]:
        return (f"{self.to}.type",)

    def read(self, view: Reading) -> Iterator[Flow]:
        raw = view.get(self.key, ABSENT)
        used = (view.path(self.key),)
        if isinstance(raw, Absent):
            return
        if raw in self.names:
            yield Flow(view.to(f"{self.to}.type"), self.names[raw], used)
        elif self.dialect and raw is not None:
            yield Flow(view.to(f"{self.to}.type"), further_type(self.to, str(raw), self.dialect), used)
        else:
            raise BadValueError(not_one_of(raw, self.names), key=used[0])

    def write(self, view: Writing) -> Iterator[Out]:
        name = view.get(f"{self.to}.type")
        used: tuple[KeyPath, ...] = (view.to(f"{self.to}.type"),)
        if isinstance(name, Absent) or name in self.unwritten:
            return
        raw = next((raw for raw, option in self.names.items() if option == name), None)
        if raw is None and self.dialect and is_further(self.to, name):
            raw = own_name(name, self.dialect) if name.startswith(f"{self.dialect}.") or "." not in name else None
        if raw is not None and raw == self.older and not view.has(self.keys[0]):
            yield Flow((), None, used, "mapped", "this release has only this value")
            return
        if raw is None or not view.has(self.keys[0]):
            yield Inexpressible(
                used,
                (said(self.missing, name=name) if self.missing else "")
                or said("{key} has no value that means {name}", key=self.key, name=name),
            )
            return
        yield Flow(view.path(self.key), raw, used, always=self.always)


class Group(Rule):
    """Rows inside another, with whole keys on both sides."""

    rules: tuple[Rule, ...]

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return tuple(key for rule in self.rules for key in rule.keys)

    @property
    def canonical(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.canonical)

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        return (pair for rule in self.rules for pair in rule.pairs)


@record
class Section(Group):
    """A canonical section that is null unless one of its keys is written."""

    to: str
    rules: tuple[Rule, ...]

    @property
    def canonical(self) -> tuple[str, ...]:
        return (self.to, *super().canonical)

    def read(self, view: Reading) -> Iterator[Flow]:
        written = [key for key in self.keys if "*" not in key.name and view.written(key.name)]
        if not written:
            yield Flow(view.to(self.to), None, ())
            return
        yield Flow(view.to(self.to), {}, ())
        for rule in self.rules:
            yield from rule.read(view)

    def write(self, view: Writing) -> Iterator[Out]:
        if isinstance(view.get(self.to), Mapping):
            for rule in self.rules:
                yield from rule.write(view)


@record
class When(Group):
    """Rules that hold only under a condition; their keys are dead otherwise."""

    rules: tuple[Rule, ...]
    reads: Callable[[Reading], bool]
    writes: Callable[[Writing], bool]
    reason: str
    """Why the keys have no effect otherwise; empty leaves them to other rules."""
    lost: str = ""
    """Why what the canonical keys hold is lost otherwise; empty leaves them to other rules."""

    def read(self, view: Reading) -> Iterator[Flow]:
        if self.reads(view):
            for rule in self.rules:
                yield from rule.read(view)
            return
        for key in self.keys if self.reason else ():
            if "*" not in key.name and view.written(key.name):
                yield Flow((), None, (view.path(key.name),), "dead", self.reason)

    def write(self, view: Writing) -> Iterator[Out]:
        if self.writes(view):
            for rule in self.rules:
                yield from rule.write(view)
            return
        for to in self.canonical if self.lost else ():
            if view.get(to):
                yield Inexpressible((view.to(to),), self.lost)


def in_releases(*rules: Rule, since: str = "", until: str = "") -> When:
    """Rows that only some releases have, whose canonical keys others fill in another way."""

    def has_them(view: Reading | Writing) -> bool:
        return DialectKey("", ABSENT, since, until).applies(view.version)

    return When(rules, has_them, has_them, reason="")


def where_there_is(key: str, *rules: Rule, lacks: bool = False) -> When:
    """Rows of the releases that have a key, or of those that lack it, by their schemas."""

    def holds(view: Reading | Writing) -> bool:
        return view.has(DialectKey(key)) is not lacks

    return When(rules, holds, holds, reason="")


NO_KEY = "no key"
"""The reason of a canonical key that the dialect has no key for and that nothing stands in for: ``lacking`` says what follows."""


@dataclass(frozen=True)
class Dropped(OneValue):
    """A canonical key that no key of the dialect stands for: why, and what the dialect does instead."""

    to: str
    """``a.b`` or, for all below it, ``a.b.**``."""
    reason: str
    neutral: Any = ABSENT
    """What the dialect does, as a canonical value; ABSENT is the canonical default."""
    matters: bool = False
    """Tell of a difference although the source did not say it itself."""
    idle: bool = False
    """It affects no results: the report calls it carried, not unsupported."""
    rounded: bool = False
    """A nearby number is written; the reason has both: the report calls it approximated."""

    def why(self, dialect: str, canonical: KeyPath) -> str:
        """The reason, for one of the keys that it is about."""
        return lacking(dialect, canonical) if self.reason == NO_KEY else self.reason

    def read(self, view: Reading) -> Iterator[Flow]:
        if not isinstance(self.neutral, Absent):
            yield Flow(view.to(self.to.removesuffix(".**")), self.neutral, ())


NoteKind = Literal["carried", "dead", "unsupported"]


@dataclass(frozen=True)
class Noted:
    """Keys of the dialect without a rule: kept for converting back, ignored by the dialect, or not translatable."""

    key: str
    """A key, with ``*`` for one part and a last ``**`` for all below."""
    kind: NoteKind
    reason: str
    since: str = ""
    until: str = ""
    free: bool = False
    """Whether users name keys there themselves, so that no list of releases can hold them."""
    misleads: bool = False
    """Of a dead key: whether whoever sets it expects another reward, other data or another loss than the run has."""
    instead: str = ""
    """The key that is read instead; it ends with ``**`` as ``key`` does."""

    @cached_property
    def path(self) -> KeyPath:
        return split(self.key)

    def read_instead(self, path: KeyPath) -> KeyPath:
        """The key that is read instead of one of these."""
        same = len(self.path) - 1
        return (
            (*split(self.instead)[:-1], *path[same:]) if self.path[-1] == "**" and self.instead else split(self.instead)
        )

    def applies(self, version: Version) -> bool:
        """Whether it says something of the key in this version."""
        return DialectKey(self.key, ABSENT, self.since, self.until).applies(version)


def carried(reason: str, *keys: str, since: str = "", until: str = "", free: bool = False) -> list[Noted]:
    """Entries for keys that mean something only in this dialect."""
    return [Noted(key, "carried", reason, since, until, free) for key in keys]


def dead(reason: str, *keys: str, since: str = "", until: str = "") -> list[Noted]:
    """Entries for keys that the dialect itself does not read."""
    return [Noted(key, "dead", reason, since, until) for key in keys]


def misleading(reason: str, *keys: str, since: str = "", until: str = "", instead: str = "") -> list[Noted]:
    """As ``dead``, of rewards, data and losses: the run trains otherwise than the key says, which is reported first."""
    return [Noted(key, "dead", reason, since, until, misleads=True, instead=instead) for key in keys]


def unsupported(reason: str, *keys: str, since: str = "", until: str = "") -> list[Noted]:
    """Entries for keys whose meaning has no canonical form."""
    return [Noted(key, "unsupported", reason, since, until) for key in keys]


def flat(rules: Iterable[Rule]) -> Iterator[Rule]:
    """The rules, those inside others in their place."""
    for rule in rules:
        if isinstance(rule, Group):
            yield from flat(rule.rules)
        else:
            yield rule


def matches(pattern: KeyPath, path: Sequence[Any]) -> bool:
    """Whether a path fits a pattern with ``*`` for one part and a last ``**`` for one or more."""
    if pattern and pattern[-1] == "**":
        return len(path) >= len(pattern) and matches(pattern[:-1], path[: len(pattern) - 1])
    return len(pattern) == len(path) and all(want in ("*", have) for want, have in zip(pattern, path, strict=True))
