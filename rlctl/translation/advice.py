"""What to do about a finding, in the keys and units of the file that was read, with values that its framework can express.

A rule says which canonical key takes which value. What the framework's writer makes of the config before and after tells the
framework's own key and value; reading that back tells whether the value survived. Nothing here knows a framework by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, takewhile
from typing import Any

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.rules import (
    ABSENT,
    Absent,
    Chosen,
    Key,
    Rule,
    Switch,
    Tree,
    flat,
    matches,
    split,
    version_of,
)
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.tree import GONE, changed_leaves, find, gates, remove
from rlctl.adapters.engine.tree import put as put_in_tree
from rlctl.checks.hints import Setting, ascending, by_key, count_shown, has_values, in_canonical_words, shown, worded
from rlctl.common.errors import PlanError, RlctlError
from rlctl.common.messages.reasons import said, spoken, together, translated
from rlctl.common.report import Finding, Fix, Level
from rlctl.common.report_lines import framework
from rlctl.config import Loaded, put, to_plain
from rlctl.documents import Document, KeyPath, dotted
from rlctl.documents.paths import copied
from rlctl.planning import arithmetic
from rlctl.translation.rendering import write_out
from rlctl.translation.translate import read_document

TRIES = 64
"""Values that are tried for one key before rlctl says that the framework cannot express any of them."""
MOST_KEYS = 3
"""Keys that one hint changes together; a fix that takes more is no hint."""
MOST_WRITTEN = 8
"""Keys that several values change together, as for a plan that solves for them."""
LATER = said("rlctl check -v computes values that solve it")
"""The hint of a finding whose values are not tried unless asked for."""
GRAVITY = (Level.ERROR, Level.WARNING, Level.NOTE)
_PROBE = "rlctl-probe.parquet"
_KEY = re.compile(r"(?<![\w.])(?<!--set )(?:[a-z_]+(?:\[\d+\])?(?:\.[a-z_0-9]+(?:\[\d+\])?)+|[a-z_]+\[\d+\])")
_QUOTED_KEY = re.compile(rf"(?P<quote>'?)(?P<key>{_KEY.pattern})(?P=quote)")


def in_own_words(
    findings: Sequence[Finding],
    loaded: Loaded,
    source: str,
    facts: Mapping[str, str] | None = None,
    *,
    most: int | None = None,
) -> list[Finding]:
    """The findings with hints for a file of a framework; those for rlctl's own files are in its own words already.

    Args:
        findings: of the checks.
        loaded: the config that was read.
        source: what it was read as, as ``verl@0.9``.
        facts: what the user states of the run that no config says.
        most: findings, gravest first, whose values are written and read back; None for all. It takes a reading for each value.
    """
    if source.partition("@")[0] in ("", "rlctl") or not findings:
        return list(findings)
    adviser = Adviser(loaded, source, facts or {})
    given = [place for place, finding in enumerate(findings) if finding.candidates and has_values(finding.template)]
    late = sorted(given, key=lambda place: GRAVITY.index(findings[place].level))[most or len(given) :]
    return [
        adviser.reworded(replace(finding, hint=LATER, template=LATER, candidates=()) if place in late else finding)
        for place, finding in enumerate(findings)
    ]


def with_own_keys(findings: Sequence[Finding], loaded: Loaded, source: str) -> list[Finding]:
    """The findings with the keys of a file, without hints that need a value to be tried."""
    marked = own_names(loaded, source)
    return [
        replace(finding, message=marked(finding.message), hint="" if finding.candidates else marked(finding.hint))
        for finding in findings
    ]


def expressible_fixes(finding: Finding, loaded: Loaded, source: str, facts: Mapping[str, str] | None = None) -> Finding:
    """The finding with only those fixes that its framework can express, in canonical keys, as an editor shows them."""
    if source.partition("@")[0] in ("", "rlctl") or not finding.candidates:
        return finding
    adviser = Adviser(loaded, source, facts or {})
    fixes = tuple(fix for key, values in by_key(finding.candidates) for fix in adviser.fixes(key, values, finding))
    if not fixes and has_values(finding.template):
        hint, _ = adviser.with_values(finding)
    else:
        hint = in_canonical_words(finding.template, fixes)
    return replace(finding, fixes=fixes, hint=hint)


@dataclass(frozen=True, slots=True)
class Expressed:
    """A canonical value as a framework's file has it."""

    value: Any
    changes: tuple[tuple[KeyPath, Any], ...]
    """The file's keys that change, with their values; ``GONE`` where a key is removed."""
    by_one: bool
    """Whether the first of them alone gives the value; the others keep the rest of the config as it is."""


