"""Writing any dialect by its table: what of a config goes where, what is left to the target's defaults, what is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from rlctl.adapters.engine.lacking import lacking
from rlctl.adapters.engine.resolvers import resolvable
from rlctl.adapters.engine.rules import ABSENT, Absent, DefaultFrom, DialectKey, Flow, Inexpressible, Version, split
from rlctl.adapters.engine.secrets import without_literal
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.tree import CHOICES, ROLE_ENGINES, find, put
from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.common.records import record
from rlctl.common.report import ALWAYS, UNWRITTEN, Finding, Level, Origin, OriginEntry, finding, option_for_fact
from rlctl.common.report_lines import framework
from rlctl.config import Config, Source, to_plain
from rlctl.config.fields import Choice
from rlctl.config.inspect import fields_of, walk
from rlctl.config.sections.rewards import Reward
from rlctl.documents import Comment, KeyPath, dotted, escaped
from rlctl.documents.yaml_write import inline_text

_VARIABLE = re.compile(r"\$\{oc\.env:[^{}]*\}")
"""The value of one environment variable, which is text."""
_NODE = re.compile(r"(?<!\\)\$\{([A-Za-z_][\w.]*)\}")
NAMING: Mapping[KeyPath, tuple[str, ...]] = {
    ("data", "train"): ("path",),
    ("data", "eval"): ("path",),
    ("rewards",): ("type", "name"),
}
"""Lists whose items are kept without their defaults, and what an item is known by, which is always kept."""
NAMED_BY_TYPE = ("optimizer", "lr_scheduler")
"""Sections whose ``type`` is a value like others, and does not choose which other keys there are."""


@record
class ConfigWithOrigins:
    """A config to write, with what is known of where its values came from."""

    config: Config
    sources: Mapping[KeyPath, Source] = field(default_factory=dict)
    expressions: Mapping[KeyPath, str] = field(default_factory=dict)
    comments: Mapping[KeyPath, Comment] = field(default_factory=dict)

    @cached_property
    def plain(self) -> dict[str, Any]:
        return dict(to_plain(self.config))

    @cached_property
    def explicit_prefixes(self) -> frozenset[KeyPath]:
        """Every path that the source itself says something at, or below."""
        said = [path for path, source in self.sources.items() if source.kind != "dialect_default"]
        return frozenset(path[:length] for path in said for length in range(1, len(path) + 1))

    @cached_property
    def explicit_paths(self) -> frozenset[KeyPath]:
        return frozenset(path for path, source in self.sources.items() if source.kind != "dialect_default")

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the source is another dialect, whose silence means something only where its table says so."""
        return any(source.kind == "dialect_default" for source in self.sources.values())

    def means(self, path: KeyPath) -> bool:
        """Whether the source says this, or its silence does."""
        return not self.is_foreign or path in self._meant or self.is_explicit(path)

    @cached_property
    def _meant(self) -> frozenset[KeyPath]:
        return frozenset(path[:length] for path in self.sources for length in range(1, len(path) + 1))

    def is_kept(self, path: KeyPath) -> bool:
        """Whether a value is kept if the target lacks it: the source says it, or a default of its framework is it."""
        whole = not any(isinstance(part, int) for part in path) and (path[-1] != "type" or path[-2] in NAMED_BY_TYPE)
        return self.is_explicit(path) or (path in self.sources and (whole or path[0] == "rewards"))

    def is_explicit(self, path: KeyPath) -> bool:
        """Whether the source says this, something in it, or a mapping that it is in."""
        if path in self.explicit_prefixes:
            return True
        return any(path[:length] in self.explicit_paths for length in range(2, len(path)))


