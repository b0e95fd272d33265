"""Reading any dialect by its table: the flows of all rules become a config, and every leaf of the text gets its bucket."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, get_args

from rlctl.adapters.engine.misspelled import NearestKeys
from rlctl.adapters.engine.restoring import (
    AGENTS,
    DATA,
    WHOLE,
    Restoring,
    changed_leaves,
    is_same_item,
    keys_below,
    sections_first,
)
from rlctl.adapters.engine.rules import (
    ABSENT,
    Absent,
    BadValueError,
    DefaultFrom,
    DialectKey,
    Flow,
    Noted,
    Rule,
    Version,
    not_one_of,
    split,
)
from rlctl.adapters.engine.secrets import is_secret
from rlctl.adapters.engine.table import Table, generic
from rlctl.adapters.engine.tree import find, missing_section, put, remove, type_choices
from rlctl.common.errors import ConfigError, Location
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said, together
from rlctl.common.numbers import is_number
from rlctl.common.records import record
from rlctl.common.report import Bucket, Entry, Finding, Level, Report, finding
from rlctl.common.report_lines import release
from rlctl.config import Config, Loaded, Source, build_config, to_plain
from rlctl.config.build import KINDS, shown
from rlctl.config.inspect import walk
from rlctl.config.load import put as link
from rlctl.documents import Comment, Document, KeyPath, Resolved, dotted, escaped, resolve
from rlctl.documents.paths import copied
from rlctl.documents.scalars import plain_value

_NODE = re.compile(r"(?<!\\)\$\{([A-Za-z_][\w.]*)\}")
_MAX_SUGGESTIONS = 25
_SAMPLES = ("a", 0.5, 2, True, ["a"], {"a": 1})
"""A value of each kind, to find what a rule reads."""


@record
class TextView:
    """The values of a text over the dialect's defaults, as rules see them."""

    table: Table
    version: Version
    values: Mapping[Any, Any]
    options: Mapping[str, str]
    root: KeyPath = ()
    target: KeyPath = ()

    def get(self, key: str, default: Any = None) -> Any:
        value = find(self.values, self.path(key))
        if isinstance(value, Absent):
            value = self._default(self.path(key))
        return default if isinstance(value, Absent) else value

    def written(self, *keys: str) -> bool:
        return any(not isinstance(find(self.values, self.path(key)), Absent) for key in keys)

    def path(self, key: str) -> KeyPath:
        return self.root + split(key)

    def to(self, canonical: str) -> KeyPath:
        return self.target + split(canonical)

    def inside(self, key: str | KeyPath, canonical: str | KeyPath) -> TextView:
        root = self.path(key) if isinstance(key, str) else self.root + key
        target = self.to(canonical) if isinstance(canonical, str) else self.target + canonical
        return TextView(self.table, self.version, self.values, self.options, root, target)

    def default(self, key: DialectKey) -> Any:
        return self._follow(self.table.default_of(key, self.path(key.name), self.version))

    def has(self, key: DialectKey) -> bool:
        return self.table.has(key, self.path(key.name), self.version)

    def _default(self, path: KeyPath) -> Any:
        return self._follow(self.table.default_at(path, self.version))

    def _follow(self, value: Any) -> Any:
        if isinstance(value, DefaultFrom):
            top = TextView(self.table, self.version, self.values, self.options)
            return top.get(value.key, value.otherwise)
        if isinstance(value, str) and "${" in value:
            top = TextView(self.table, self.version, self.values, self.options)
            return _NODE.sub(lambda match: str(top.get(match[1], match[0])), value)
        return value


@record
class RecordingView(TextView):
    """A view that records which keys a rule asks for."""

    asked: list[KeyPath] = field(default_factory=list)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.append(self.path(key))
        return super().get(key, default)

    def inside(self, key: str | KeyPath, canonical: str | KeyPath) -> RecordingView:
        inner = super().inside(key, canonical)
        return RecordingView(self.table, self.version, self.values, self.options, inner.root, inner.target, self.asked)


@dataclass
class Read:
    """What came of reading one text by one table."""

    config: Config | None
    loaded: Loaded | None
    report: Report
    implied: Mapping[KeyPath, tuple[KeyPath, ...]] = field(default_factory=dict)
    """Canonical values that a kept one overrules, with the text's keys that imply them."""
    stated: Mapping[KeyPath, tuple[KeyPath, ...]] = field(default_factory=dict)
    """Canonical values that the text states, with the keys that state them."""

    def causes_of(self, place: KeyPath, kept: Any) -> Iterator[KeyPath]:
        """The text's keys that a value kept for a canonical place overrules; most lists are put back item by item."""
        for path, keys in self.implied.items():
            yield from keys if path[: len(place)] == place else ()
        if not isinstance(kept, list) or place == AGENTS or self.config is None:
            yield from keys_below(place, self.stated)
            return
        items = find(to_plain(self.config), place)
        if place in WHOLE and (len(items) != len(kept) or not all(map(is_same_item, items, kept))):
            yield from keys_below(place, self.stated)
        elif (place in WHOLE or place[0] == DATA) and len(items) == len(kept):
            for leaf in changed_leaves(items, kept):
                yield from keys_below((*place, *leaf), self.stated)