@dataclass
class Adviser:
    """Says fixes in the keys of one file."""

    loaded: Loaded
    source: str
    facts: Mapping[str, str]
    _names: dict[str, str] = field(default_factory=dict)

    def reworded(self, finding: Finding) -> Finding:
        """A finding whose hint names the file's keys; where the file has none, its canonical key and how to set that."""
        hint, left = finding.hint, ""
        if has_values(finding.template) and finding.candidates:
            hint, left = self.with_values(finding)
        if not left:  # what cannot be expressed is a canonical value
            unnamed = next((key for key in _KEY.findall(hint) if self.is_canonical(key) and self.name(key) == key), "")
            left = f"--set {unnamed}=VALUE" if unnamed and f"--set {unnamed}=" not in hint else ""
            hint = self.marked(hint)
        return replace(finding, message=self.marked(finding.message), hint=hint, option=finding.option or left)

    def marked(self, text: str) -> str:
        """A text with the file's keys for canonical ones, in which those that the file lacks are rlctl's."""
        return _QUOTED_KEY.sub(self._marked, text)

    def _marked(self, match: re.Match[str]) -> str:
        quote, key = match["quote"], match["key"]
        own = self.name(key)
        lacks = own == key and self.is_canonical(key) and not self._own_name(key)
        return spoken("rlctl's {key}", key=f"{quote}{key}{quote}") if lacks else f"{quote}{own}{quote}"

    def with_values(self, finding: Finding) -> tuple[str, str]:
        """The hint with the values that the file can hold, and the option that sets what it cannot."""
        settings: list[Setting] = []
        missing: list[Fix] = []
        for key, values in by_key(finding.candidates):
            found = list(self._expressed(key, values, count_shown(finding.template)))
            if found:
                settings.append(self._setting(key, found))
            else:
                missing.append((key, values[0]))
        if settings:
            return worded(finding.template, settings), ""
        key, value = missing[0]
        reason = self.why_not(key, value)
        if not reason:
            return in_canonical_words(finding.template, missing), ""
        return said(
            "{name} cannot express rlctl's {key} {value}: {reason}",
            name=framework(self.source),
            key=dotted(key),
            value=shown(value),
            reason=reason,
        ), f"--set {dotted(key)}={shown(value)}"

    def fixes(self, key: KeyPath, values: Sequence[Any], finding: Finding) -> list[Fix]:
        """The first values that the file can hold."""
        found = self._expressed(key, values, count_shown(finding.template))
        return [(key, value) for value in ascending([each.value for each in found])]

    def _expressed(self, key: KeyPath, values: Sequence[Any], count: int) -> Iterator[Expressed]:
        tried = (self._express(key, value) for value in values[:TRIES])
        return islice((each for each in tried if each is not None), count)

    def _express(self, key: KeyPath, value: Any) -> Expressed | None:
        """A value as the file has it; None where it has no key for it, or another value would be read back."""
        try:
            after = put(self.loaded, key, value)
            wanted = _meaning(after, key)
            written = self._written(after) if wanted != _meaning(self.loaded, key) else None
            if self._before is None or written is None or self._read(written, key) != wanted:
                return None
            found = list(changed_leaves(self._before, written))
            if not found:  # the writer has the same keys for the value of the file
                return self._as_written(key, value, written)
            changes = [(path, new) for path, new in found if new is not GONE or self._has(path)]
            kept = [change for change in changes if change[1] is not GONE]
            saying = [change for change in kept if self._gives([change], key, wanted)]
            for alone in saying:
                if self._gives([alone], key, wanted, keeps=True):
                    return Expressed(value, (alone,), by_one=True)
            if saying and len(kept) <= MOST_KEYS and self._gives(kept, key, wanted, keeps=True):
                return Expressed(value, (saying[0], *(other for other in kept if other is not saying[0])), by_one=True)
            for several in (kept, changes):
                if 0 < len(several) <= MOST_KEYS and self._gives(several, key, wanted, keeps=True):
                    return Expressed(value, tuple(several), by_one=False)
        except (RlctlError, ValueError):
            return None
        return None

    def together(self, fixes: Sequence[Fix]) -> list[Setting]:
        """Several canonical values as the file has them, each by one key; empty if the file cannot say them all, or if what is
        trained would change with them."""
        changes: list[tuple[KeyPath, Any]] = []
        for key, value in fixes:
            found = self._express(key, value)
            if found is None:
                return []
            changes += [change for change in found.changes if change not in changes]
        wanted = [(key, _meaning(put(self.loaded, key, value), key)) for key, value in fixes]
        again = self._again(changes)
        if again is None or any(_meaning(again, key) != value for key, value in wanted):
            return []
        kept = _trained(again, *(key for key, _ in fixes)) == _trained(self._before_read, *(key for key, _ in fixes))
        return [Setting(dotted(path), () if value is GONE else (value,)) for path, value in changes] if kept else []

    def change(self, fixes: Sequence[Fix]) -> list[Setting]:
        """Canonical values as settings of the file; what no single keys say is written together. Empty if the framework has no
        keys that say the values and leave what is trained as it is."""
        found = self.together(fixes) or self._written_together(fixes)
        told = {setting.key for setting in found}
        others = {self._written_name(key) for key, _ in fixes} - told - {""}
        if not found or not others or any(key.startswith(f"{other}.") for key in told for other in others):
            return found
        return [*found, *(Setting(other, ()) for other in sorted(others) if self._rivals(other, told))]

    def _rivals(self, key: str, told: Collection[str]) -> bool:
        """Whether a key of the file says the same value as keys that a change sets, in another unit."""
        rules = [rule for rule in flat(self._table.rules) if any(known.name == key for known in rule.keys)]
        return any(known.name in told for rule in rules for known in rule.keys)

    def _written_together(self, fixes: Sequence[Fix]) -> list[Setting]:
        """The keys that change if the config with the values is written; empty if they are too many, or read otherwise."""
        changed = self.loaded
        for key, value in fixes:
            changed = put(changed, key, value)
        written = self._written(changed)
        if written is None or self._before is None:
            return []
        changes = [each for each in changed_leaves(self._before, written) if each[1] is not GONE or self._has(each[0])]
        kept = [each for each in changes if each[1] is not GONE]
        again, without = self._again(changes), self._again(kept)
        if again is not None and without is not None and again.config == without.config:
            changes = kept
        if again is None or not 0 < len(changes) <= MOST_WRITTEN:
            return []
        if any(find(to_plain(again.config), key) != find(to_plain(changed.config), key) for key, _ in fixes):
            return []
        return [Setting(dotted(path), () if value is GONE else (value,)) for path, value in changes]

    def _as_written(self, key: KeyPath, value: Any, written: Mapping[str, Any]) -> Expressed | None:
        """All keys that a value is written with, because those of the file may differ."""
        names = [split(known.name) for rule in self._rules(key) for known in rule.keys if "*" not in known.name]
        changes = [(path, theirs) for path in names if (theirs := find(written, path)) is not ABSENT]
        return Expressed(value, tuple(changes), by_one=False) if 0 < len(changes) <= MOST_KEYS else None

    def _gives(self, changes: Sequence[tuple[KeyPath, Any]], key: KeyPath, wanted: Any, *, keeps: bool = False) -> bool:
        """Whether the file says a value with these changes alone; with ``keeps``, and trains the same otherwise."""
        again = self._again(changes) if changes else None
        if again is None or _meaning(again, key) != wanted:
            return False
        return not keeps or _trained(again, key) == _trained(self._before_read, key)

    def _again(self, changes: Sequence[tuple[KeyPath, Any]]) -> Loaded | None:
        """The file with some keys changed, as it is read."""
        trial = copied(self._before)
        for path, value in changes:
            remove(trial, path) if value is GONE else put_in_tree(trial, path, value)
        again, _ = read_document(Document("hint", trial), dialect=self.source)
        return again

    @cached_property
    def _before_read(self) -> Loaded | None:
        """The file as rlctl writes it, as it is read."""
        return self._again(())

    def _read(self, values: dict[str, Any], key: KeyPath) -> Any:
        """What a file with these values says at a canonical key."""
        again, _ = read_document(Document("hint", values), dialect=self.source)
        return _meaning(again, key) if again is not None else GONE

    def _written(self, loaded: Loaded) -> dict[str, Any] | None:
        try:
            return write_out(loaded, self.source, {**self.facts, "carried": "none"}).file.values
        except RlctlError:
            return None

    @cached_property
    def _before(self) -> dict[str, Any] | None:
        return self._written(self.loaded)

    def _has(self, path: KeyPath) -> bool:
        """Whether the file itself says something at, or below, one of its keys."""
        name = dotted(path)
        return any(
            source.key == name or source.key.startswith((f"{name}.", f"{name}["))
            for source in self.loaded.sources.values()
            if source.kind != "dialect_default"
        )

    def _setting(self, key: KeyPath, found: Sequence[Expressed]) -> Setting:
        """The values under the file's key; of keys that change together the values of the first fix."""
        (path, value), *more = found[0].changes
        if value is GONE or more:
            parts = tuple(Setting(dotted(at), () if new is GONE else (new,)) for at, new in more)
            own = Setting(dotted(path), () if value is GONE else (value,))
            return replace(own, keeping=parts) if found[0].by_one else replace(own, beside=parts)
        same = [each for each in found if [at for at, _ in each.changes] == [path]]
        theirs = [each.changes[0][1] for each in same]
        unit = "" if theirs == [each.value for each in same] else self._unit(key)
        return Setting(dotted(path), tuple(ascending(theirs)), unit)

    def _unit(self, key: KeyPath) -> str:
        """How the file's key counts what the canonical key holds."""
        for rule in self._rules(key):
            note = rule.formula or (rule.note or rule.convert.note if isinstance(rule, Key) else "")
            if note:
                return str(note)
        return ""

    def why_not(self, key: KeyPath, value: Any) -> str:
        """Why the framework cannot say a value, by its table; empty if this machine cannot tell."""
        dropped = self._table.dropped_at(key)
        if dropped is not None:
            return dropped.why(self.source.partition("@")[0], key)
        try:
            changed = put(self.loaded, key, value)
        except RlctlError:  # such as a variable that is not set here
            return ""
        try:
            outcome = write_out(changed, self.source, {**self.facts, "carried": "none"})
            fates = [part.fate_of(key) for _, part in outcome.file.parts]
        except RlctlError as error:
            return error.message
        lost = together(fate.lost or fate.kept for fate in fates if fate is not None)
        return lost or "no small change of the file gives this value"

    # Names

    def name(self, text: str) -> str:
        """What the file calls a canonical key: the key that it has written, else the one that it would; else the key itself."""
        if text not in self._names:
            self._names[text] = self._own_name(text) or text
        return self._names[text]

    def _own_name(self, text: str) -> str:
        path = _path(text)
        if not self.is_canonical(text):
            return ""
        if written := self._written_name(path):
            return written
        for rule in self._rules(path):
            known = [
                key.name for key in rule.keys if self._table.has(key, key.path, self._version) and "*" not in key.name
            ]
            direct = isinstance(rule, (Key, Switch, Chosen)) or (len(known) == 1 and not isinstance(rule, Tree))
            if known and direct:
                return known[0]
        return self._name_of_data(path) if path in (("data", "train"), ("data", "eval")) else ""

    def _name_of_data(self, path: KeyPath) -> str:
        """Where the framework's writer puts a dataset, which several rules do together."""
        try:
            written = self._written(put(self.loaded, path, [{"path": _PROBE}]))
        except RlctlError:
            return ""
        for place, value in changed_leaves(self._before or {}, written or {}):
            if _PROBE in str(value):  # the path, or a list with it
                return dotted(tuple(takewhile(lambda part: isinstance(part, str), place)))
        return ""

    def _written_name(self, path: KeyPath) -> str:
        """The key of the file that says something at a canonical key, at what it is in, or at all that is in it."""
        said = {at: source.key for at, source in self.loaded.sources.items() if source.kind != "dialect_default"}
        for length in range(len(path), 1, -1):
            if key := said.get(path[:length]):
                below = "".join(f".{part}" for part in path[length:])
                if below and key.endswith(below):  # a key of a tree names its own leaf
                    return key
                tree = next((rule.key for rule in self._rules(path[:length]) if isinstance(rule, Tree)), "")
                return (tree if below and key.startswith(f"{tree}.") else key) + below
        if len(path) == 2 and isinstance(path[1], int) and path[:1] in said:
            return said[path[:1]]  # an entry of a list, whose order in the file may be another
        inside = {key for at, key in said.items() if at[: len(path)] == path}
        return inside.pop() if len(inside) == 1 else said.get((*path, "type"), "")

    def is_canonical(self, text: str) -> bool:
        """Whether a text is a canonical key."""
        return gates(tuple("*" if isinstance(part, int) else part for part in _path(text))) is not None

    @cached_property
    def _table(self) -> Table:
        dialect, _, release = self.source.partition("@")
        found = dialect_called(dialect)
        return found.tables[found.kind_for(self.loaded.config, found.release(release))]

    @cached_property
    def _version(self) -> tuple[int, ...]:
        return version_of(self.source.partition("@")[2])

    def _rules(self, path: KeyPath) -> Iterator[Rule]:
        """The rules that fill a canonical key, or the name of the option at it."""
        wanted = tuple("*" if isinstance(part, int) else part for part in path)
        for rule, filled in self._table.filled:
            if any(item == wanted or item == (*wanted, "type") or matches(item, wanted) for item in filled):
                yield rule