@record
class ConfigView:
    """The canonical values as rules see them."""

    table: Table
    given: ConfigWithOrigins
    version: Version
    options: Mapping[str, str]
    root: KeyPath = ()
    source: KeyPath = ()

    @property
    def config(self) -> Config:
        return self.given.config

    def get(self, canonical: str, default: Any = ABSENT) -> Any:
        value = find(self.given.plain, self.to(canonical))
        return default if isinstance(value, Absent) else value

    def explicit(self, *canonical: str) -> bool:
        return any(self.given.is_explicit(self.to(key)) for key in canonical)

    def has(self, key: DialectKey) -> bool:
        path = self.path(key.name)
        return self.table.has(key, path, self.version) and self.table.takes(path, self.version)

    def is_everywhere(self, key: DialectKey) -> bool:
        return self.table.is_everywhere(self.path(key.name), self.version)

    def default(self, key: DialectKey) -> Any:
        return self.table.default_of(key, self.path(key.name), self.version)

    def path(self, key: str) -> KeyPath:
        return self.root + split(key)

    def to(self, canonical: str) -> KeyPath:
        return self.source + split(canonical)

    def inside(self, key: str | KeyPath, canonical: str | KeyPath) -> ConfigView:
        root = self.path(key) if isinstance(key, str) else self.root + key
        source = self.to(canonical) if isinstance(canonical, str) else self.source + canonical
        return ConfigView(self.table, self.given, self.version, self.options, root, source)


@dataclass
class WriteOutcome:
    """What became of one canonical value."""

    targets: list[tuple[str, Any]] = field(default_factory=list)
    derived: bool = False
    notes: list[str] = field(default_factory=list)
    lost: str = ""
    kept: str = ""
    """Why it is not said although no result hangs on it: it only travels for the way back."""
    carried: bool = False
    rounded: bool = False
    """Whether all that is lost is the difference to a nearby number."""


@dataclass
class Written:
    """What came of writing one config by one table."""

    values: dict[str, Any] = field(default_factory=dict)
    resolved: dict[KeyPath, Any] = field(default_factory=dict)
    """The value of each leaf that is written as an expression."""
    comments: dict[KeyPath, Comment] = field(default_factory=dict)
    origins: list[OriginEntry] = field(default_factory=list)
    fates: dict[KeyPath, WriteOutcome] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def lost_paths(self, said: Callable[[KeyPath], bool]) -> list[KeyPath]:
        """Canonical values that the source says and the dialect could not, each once, lists whole."""
        found = []
        for path, fate in self.fates.items():
            if (fate.lost or fate.kept) and said(path):
                cut = next((place for place, part in enumerate(path) if isinstance(part, int)), len(path))
                is_choice = path[:-1] in (*CHOICES, *ROLE_ENGINES) and path[-1] in ("type", "args")
                found.append(path[:-1] if is_choice else path[:cut])
        return list(dict.fromkeys(found))

    def fate_of(self, canonical: KeyPath) -> WriteOutcome | None:
        """What became of a canonical value: its own fate, that of the mapping it is in, or of what is in it."""
        for length in range(len(canonical), 0, -1):
            if canonical[:length] in self.fates:
                return self.fates[canonical[:length]]
        below = [fate for path, fate in self.fates.items() if path[: len(canonical)] == canonical]
        return _together(below) if below else None


def _together(fates: Sequence[WriteOutcome]) -> WriteOutcome:
    lost, kept = (together(reasons) for reasons in ([fate.lost for fate in fates], [fate.kept for fate in fates]))
    return WriteOutcome(
        [target for fate in fates for target in fate.targets],
        any(fate.derived for fate in fates),
        [note for fate in fates for note in fate.notes],
        lost,
        kept,
        any(fate.carried for fate in fates),
        all(fate.rounded for fate in fates if fate.lost),
    )