@dataclass
class Reader:
    """Reads one document by one table, keeping both ledgers."""

    dialect: str
    table: Table
    version: Version
    document: Document
    resolved: Resolved
    options: Mapping[str, str]
    composed: bool = False
    """Whether the text is a release's whole composed config, so that a key at its default is no one's wish."""
    restored: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Carried keys found in the text, by dialect."""
    environment: Mapping[str, str] | None = None
    """What ``${oc.env:...}`` reads; the process's own environment if None."""
    tree: dict[str, Any] = field(default_factory=dict)
    used: dict[KeyPath, list[tuple[Flow, str]]] = field(default_factory=dict)
    sources: dict[KeyPath, Source] = field(default_factory=dict)
    expressions: dict[KeyPath, str] = field(default_factory=dict)
    written_as: dict[KeyPath, str] = field(default_factory=dict)
    """The interpolation that a canonical value was computed from, in the words of the dialect."""
    comments: dict[KeyPath, Comment] = field(default_factory=dict)
    implied: dict[KeyPath, tuple[Any, tuple[KeyPath, ...]]] = field(default_factory=dict)
    """Canonical values that follow from a key that says something else, with what was there before."""
    stated: dict[KeyPath, tuple[KeyPath, ...]] = field(default_factory=dict)
    """Canonical values that the text states, with the leaves that state them."""
    findings: list[Finding] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def run(self) -> Read:
        """Read everything."""
        leaves = dict(self.document.leaves())
        flows = self._flows()
        self._place(flows, leaves)
        self._account(leaves)
        self._refuse_unset(leaves)
        self._refuse_other_kinds(leaves)
        self._refuse_replaced()
        self._tell_resolved(leaves)
        implied = {path: keys for path, (_, keys) in self.implied.items()}
        links = Restoring(
            self.document,
            self.restored,
            self.tree,
            self.sources,
            self.expressions,
            self.written_as,
            self.implied,
            self.stated,
            self.findings,
            self.environment,
        ).run()
        type_choices(self.tree)
        config, problems = build_config(self.tree, locate=self._locate, expressions=self.written_as | self.expressions)
        refused = {finding.key for finding in self.findings if finding.level is Level.ERROR}
        explained = [self._explained(problem) for problem in problems]
        self.findings += [problem for problem in explained if problem.key not in refused]
        report = Report(dialect=self.dialect, findings=self.findings, accounting=self.entries)
        if config is None or report.errors:
            return Read(None, None, report)
        comments = {**self._head, **self.comments}
        loaded = Loaded(config, self.sources, self.expressions, comments, (self.document.name,))
        for path, line in links.items():
            loaded = self._linked(loaded, path, line)
        return Read(loaded.config, loaded, report, implied, self.stated)

    # Rules to flows

    def _flows(self) -> list[Flow]:
        view = TextView(self.table, self.version, self._alive(), self.options)
        found: list[Flow] = []
        for rule in self.table.rules:
            found += self._of(rule, view)
        return found

    def _alive(self) -> Mapping[Any, Any]:
        """The values without those of keys that this release accepts and ignores, and without those still to be set (``???``)."""
        ignored = [leaf for leaf, _ in self.document.leaves() if self._is_ignored(leaf)] + list(self.resolved.missing)
        values = copied(self.resolved.values) if ignored else self.resolved.values
        for leaf in ignored:
            remove(values, leaf)
        return values

    def _is_ignored(self, leaf: KeyPath) -> bool:
        key = self.table.key_at(leaf)
        if key is None or self.table.has(key, leaf, self.version):
            return False
        note = self.table.note_for(leaf, self.version)
        return note is not None and note.kind == "dead" and note.applies(self.version)

    def _of(self, rule: Rule, view: TextView) -> list[Flow]:
        try:
            return list(rule.read(view))
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
            named = error.key if isinstance(error, BadValueError) else ()
            leaf = named or self._culprit(rule, view)
            if leaf is None:
                raise
            finding = self._bad_value(leaf, error, self._expected(leaf, rule, view))
            if finding not in self.findings:
                self.findings.append(finding)
            return [Flow((), None, tuple(view.path(key.name) for key in rule.keys), "mapped", finding.message)]

    def _culprit(self, rule: Rule, view: TextView) -> KeyPath | None:
        """The leaf of the text without which a failing rule reads; None if no single one is to blame: the rule has a bug."""
        recording = RecordingView(self.table, self.version, view.values, self.options)
        with contextlib.suppress(Exception):
            list(rule.read(recording))
        asked = [*reversed(recording.asked), *(view.path(key.name) for key in rule.keys)]
        leaves = dict.fromkeys([leaf for path in asked for leaf in self._leaves_at(path)])
        lists = {path[:length]: None for path in leaves for length in range(len(path) - 1, 0, -1)}
        blamed = [leaf for leaf in (*leaves, *lists) if self._reads_without(leaf, rule, view)]
        return min(blamed, key=lambda leaf: self._has_expected_type(leaf, view), default=None)

    def _reads_without(self, leaf: KeyPath, rule: Rule, view: TextView) -> bool:
        return self._reads_with(ABSENT, leaf, rule, view)

    def _reads_with(self, value: Any, leaf: KeyPath, rule: Rule, view: TextView) -> bool:
        values = copied(view.values)
        if value is ABSENT:
            remove(values, leaf)
        else:
            put(values, leaf, value)
        try:
            list(rule.read(TextView(self.table, self.version, values, self.options)))
        except Exception:  # noqa: BLE001
            return False
        return True

    def _has_expected_type(self, leaf: KeyPath, view: TextView) -> bool:
        default = self._default_at(leaf)
        return default in (None, ABSENT) or isinstance(find(view.values, leaf), type(default))

    def _bad_value(self, leaf: KeyPath, error: Exception, expected: str = "") -> Finding:
        name, at = dotted(leaf), self.document.at(leaf)
        value, raw = find(self.resolved.values, leaf), find(self.document.values, leaf)
        if isinstance(value, str) and "${" in value and self._reasons(name):
            return self._unresolved(name, at)
        if isinstance(error, BadValueError):
            return finding("bad-value_reason", Level.ERROR, name, at, reason=self._as_written(error.args[0], leaf))
        expected = expected or self._kind_of_default(leaf)
        return finding("bad-value", Level.ERROR, name, at, value=shown(raw), expected=expected)

    def _kind_of_default(self, leaf: KeyPath) -> str:
        default, kind = self._default_at(leaf), KINDS.get(type(find(self.resolved.values, leaf)), "a value")
        key = self.table.key_at(leaf)
        takes = key.takes if key is not None and isinstance(key.takes, type) else type(default)
        expected = KINDS.get(takes, kind)
        if type(default) is int:
            filled = [rule.canonical for rule in self.table.rules if leaf in [key.path for key in rule.keys]]
            expected = _number(itertools.chain(*filled), expected)
        return "a different value" if expected == kind else expected

    def _expected(self, leaf: KeyPath, rule: Rule, view: TextView) -> str:
        """What a key without a default takes, by the values that its rule reads; empty if it has a default, which tells."""
        if type(self._default_at(leaf)) in KINDS:
            return ""
        value = find(self.resolved.values, leaf)
        samples = (sample for sample in _SAMPLES if type(sample) is not type(value))
        read = next((sample for sample in samples if self._reads_with(sample, leaf, rule, view)), None)
        return _number(rule.canonical, "a number") if type(read) is float else KINDS.get(type(read), "")

    def _unresolved(self, key: str, at: Location | None) -> Finding:
        why = next(iter(self._reasons(key)), "it has no value on this machine")
        return finding("unresolved", Level.ERROR, key, at, reason=why)

    def _reasons(self, key: str) -> list[str]:
        """Why an expression has no value; none where it has one, or stands for a secret of the environment."""
        return [why for place, why in self.resolved.unresolved.items() if dotted(place) == key]

    def _as_written(self, text: str, path: KeyPath) -> str:
        """A message on a value, with the interpolation that was written for it."""
        raw, value = find(self.document.values, path), find(self.resolved.values, path)
        return text.replace(str(value), raw) if isinstance(raw, str) and "${" in raw and str(value) else text

    def _place(self, flows: Sequence[Flow], leaves: Mapping[KeyPath, Any]) -> None:
        """Put the values of flows into the canonical tree: sections and choices first, then what they hold."""
        taken: dict[KeyPath, bool] = {}
        for flow in sorted(flows, key=_order):
            written = [leaf for key in flow.keys for leaf in self._leaves_at(key)]
            if not flow.to:
                self._use(written, flow, "")
                continue
            explicit = any(not self._silent(leaf, leaves[leaf]) for leaf in written)
            if flow.to in taken and (taken[flow.to] or not explicit):
                self._use(written, flow, "" if not explicit else said("{to} is set by another key", to=dotted(flow.to)))
                continue
            if isinstance(flow.value, Mapping) and not flow.value and find(self.tree, flow.to):
                self._use(written, flow, "")
                continue
            problem = missing_section(flow.to, self.tree)
            self._use(written, flow, problem)
            if problem:
                continue
            taken[flow.to] = explicit
            if flow.implied:
                self.implied[flow.to] = (find(self.tree, flow.to), flow.keys)
            put(self.tree, flow.to, self._as_it_is(flow, written))
            if explicit:
                self.stated[flow.to] = tuple(written)
            self._remember(flow, written, explicit)

    def _as_it_is(self, flow: Flow, written: Sequence[KeyPath]) -> Any:
        """The value of a flow, but the mapping that an expression stands for instead of text made of it, to be refused as one."""
        resolved = find(self.resolved.values, written[0]) if written and isinstance(flow.value, str) else None
        return resolved if isinstance(resolved, Mapping) and flow.value == str(resolved) else flow.value

    def _leaves_at(self, key: KeyPath) -> list[KeyPath]:
        """The leaves at or below a key; for one inside a block that is named as a whole, ``${block}``, the leaf that names it."""
        found = self._below.get(key, [])
        if found or isinstance(find(self.resolved.values, key), Absent):
            return found
        above = (key[:length] for length in range(len(key) - 1, 0, -1))
        return next(([leaf] for leaf in above if self._below.get(leaf) == [leaf]), [])

    @property
    def _below(self) -> dict[KeyPath, list[KeyPath]]:
        if not hasattr(self, "_index"):
            index: dict[KeyPath, list[KeyPath]] = {}
            for path, _ in self.document.leaves():
                for length in range(1, len(path) + 1):
                    index.setdefault(path[:length], []).append(path)
            self._index = index
        return self._index

    def _use(self, written: Sequence[KeyPath], flow: Flow, problem: str) -> None:
        for leaf in written:
            self.used.setdefault(leaf, []).append((flow, problem))

    def _silent(self, leaf: KeyPath, value: Any) -> bool:
        """Whether a written leaf only repeats the default of a composed file."""
        explicit = self.document.explicit
        if explicit is not None and any(leaf[: len(path)] == path or path[: len(leaf)] == leaf for path in explicit):
            return False
        if not self.composed and explicit is None:
            return False
        default = self._default_alone(leaf)
        resolved = find(self.resolved.values, leaf)
        if not isinstance(default, Absent):
            return bool(default == resolved)
        refers = isinstance(value, str) and "${" in value and "oc.env" not in value
        return refers or resolved is False or resolved in (None, "", [], {})

    def _default_alone(self, leaf: KeyPath) -> Any:
        """The default of a key in a file that sets no other."""
        if leaf not in self._defaults_alone:
            view = TextView(self.table, self.version, {}, {})
            self._defaults_alone[leaf] = view.get(dotted_key(leaf), ABSENT)
        return self._defaults_alone[leaf]

    @cached_property
    def _defaults_alone(self) -> dict[KeyPath, Any]:
        return {}

    def _remember(self, flow: Flow, written: Sequence[KeyPath], explicit: bool) -> None:
        leaf = written[0] if written else None
        at = self.document.at(leaf) if leaf is not None else None
        raw = find(self.document.values, leaf) if leaf is not None else None
        name = dotted(leaf) if leaf is not None else ", ".join(dotted(key) for key in flow.keys[:2])
        if not explicit:
            self.sources[flow.to] = Source("dialect_default", name, at)
            if leaf is not None and leaf not in self.resolved.unresolved:
                self._remember_literal(flow.value, flow.to)
            return
        expression = raw if isinstance(raw, str) and "${" in raw else None
        if expression:
            self.written_as[flow.to] = expression
        is_override = at is not None and not at.file.endswith((".yaml", ".yml")) and at.file != self.document.name
        raws = (find(self.document.values, place) for place in written)
        kind = (
            "environment"
            if any("oc.env" in raw for raw in raws if isinstance(raw, str))
            else "override"
            if is_override
            else "file"
        )
        self.sources[flow.to] = Source(kind, name, at)  # type: ignore[arg-type]
        if flow.same and isinstance(flow.value, (Mapping, list, tuple)):
            self._remember_inside(flow)
        elif expression and flow.same and (text := self._canonical_expression(expression)):
            self.expressions[flow.to] = text
        elif isinstance(raw, list) and isinstance(flow.value, str) and leaf is not None:
            self._remember_item(raw, find(self.resolved.values, leaf), flow)
        if not any(place[: len(leaf)] == leaf for place in self.resolved.unresolved for leaf in written):
            self._remember_literal(flow.value, flow.to)
        if (place := next((place for place in written if place in self._comments), None)) is not None:
            told, own = self._comments[place], flow.how == "mapped" and find(self.resolved.values, place) == flow.value
            self.comments.setdefault(flow.to, told if own else told.about(dotted(place)))

    @property
    def _head(self) -> dict[KeyPath, Comment]:
        """The comment at the head, and above a first key that is a section; that of a composed config says how it was made."""
        notes = self.document.comments
        first = notes.get(tuple(self.document.values)[:1], Comment()) if self._opens_with_section else Comment()
        above = (*notes.get((), Comment()).above, *first.above)
        return {(): Comment(above)} if above and not self.composed else {}

    @property
    def _opens_with_section(self) -> bool:
        return isinstance(next(iter(self.document.values.values()), None), Mapping)

    @cached_property
    def _comments(self) -> dict[KeyPath, Comment]:
        """The comments of each leaf, with those in it and, for the first leaf of a section, those of the section."""
        found: dict[KeyPath, Comment] = {}
        told: set[KeyPath] = {()}
        notes = self.document.comments
        if self._opens_with_section and (first := tuple(self.document.values)[:1]) in notes:
            notes = {
                **notes,
                first: replace(notes[first], above=()),
            }  # the document's own, which is not of its first leaf
        for leaf, _ in self.document.leaves() if set(notes) - {()} else ():
            sections = [leaf[:length] for length in range(1, len(leaf)) if leaf[:length] not in told]
            told.update(sections)
            above = [
                line for place in sections if place in notes for line in (*notes[place].above, notes[place].beside)
            ]
            own = notes.get(leaf, Comment())
            inside = [note for place, note in notes.items() if len(place) > len(leaf) and place[: len(leaf)] == leaf]
            above += [*own.above, *(line for note in inside for line in (*note.above, note.beside))]
            if any(above) or own.beside:
                found[leaf] = Comment(tuple(line for line in above if line), own.beside)
        return found

    def _remember_inside(self, flow: Flow) -> None:
        """The expressions in a mapping or list that went over whole."""
        for key in flow.keys:
            for leaf in self._leaves_at(key):
                inside = leaf[len(key) :] or (leaf[-1:] if isinstance(flow.value, Mapping) else ())
                self._remember_text(find(self.document.values, leaf), flow.to + inside, flow)

    def _remember_literal(self, value: Any, to: KeyPath) -> None:
        """The text of a ``${`` that is no expression: an escape or a variable of the environment gave it."""
        if isinstance(value, str) and "${" in value and to not in self.expressions:
            if (text := escaped(value)) != value:
                self.expressions[to] = text
        elif isinstance(value, (Mapping, list, tuple)):
            for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
                self._remember_literal(inner, (*to, name))

    def _remember_item(self, raw: Sequence[Any], resolved: Any, flow: Flow) -> None:
        """The expression of the item of a list that a value is."""
        items = zip(raw, resolved, strict=True) if isinstance(resolved, list) and len(resolved) == len(raw) else ()
        found = next((text for text, item in items if item == flow.value and isinstance(text, str)), "")
        if "${" in found and (text := self._canonical_expression(found)):
            self.expressions[flow.to] = text

    def _remember_text(self, raw: Any, to: KeyPath, flow: Flow) -> None:
        if isinstance(raw, (list, tuple)):
            for index, item in enumerate(raw):
                self._remember_text(item, (*to, index), flow)
            return
        there = isinstance(raw, str) and "${" in raw and not isinstance(find(self.tree, to), Absent)
        if there and (text := self._canonical_expression(str(raw))):
            self.expressions[to] = text

    def _canonical_expression(self, text: str) -> str:
        """An expression with the dialect's keys renamed to canonical ones; empty where one of them has no plain counterpart."""
        names = _NODE.findall(text)
        if any(name not in self._plain for name in names) or "${oc.select" in text or "${." in text:
            return ""
        return _NODE.sub(lambda match: "${" + self._plain[match[1]] + "}", text)

    @property
    def _plain(self) -> dict[str, str]:
        return self.table.plain

    def _refuse_unset(self, leaves: Mapping[KeyPath, Any]) -> None:
        """Refuse values that have to be set and are not, and expressions that the framework cannot resolve either.

        A key that the framework ignores may stay ``???``; it resolves every expression of a config, ignored or not. Where an
        expression names a key whose default rlctl does not know, it has no value that a canonical key could take.
        """
        for leaf in self.resolved.missing:
            entry = self._entry_at.get(dotted(_of_item(leaf)))
            ignored = entry is None or entry.bucket in (Bucket.DEAD, Bucket.UNKNOWN)
            if not ignored and not self._is_default_of_composed(leaf):
                self.findings.append(finding("missing-value", Level.ERROR, dotted(leaf), self.document.at(leaf)))
        for leaf, key in self.resolved.dangling.items():
            known = bool(key) and self.table.knows(split(key), self.version)
            place = next((leaf[:length] for length in range(len(leaf), 0, -1) if leaf[:length] in leaves), None)
            ignored = known or (bool(key) and place is not None and self._silent(place, leaves[place]))
            if place is not None and (self._used(leaf) or not ignored):
                name, at = dotted(leaf), self.document.at(leaf)
                text, reason = find(self.document.values, leaf), self.resolved.unresolved[leaf]
                self.findings.append(finding("unresolved_key", Level.ERROR, name, at, value=text, reason=reason))

    def _used(self, leaf: KeyPath) -> bool:
        """Whether a leaf, or a mapping around it, became a canonical value."""
        around = (leaf[:length] for length in range(1, len(leaf) + 1))
        return any(flow.to and not problem for path in around for flow, problem in self.used.get(path, ()))

    def _refuse_other_kinds(self, leaves: Mapping[KeyPath, Any]) -> None:
        """Refuse a value that is none of those that its key takes, unless the key has no effect.

        A rule may fall back to the default: the config would then say something else than the text.
        """
        refused = {finding.key for finding in self.findings if finding.level is Level.ERROR}
        seen: set[KeyPath] = set()
        for leaf in leaves:
            bucket = self._entry_at[dotted(leaf)].bucket
            # A rule that cannot compute with a value may leave it: then it is carried, and the default would be used.
            left = bucket is Bucket.CARRIED and "${" not in str(find(self.resolved.values, leaf))
            effective = left or bucket in (Bucket.MAPPED, Bucket.DERIVED)
            inside = (leaf[:-1],) if bucket is not Bucket.DEAD else ()
            for key in (*((leaf,) if effective else ()), *inside) if leaf not in self.resolved.missing else ():
                if key in seen:
                    continue
                seen.add(key)
                error = self._of_other_kind(key) if dotted(key) not in refused else None
                if error is not None:
                    self.findings.append(self._bad_value(key, error))
                    refused.add(dotted(key))

    def _of_other_kind(self, path: KeyPath) -> Exception | None:
        """What is wrong with a value that its key does not take; None if nothing is."""
        key, value = self.table.key_at(path) if path else None, find(self.resolved.values, path)
        if key is None or key.words or not self.table.has(key, path, self.version) or isinstance(value, Absent):
            return None
        if isinstance(key.takes, tuple):
            known = isinstance(value, str) and (value in key.takes or "${" in value)
            return None if value is None or known else BadValueError(not_one_of(value, key.takes))
        default = self._default_at(path)
        kind = key.takes or (float if is_number(default) else bool if isinstance(default, bool) else None)
        if kind is float:
            return TypeError() if _is_no_number(value) else None
        wrong = {bool: (str, list, dict), list: (str, dict), dict: (str, list)}.get(kind, ()) if kind else ()
        return TypeError() if isinstance(value, wrong) and value else None

    def _refuse_replaced(self) -> None:
        """Refuse an expression without a value here that a rule replaced by something else, such as a default.

        It is for a variable that is not set, or that holds a secret. What carries the text on, such as a path, is fine.
        """
        refused = {finding.key for finding in self.findings if finding.level is Level.ERROR}
        tree = self.tree if self.resolved.expressions else {}
        meant = list(_texts({name: value for name, value in tree.items() if name != "extensions"}))
        kept = [*meant, *_texts(tree.get("extensions", {}))]
        for leaf, written in self.resolved.expressions.items():
            value = find(self.resolved.values, leaf)
            if not isinstance(value, str) or "${" not in value or dotted(leaf) in refused:
                continue
            if leaf in self.resolved.unresolved and "oc.env" not in written:
                continue  # it names a key that is refused itself, or a mapping with one that nobody uses
            uses = self.used.get(leaf, ())
            live = any(flow.to and not problem for flow, problem in uses) or (not uses and self._is_known(leaf))
            texts = kept if self._of_other_kind(leaf) is None else meant  # a number that is kept is not set either
            if live and not any(value in each for each in texts):
                self.findings.append(self._bad_value(leaf, TypeError()))

    def _default_at(self, path: KeyPath) -> Any:
        """The default of a key, or of the one that its default follows."""
        default = self.table.default_at(path, self.version)
        while isinstance(default, DefaultFrom):
            default = self.table.default_at(split(default.key), self.version)
        return default

    @cached_property
    def _entry_at(self) -> dict[str, Entry]:
        return {entry.key: entry for entry in self.entries}

    def _is_default_of_composed(self, leaf: KeyPath) -> bool:
        """Whether a release's composed config leaves the key open, and nobody has set it."""
        explicit = self.document.explicit
        said = explicit is not None and any(leaf[: len(path)] == path for path in explicit)
        return (self.composed or explicit is not None) and not said

    def _tell_resolved(self, leaves: Mapping[KeyPath, Any]) -> None:
        """Say of an interpolation of another key that it does not survive, because what it names is not one canonical key."""
        for leaf, value in leaves.items():
            if not isinstance(value, str) or not _NODE.search(value) or self._silent(leaf, value):
                continue
            live = [flow for flow, problem in self.used.get(leaf, ()) if flow.to and not problem]
            if live and not any(flow.to in self.expressions for flow in live):
                at = self.document.at(leaf)
                self.findings.append(finding("interpolation-resolved", Level.NOTE, dotted(leaf), at, value=value))

    # The source's ledger

    def _account(self, leaves: Mapping[KeyPath, Any]) -> None:
        unknown = 0
        for leaf, value in leaves.items():
            shown = "***" if is_secret(leaf) and "${" not in str(value) else value
            if leaf in self.resolved.missing and self.table.key_at(leaf) is not None:
                self._use([leaf], Flow((), None, (leaf,), "mapped", "not set yet; the default applies"), "")
            if leaf in self.used:
                self.entries.append(self._used_entry(leaf, shown))
                continue
            if value is None and self._is_known(leaf):
                self.entries.append(Entry(dotted(leaf), Bucket.MAPPED, None, self.document.at(leaf), (), "the default"))
                continue
            if value in ({}, None) and self.table.is_section(leaf, self.version, self._release):
                note = "an empty section sets nothing"
                self.entries.append(Entry(dotted(leaf), Bucket.MAPPED, shown, self.document.at(leaf), (), note))
                continue
            entry = self._noted_entry(leaf, shown)
            if entry.bucket is Bucket.UNKNOWN:
                unknown += 1
                near = self._nearest.suggestion(leaf) if unknown <= _MAX_SUGGESTIONS else ""
                found = finding(
                    "unknown-key",
                    Level.WARNING,
                    entry.key,
                    self.document.key_at(leaf),
                    framework=release(self.dialect),
                    near=near or "none",
                )
                entry = Entry(entry.key, Bucket.UNKNOWN, shown, entry.at, (), found.hint)
                added = self._is_added(leaf)
                meant = "" if added else self._nearest.misspelled(leaf)
                self.findings.append(replace(found, meant=meant, added=added))
            self.entries.append(entry)

    def _is_known(self, leaf: KeyPath) -> bool:
        """Whether a rule reads the key, so that it is no unknown one even if no rule could use its value."""
        key = self.table.key_at(leaf)
        return (
            key is not None
            and self.table.has(key, leaf, self.version)
            and self.table.note_for(leaf, self.version) is None
        )

    def _used_entry(self, leaf: KeyPath, value: Any) -> Entry:
        uses = self.used[leaf]
        live = [flow for flow, problem in uses if not problem and flow.to]
        at = self.document.at(leaf)
        if not live:
            flow, problem = uses[0]
            note = problem or flow.note
            bucket = Bucket.DEAD if problem or flow.how == "dead" else Bucket.MAPPED
            if flow.misleads:
                self._tell_unread(leaf, flow.note, flow.instead)
            return Entry(dotted(leaf), bucket, value, at, (), note)
        bucket = Bucket.DERIVED if any(flow.how == "derived" for flow in live) else Bucket.MAPPED
        refers = isinstance(value, str) and "${" in value
        targets = tuple((dotted(flow.to), value if refers and flow.same else flow.value) for flow in live)
        note = together(flow.note for flow in live)
        return Entry(dotted(leaf), bucket, value, at, targets, note, silent=self._silent(leaf, value))

    def _noted_entry(self, leaf: KeyPath, value: Any) -> Entry:
        at, name = self.document.at(leaf), dotted(leaf)
        note = self.table.note_for(leaf, self.version)
        releases = self.table.releases(leaf)
        if note is None and releases is None:
            return Entry(name, Bucket.UNKNOWN, value, at, ())
        if note is None or note.kind == "carried":
            return self._carry(leaf, value, note, at)
        bucket = Bucket.DEAD if note.kind == "dead" else Bucket.UNSUPPORTED
        if note.misleads:
            whole = len(note.path) - 1 if note.path[-1] == "**" else len(leaf)
            self._tell_unread(leaf, note.reason, note.read_instead(leaf), whole)
        if bucket is Bucket.UNSUPPORTED and self._silent(leaf, value):
            return Entry(name, Bucket.MAPPED, value, at, (), "the default")
        if bucket is Bucket.UNSUPPORTED and not is_secret(leaf):
            self._keep(leaf)
        return Entry(name, bucket, value, at, (), note.reason)

    def _tell_unread(self, leaf: KeyPath, reason: str, read: KeyPath, whole: int | None = None) -> None:
        """Warn of a reward, data or a loss that the framework does not read, once for a block.

        Not of a key that asks for nothing, or for the value of the key that is read.

        Args:
            leaf: that is not read.
            reason: why not.
            read: the key that is read instead; empty if there is none.
            whole: the length of the block's path, if a block is not read.
        """
        value = find(self.resolved.values, leaf)
        view = TextView(self.table, self.version, self.resolved.values, self.options)
        if not value or self._silent(leaf, value) or (read and view.get(dotted_key(read), ABSENT) == value):
            return
        left = len(leaf) - (len(leaf) if whole is None else whole)
        key, instead = (dotted(path[: len(path) - left]) for path in (leaf, read))
        told = finding(
            "key-unread",
            Level.WARNING,
            key,
            self.document.at(leaf),
            framework=release(self.dialect),
            reason=reason,
            instead=instead or "none",
        )
        if not any(item.code == told.code and item.key == told.key for item in self.findings):
            self.findings.append(told)

    def _carry(self, leaf: KeyPath, value: Any, note: Noted | None, at: Location) -> Entry:
        reason = note.reason if note else said("means something only in {dialect}", dialect=self.dialect.split("@")[0])
        name = dotted(leaf)
        if is_secret(leaf):
            self.findings.append(finding("secret_carried", Level.WARNING, name, at))
            return Entry(name, Bucket.UNSUPPORTED, value, at, (), "rlctl never copies secrets")
        if self._silent(leaf, value):
            return Entry(
                name, Bucket.CARRIED, value, at, (), said("{reason}; at its default, so omitted", reason=reason)
            )
        target = self._keep(leaf)
        return Entry(name, Bucket.CARRIED, value, at, ((dotted(target), value),), reason)

    def _keep(self, leaf: KeyPath) -> KeyPath:
        target = ("extensions", self.dialect.split("@")[0], dotted(leaf))
        put(self.tree, target, self._kept_text(leaf))
        self.sources[target] = Source("file", dotted(leaf), self.document.at(leaf))
        return target

    def _kept_text(self, leaf: KeyPath) -> Any:
        """The value of a key that is kept; of an expression that names a key which is not written again, the number."""
        raw = find(self.document.values, leaf)
        names = _NODE.findall(raw) if isinstance(raw, str) else ()
        written_again = all(name in self._plain or self._is_kept(split(name)) for name in names)
        value = find(self.resolved.values, leaf)
        is_known = leaf not in self.resolved.unresolved and not isinstance(value, (Mapping, list, tuple))
        return value if is_known and not written_again else raw

    def _is_kept(self, path: KeyPath) -> bool:
        note = self.table.note_for(path, self.version)
        return note is not None and note.kind == "carried"

    def _linked(self, loaded: Loaded, path: KeyPath, text: str) -> Loaded:
        """The config with a restored value that refers to other keys; without it if those keys are gone."""
        try:
            return link(loaded, path, text, environment=self.environment)
        except ConfigError as error:
            at = Location(self.document.name)
            self.findings.append(
                finding(
                    "not-restored", Level.NOTE, dotted(path), at, reason=said("{text}: {error}", text=text, error=error)
                )
            )
            return loaded

    @cached_property
    def _nearest(self) -> NearestKeys:
        return NearestKeys(self.table, self._release, (leaf for leaf, _ in self.document.leaves()))

    @property
    def _release(self) -> str:
        return self.dialect.partition("@")[2]

    def _is_added(self, leaf: KeyPath) -> bool:
        """Whether an override adds the key with ``+``, as Hydra asks for keys that a config does not have."""
        parts = tuple(map(str, leaf))
        return any(parts[:length] in self.document.added for length in range(1, len(parts) + 1))

    # Problems of the config, told at the place in the text

    def _locate(self, canonical: KeyPath) -> Location | None:
        for length in range(len(canonical), 0, -1):
            source = self.sources.get(canonical[:length])
            if source is not None and source.at is not None:
                return source.at
        return None

    def _explained(self, problem: Finding) -> Finding:
        path = next((path for path in self.sources if dotted(path) == problem.key), None)
        source = self.sources.get(path) if path else None
        if path is None or source is None:
            return problem
        value = find(self.tree, path)
        if isinstance(value, str) and "${" in value and self._reasons(source.key):
            return self._unresolved(source.key, source.at)
        message = problem.message
        if source.key != problem.key and f"'{problem.key}'" in message and self._same_at(source.key, value):
            message = message.replace(f"'{problem.key}'", f"'{source.key}'", 1)
        elif source.key != problem.key:
            message = text("read-from", message=message, source=source.key)
        return replace(problem, message=message, key=source.key or problem.key, at=source.at)

    def _same_at(self, key: str, value: Any) -> bool:
        """Whether a key of the file has this value itself, so that a problem of the value can be told under that key."""
        theirs = find(self.document.values, split(key))
        return type(theirs) is type(value) and bool(theirs == value)