def own_names(loaded: Loaded, source: str) -> Callable[[str], str]:
    """Puts the keys of the file that was read into a text, and marks those that it lacks; rlctl's own files have all."""
    if source.partition("@")[0] in ("", "rlctl"):
        return str
    return Adviser(loaded, source, {}).marked


@contextmanager
def in_own_keys(loaded: Loaded, source: str) -> Iterator[None]:
    """Errors of planning that are raised inside name the keys of the file that was read."""
    try:
        yield
    except PlanError as error:
        if source.partition("@")[0] in ("", "rlctl"):
            raise
        adviser = Adviser(loaded, source, {})
        message, hint = (adviser.marked(translated(part)) for part in (error.message, error.hint))
        raise PlanError(message, at=error.at, hint=hint) from error


def _path(text: str) -> KeyPath:
    return split(text.replace("[", ".").replace("]", ""))


NOT_TRAINED = ("micro_batch", "log_prob_micro_batch")
"""Keys of ``batch`` that divide the same work otherwise."""


def _trained(loaded: Loaded | None, *changed: KeyPath) -> dict[str, Any]:
    """How much a run trains, and how often; empty if that is what is changed.

    Args:
        loaded: the config.
        changed: the keys that are meant to change.
    """
    if loaded is None or any(key[0] in ("batch", "schedule") and key[1] not in NOT_TRAINED for key in changed):
        return {}
    config = loaded.config
    return {
        "responses": arithmetic.responses_per_step(config),
        "mini_batch": arithmetic.mini_batch_responses(config),
        "optimizer_steps": arithmetic.optimizer_steps_per_step(config),
        "schedule": to_plain(config.schedule),
        "objective": config.algorithm.objective.choice,
    }


def _meaning(loaded: Loaded, key: KeyPath) -> Any:
    """What a key says: its value, the name of a choice, or whether there is a section."""
    value = find(to_plain(loaded.config), key)
    if isinstance(value, Mapping):
        return value.get("type", True)
    return None if isinstance(value, Absent) else value