@dataclass
class Writer:
    """Writes one config by one table."""

    table: Table
    version: Version
    given: ConfigWithOrigins
    options: Mapping[str, str]
    dialect: str = ""
    """The dialect's name, whose carried keys are put back."""
    out: Written = field(default_factory=Written)
    told: dict[tuple[str, Comment], tuple[int, KeyPath, Comment]] = field(default_factory=dict)
    """How near the comment of each source key goes to the key itself, where that is, and what it says there."""
    told_silent: set[tuple[tuple[str, ...], str]] = field(default_factory=set)
    """Silent differences that were told, by the keys' last names: those of several files are told once."""

    def run(self) -> Written:
        """Write everything."""
        view = ConfigView(self.table, self.given, self.version, self.options)
        for rule in self.table.rules:
            for flow in rule.write(view):
                self._lose(flow) if isinstance(flow, Inexpressible) else self._flow(flow)
        self._settle_expressions()
        self._put_comments()
        self._drop()
        self._put_back()
        return self.out

    def _flow(self, flow: Flow) -> None:
        explicit = any(self.given.is_explicit(key) for key in flow.keys)
        fates = [self.out.fates.setdefault(key, WriteOutcome()) for key in flow.keys]
        for fate in fates:
            fate.derived |= flow.how == "derived"
            if flow.note and flow.note not in fate.notes:
                fate.notes.append(flow.note)
        if not flow.to:
            return
        if not self.table.takes(flow.to, self.version):
            for key, fate in zip(flow.keys, fates, strict=True):
                if self._says(key):
                    fate.lost = fate.lost or said("this release has no {key}", key=dotted(flow.to))
            return
        existing = find(self.out.values, flow.to)
        if not isinstance(existing, Absent) and not isinstance(existing, dict):
            for fate in fates:
                fate.targets.append((dotted(flow.to), existing))
            return
        value, resolver = resolvable(self._without_secret(flow, self._text(flow)), flow.value, self.table.resolvers)
        if resolver:
            for fate in fates:
                fate.lost = said(
                    "{framework} has no resolver '{name}'", framework=framework(self.dialect), name=resolver
                )
            return
        shown = (dotted(flow.to), value)
        meant = any(self.given.means(key) for key in flow.keys)
        if not (flow.always or explicit or (meant and not flow.quiet and self._differs(flow))):
            for fate in fates:
                fate.notes.append(said("{shown} has this default: omitted", shown=shown[0]))
            return
        put(self.out.values, flow.to, value)
        if isinstance(value, str) and "${" in value:
            self.out.resolved[flow.to] = flow.value
        for fate in fates:
            fate.targets.append(shown)
        self._tell_fixed(flow, shown)
        origin = self._origin(flow, explicit)
        self.out.origins.append(OriginEntry(*shown[:1], origin, value, flow.note))
        if origin is Origin.ASSUMED:
            option = option_for_fact(f"state {flow.option}" if flow.option else "")
            self.out.findings.append(
                finding(
                    "assumed",
                    Level.WARNING,
                    shown[0],
                    option=option,
                    value=value,
                    reason=flow.note,
                    fact=flow.option or "none",
                )
            )
        for key in flow.keys:
            if key in self.given.comments:
                self._comment(key, flow)

    def _says(self, key: KeyPath) -> bool:
        """Whether the source says a value, and not only a mapping or a shorthand that has it by default."""
        if key in self.given.explicit_paths:
            return True
        own = find(self.given.plain, key) != _own_default(self.given.config, key)
        return own and self.given.is_explicit(key)

    def _tell_fixed(self, flow: Flow, shown: tuple[str, Any]) -> None:
        """Say of a value that was computed from an environment variable that it does not follow the variable any more."""
        kinds = [source.kind for key in flow.keys if (source := self.given.sources.get(key))]
        if "environment" in kinds and "${" not in str(shown[1]):
            self.out.findings.append(finding("environment-fixed", Level.NOTE, shown[0], value=shown[1]))

    def _settle_expressions(self) -> None:
        """Write the value where an expression names a key that is not written itself, so that nothing could find it."""
        for path, value in list(self.out.resolved.items()):
            text = str(find(self.out.values, path))
            absent = [name for name in _NODE.findall(text) if isinstance(find(self.out.values, split(name)), Absent)]
            if absent:
                put(self.out.values, path, escaped(value) if isinstance(value, str) and value != text else value)
                del self.out.resolved[path]
                self.out.findings.append(
                    finding("interpolation-resolved_unwritten", Level.NOTE, dotted(path), value=value, other=absent[0])
                )
                self.out.origins = [
                    replace(entry, value=value) if entry.key == dotted(path) else entry for entry in self.out.origins
                ]

    def _tell_resolved(self, path: KeyPath, value: Any, name: str) -> None:
        self.out.findings.append(
            finding("interpolation-resolved_changed", Level.NOTE, dotted(path), value=value, other=name)
        )

    def _comment(self, key: KeyPath, flow: Flow) -> None:
        """Note where the comment of a source key could go: to one place, to its key rather than to what follows from it."""
        source, comment = self.given.sources.get(key), self.given.comments[key]
        name = source.key if source else dotted(key)
        shown = comment.at(dotted(flow.to))
        own = shown is not comment or dotted(flow.to) == name
        rank = 0 if own else 3 if flow.how != "mapped" else 1 if flow.same else 2
        if not own and (rank == 3 or find(self.given.plain, key) != flow.value):
            shown = comment.about(name)
        best = self.told.get((name, comment))
        if best is None or rank < best[0]:
            self.told[name, comment] = (rank, flow.to, shown)

    def _put_comments(self) -> None:
        for _, to, comment in self.told.values():
            before = self.out.comments.get(to)
            if before is None:
                self.out.comments[to] = comment
            else:
                above = (*before.above, *comment.above, *((comment.beside,) if comment.beside else ()))
                self.out.comments[to] = Comment(above, before.beside)

    def _without_secret(self, flow: Flow, value: Any) -> Any:
        """The value, or for a secret in the open a reference to an environment variable."""
        made = without_literal(flow.to, value)
        if made is None:
            return value
        text, name = made
        self.out.findings.append(
            finding("secret_written", Level.WARNING, dotted(flow.to), expression=f"${{oc.env:{name}}}", variable=name)
        )
        return text

    def _differs(self, flow: Flow) -> bool:
        default = self.table.default_at(flow.to, self.version)
        if isinstance(default, DefaultFrom):
            default = self._followed(default)
        if isinstance(default, Absent):
            return flow.value is not None and flow.value not in ([], {})
        return bool(default != flow.value) or isinstance(default, bool) != isinstance(flow.value, bool)

    def _followed(self, like: DefaultFrom) -> Any:
        value = find(self.out.values, split(like.key))
        if not isinstance(value, Absent):
            return value
        default = self.table.default_at(split(like.key), self.version)
        return self._followed(default) if isinstance(default, DefaultFrom) else default

    def _origin(self, flow: Flow, explicit: bool) -> Origin:
        if flow.how == "assumed":
            return Origin.ASSUMED
        if not explicit:
            return Origin.DEFAULTED
        return Origin.DERIVED if flow.how == "derived" else Origin.MAPPED

    def _text(self, flow: Flow) -> Any:
        """The value, or the expression that stood for it where that still holds."""
        if isinstance(flow.value, (list, tuple)) and not flow.same:
            return [self._item_text(item, flow.keys) for item in flow.value]
        if not flow.same or len(flow.keys) != 1:
            return self._literal(flow.value, flow.keys)
        text = self.given.expressions.get(flow.keys[0])
        if text is None:
            return self._with_expressions(flow.value, flow.keys[0])
        names = _NODE.findall(text)
        if all(name in self._targets for name in names):
            text = _NODE.sub(lambda match: "${" + self._targets[match[1]] + "}", text)
            source = self.given.sources.get(flow.keys[0])
            own = self.table.typed or (source is not None and source.key == dotted(flow.to))
            number = isinstance(flow.value, (int, float)) and _VARIABLE.fullmatch(text)
            return f"${{oc.decode:{text}}}" if number and not own else text
        self._tell_resolved(flow.to, flow.value, next(name for name in names if name not in self._targets))
        return self._literal(flow.value, flow.keys)

    def _literal(self, value: Any, keys: Sequence[KeyPath]) -> Any:
        """A value as text: a ``${`` in what an expression gave is no expression itself, and is escaped."""
        if not isinstance(value, str) or "${" not in value:
            return value
        for path, text in self.given.expressions.items():
            if any(path[: len(key)] == key for key in keys):
                plain = find(self.given.plain, path)
                if isinstance(plain, str) and text != plain:
                    value = escaped(value, plain)
        return value

    def _item_text(self, item: Any, keys: Sequence[KeyPath]) -> Any:
        """An item of a list that was made of several values, or the expression of the value that it is."""
        if not isinstance(item, str):
            return item
        texts = (
            self.given.expressions[key]
            for key in keys
            if key in self.given.expressions and find(self.given.plain, key) == item
        )
        return next((text for text in texts if not _NODE.findall(text)), self._literal(item, keys))

    def _with_expressions(self, value: Any, path: KeyPath) -> Any:
        """A mapping or list with the expressions of what is in it."""
        inside = {key: text for key, text in self.given.expressions.items() if key[: len(path)] == path and key != path}
        if not inside or not isinstance(value, (Mapping, list)):
            return value
        tree: dict[str, Any] = {"value": to_plain(value)}
        for key, text in inside.items():
            if not _NODE.findall(text) and not isinstance(find(tree, ("value", *key[len(path) :])), Absent):
                put(tree, ("value", *key[len(path) :]), text)
        return tree["value"]

    @cached_property
    def _targets(self) -> dict[str, str]:
        """Canonical key to the dialect's key, where the value is the same; only keys that are written can be named."""
        return {canonical: name for name, canonical in reversed(list(self.table.plain.items()))}

    def _lose(self, lost: Inexpressible) -> None:
        for key in lost.keys:
            fate = self.out.fates.setdefault(key, WriteOutcome())
            if lost.idle:
                fate.kept = lost.reason
            else:
                fate.lost, fate.rounded = lost.reason, lost.rounded
        if not lost.idle and not any(self.given.is_explicit(key) for key in lost.keys):
            self._tell_silent(lost)

    def _tell_silent(self, lost: Inexpressible) -> None:
        """Say of a value that the source's silence means, and that cannot be said, that the two differ there."""
        meant = [key for key in lost.keys if key in self.given.sources]
        texts = [self._by_default(key) for key in meant if not isinstance(find(self.given.plain, key), (dict, list))]
        again = tuple(str(key[-1]) for key in meant), lost.reason
        if texts and again not in self.told_silent:
            self.told_silent.add(again)
            self.out.findings.append(
                finding(
                    "silent-difference_default",
                    Level.NOTE,
                    dotted(meant[0]),
                    values=together(texts, COMMAS),
                    reason=lost.reason,
                )
            )

    def _by_default(self, path: KeyPath) -> str:
        """A value that the source's silence means, as ``batch.shuffle is false``."""
        return said(
            "{key} is {value}", key=dotted(path), value=inline_text(find(self.given.plain, path), path, in_flow=True)
        )

    def _drop(self) -> None:
        """Say why of everything explicit that no rule took, and of silent differences that matter."""
        for path in self.given.sources:
            if path[:1] in (("extensions",), ("stages",)):
                continue
            if path in self.out.fates:
                self._unhandled(path)
                continue
            rule = self.table.dropped_at(path)
            if rule is None:
                self._unhandled(path)
                continue
            value = find(self.given.plain, path)
            neutral = _own_default(self.given.config, path) if isinstance(rule.neutral, Absent) else rule.neutral
            same = value == neutral
            explicit, reason = self.given.is_explicit(path), rule.why(self.dialect, path)
            fate = self.out.fates.setdefault(path, WriteOutcome())
            if explicit and rule.idle and isinstance(rule.neutral, Absent):
                fate.kept = reason
            elif same or isinstance(value, Absent):
                fate.notes.append(ALWAYS)
            elif explicit and rule.idle:
                fate.kept = reason
            elif explicit:
                fate.lost = reason
            elif rule.matters:
                fate.kept = reason
                self.out.findings.append(
                    finding(
                        "silent-difference_default",
                        Level.NOTE,
                        dotted(path),
                        values=self._by_default(path),
                        reason=reason,
                    )
                )

    def _unhandled(self, path: KeyPath) -> None:
        """Call an explicit value lost that no rule wrote anything for, unless it is the default or a rule says why."""
        value = find(self.given.plain, path)
        if not self.given.is_explicit(path) or isinstance(value, Absent):
            return
        if value == _default_at(path):
            if self.out.fate_of(path) is None:
                self.out.fates[path] = WriteOutcome(notes=[UNWRITTEN])
            return
        if isinstance(value, (dict, list)) and ".".join(str(p) for p in path if not isinstance(p, int)) in _sections():
            return
        fate = self.out.fate_of(path)
        if fate is None or not (fate.targets or fate.notes or fate.lost or fate.kept):
            self.out.fates.setdefault(path, WriteOutcome()).lost = lacking(self.dialect, path)

    def _put_back(self) -> None:
        kept = self.given.plain["extensions"].get(self.dialect, {})
        release = ".".join(map(str, self.version))
        for name, value in kept.items():
            path = _parsed(name)
            of = ("extensions", self.dialect, name)
            path = self._present(path)
            note = self.table.note_for(path, self.version)
            lacks = note is not None and note.kind == "dead" and not note.instead and note.applies(self.version)
            if lacks or release not in (self.table.releases(path) or (release,)):
                self.out.fates[of] = WriteOutcome(
                    lost=said(
                        "{framework} {release} has no such key", framework=framework(self.dialect), release=release
                    )
                )
                continue
            if not isinstance(find(self.out.values, path), Absent):
                defaulted = [entry for entry in self.out.origins if entry.key == name]
                if not defaulted or defaulted[0].origin is not Origin.DEFAULTED:
                    continue
                self.out.origins.remove(defaulted[0])
            put(self.out.values, path, value)
            written = dotted(path)
            self.out.origins.append(OriginEntry(written, Origin.CARRIED, value, "carried"))
            self.out.fates[of] = WriteOutcome([(written, value)], carried=True)

    def _present(self, path: KeyPath) -> KeyPath:
        """Where a release reads a key of one block; the place itself, unless a note names another block."""
        note = self.table.note_for(path, self.version)
        if note is None or not (note.applies(self.version) and note.instead and note.path[-1] == "**"):
            return path
        block = split(note.instead)
        return (*block[:-1], *path[len(note.path) - 1 :]) if block[-1] == "**" else path