def _is_no_number(value: Any) -> bool:
    """Whether a value is of another type; text that spells a number is left to the rules."""
    if not isinstance(value, str):
        return isinstance(value, (list, dict))
    try:
        float(value)
    except ValueError:
        return True
    return False


def _of_item(path: KeyPath) -> KeyPath:
    """The list that an item is in; any other place itself."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return path


def _texts(value: Any) -> Iterator[str]:
    """The texts in a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _number(canonical: Iterable[str], otherwise: str) -> str:
    """Which kind of number keys hold that become these canonical ones."""
    held = {kind for key in canonical for kind in _numbers().get(key, ())}
    return KINDS[int] if int in held else KINDS[float] if float in held else otherwise


@cache
def _numbers() -> Mapping[str, set[type]]:
    """The kinds of number that each canonical key may hold."""
    return {key.pattern: {int, float} & {key.info.type, *get_args(key.info.type)} for key in walk(Config)}


def _order(flow: Flow) -> tuple[int, int]:
    return sections_first(flow.to, flow.value)


def dotted_key(path: KeyPath) -> str:
    """A path as a table's key; list indexes stay as parts that match nothing."""
    return ".".join(str(part) for part in path)


def read_document(
    dialect: str,
    table: Table,
    version: Version,
    document: Document,
    *,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    restored: Mapping[str, Mapping[str, Any]] | None = None,
    composed: bool = False,
) -> Read:
    """Read a document by a table; the config is None where a finding is an error."""
    resolved = resolved_over(table, version, document, environment)
    _read_numbers(resolved, table, version)
    reader = Reader(dialect, table, version, document, resolved, options or {}, composed, restored or {}, environment)
    return reader.run()