def _parsed(name: str) -> KeyPath:
    from rlctl.documents import parse_dotted

    return parse_dotted(name)


@cache
def _defaults() -> dict[str, Any]:
    return dict(to_plain(Config()))


def _default_of(path: KeyPath) -> Any:
    return find(_defaults(), path)


def _own_default(config: Config, path: KeyPath) -> Any:
    """The schema's default of a field, as the chosen option has it: some estimators whiten by default."""
    usual = _default_of(path)
    section: Any = config
    for part in path[:-1]:
        section = getattr(section, str(part), None)
    cls: type = type(section)
    info = fields_of(cls).get(str(path[-1])) if isinstance(section, Choice) else None
    if isinstance(usual, Absent) or info is None:
        return usual
    return info.default if isinstance(info.default, (int, float, str)) else usual


def _default_at(path: KeyPath) -> Any:
    """The schema's default of a field, in list items, optional sections and options of choices too."""
    found = _default_of(path)
    if not isinstance(found, Absent):
        return found
    return _field_defaults().get(".".join(str(part) for part in path if not isinstance(part, int)), ABSENT)


def without_defaults(value: Any, path: KeyPath) -> Any:
    """Sources of data and rewards without what they have by default; anything else as it is."""
    known = NAMING.get(path)
    if known is None or not isinstance(value, list):
        return value
    return [
        {name: inner for name, inner in item.items() if name in known or inner != _default_of_item(path, item, name)}
        for item in value
    ]


def _default_of_item(path: KeyPath, item: Mapping[str, Any], name: str) -> Any:
    """The default of a value of a list's item, which may be that of the item's own type."""
    return _reward_defaults(item["type"]).get(name, ABSENT) if path == ("rewards",) else _default_at((*path, name))


@cache
def _reward_defaults(kind: str) -> dict[str, Any]:
    option = Reward.option(kind)
    cls: type | None = option[1] if option is not None else None
    found = fields_of(cls) if cls is not None else {}
    return {name: to_plain(info.default) for name, info in found.items()}


@cache
def _field_defaults() -> dict[str, Any]:
    return {key.path.replace("[]", "").replace("{}", ""): to_plain(key.info.default) for key in walk(Config)}


@cache
def _sections() -> frozenset[str]:
    """The canonical keys that only hold further keys."""
    return frozenset(key.path.replace("[]", "").replace("{}", "") for key in walk(Config) if key.is_section)


def write_by_table(
    table: Table, version: Version, given: ConfigWithOrigins, options: Mapping[str, str], *, dialect: str = ""
) -> Written:
    """Write a config by a table."""
    return Writer(table, version, given, options, dialect).run()