def resolved_over(
    table: Table, version: Version, document: Document, environment: Mapping[str, str] | None
) -> Resolved:
    """A document with its expressions resolved; they may name keys that only the framework's defaults have."""
    refers = any("${" in text for text in _texts(document.values))
    return resolve(document, environment=environment, base=table.defaults_tree(version) if refers else None)


def _read_numbers(resolved: Resolved, table: Table, version: Version) -> None:
    """Read text from the environment as YAML would, but where the dialect's key holds text: rules compute with numbers."""
    for path, expression in resolved.expressions.items():
        text = find(resolved.values, path)
        if not isinstance(text, str) or not text or "oc.env" not in expression or path in resolved.unresolved:
            continue  # an empty text is one, where YAML would read an empty place as null
        key = table.key_at(path)
        if key is None or isinstance(table.default_at(path, version), str):
            continue
        with contextlib.suppress(ValueError):
            put(resolved.values, path, plain_value(text))


def unknown_keys(table: Table, version: Version, release: str, leaves: Sequence[KeyPath]) -> Iterator[KeyPath]:
    """The leaves that a release does not have."""
    known = table.known_leaves.setdefault(release, {})
    for leaf in leaves:
        place = generic(leaf)
        if place not in known:
            known[place] = _is_known(table, version, release, leaf)
        if not known[place]:
            yield leaf


def _is_known(table: Table, version: Version, release: str, leaf: KeyPath) -> bool:
    """Whether a release has a leaf; a key that it only accepts and ignores counts if the release lists it."""
    if leaf[0] not in table.tops:
        return False
    if table.is_section(leaf, version, release):
        return True
    key, note = table.key_at(leaf), table.note_for(leaf, version)
    if key is not None:
        dead = note is not None and note.kind == "dead" and note.applies(version)
        return table.has(key, leaf, version) or (dead and release in (table.releases(leaf) or ()))
    releases = table.releases(leaf)
    if releases is not None:
        return release in releases
    return note is not None and note.applies(version)
