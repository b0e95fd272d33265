"""A config that a person edits: what it is, what was changed and can be taken back, and how it is saved."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import Any
from uuid import uuid4

from rlctl.adapters import dialect as dialect_called
from rlctl.checks import check, of_reading
from rlctl.common.errors import ConfigError, DocumentError, RlctlError, TranslationError, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS
from rlctl.common.messages.reasons import said, together
from rlctl.common.report import Finding, Fix, Level, Report
from rlctl.config import Config, Loaded, put, put_at, resolve_stages, set_keys, to_plain
from rlctl.config.chinese import in_words
from rlctl.config.fields import Choice
from rlctl.config.inspect import fields_of, sections_in
from rlctl.config.load import value_at
from rlctl.documents import Document, KeyPath, dotted, parse_dotted, read_text, write_atomic
from rlctl.editing.saving import Disconnected, Edited, edited_text, gathered, reread
from rlctl.planning.arithmetic import Cluster
from rlctl.runs import symbolic
from rlctl.shell.clock import at_moment
from rlctl.translation.advice import expressible_fixes
from rlctl.translation.difference import Difference, differences
from rlctl.translation.sources import is_script
from rlctl.translation.translate import Translation, check_facts, read_document, read_input, translate_loaded

LATER = 90_061.0
"""Seconds after which every part of a time is another one: a day, an hour, a minute and a second."""
GUESSES = 3
"""How often the value that keeps a key of the file is guessed, each time from what the last guess gave."""


class SaveOverError(RlctlError):
    """The file is not to be written without a question."""


class FileChangedError(SaveOverError):
    """The file is another one than was read: somebody else wrote it meanwhile."""


class FileProtectedError(SaveOverError):
    """The file is read-only, for everybody or for this user."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a value, made by a person."""

    path: KeyPath
    value: Any
    """Plain, as it would stand in a file."""

    @property
    def label(self) -> str:
        """In a line: the key and its new value."""
        return f"{dotted(self.path)} = {self.value!r}" if self.path else in_words("several keys")


@dataclass(frozen=True, slots=True)
class _State:
    """The config after what was done at once."""

    loaded: Loaded
    changes: tuple[Change, ...] = ()
    """None of them for what was opened."""
    base: OnDisk | None = None
    """The text that it is a change of: the file as it was read, or a whole text that a person wrote; None where there is
    none."""
    merges: int = 0
    """How many versions of the file by other programs it contains: an older state gets the later ones when it is gone
    back to."""


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The file as it was read or written last."""

    path: Path
    text: str
    loaded: Loaded
    is_typed: bool = False
    """Whether it is no file, but a whole text that a person wrote."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A three-way merge: what another program wrote into the file, and what was changed in the editor since."""

    file: OnDisk
    report: Report
    """Of reading it."""
    theirs: tuple[Change, ...]
    """The keys that it says otherwise than the file did before."""
    both: tuple[str, ...]
    """Those of them that were changed here too, to something else."""
    mine: Loaded
    """The config that it was compared with."""
    is_possible: bool
    """Whether the changes of both can be joined key by key, once it is said whose hold for ``both``."""


@dataclass(frozen=True, slots=True)
class SideEffect:
    """A key of the file that saving changes although its canonical key was not: it counts in units of a key that was."""

    key: str
    """Of the dialect, as ``actor_rollout_ref.actor.ppo_mini_batch_size``."""
    before: Any
    after: Any
    path: KeyPath
    """The canonical key that it sets."""
    value: Any
    """Of the canonical key; saving does not change it."""
    value_to_keep_key: Any = None
    """The value of the canonical key with which the file's key would not change; None if none is known."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The text that saving would write, and the unwanted changes that it would make."""

    text: str
    loaded: Loaded
    """The config that it is a text of."""
    lost: tuple[Difference, ...] = ()
    """What the format cannot say: on the first side the value here, on the second the one that the text says instead."""
    disconnected: tuple[Disconnected, ...] = ()
    """What a launch script would no longer take from its own variables."""
    also: tuple[tuple[KeyPath, Any, Any], ...] = ()
    """The keys that would change too if these variables were edited instead, with the values before and after."""
    side_effects: tuple[SideEffect, ...] = ()
    """The file's keys that change although their canonical keys were not changed."""


@dataclass(frozen=True, slots=True)
class _Merged:
    """A version of the file by another program, which every state of the config contains from then on."""

    before: OnDisk
    after: OnDisk
    keeps_mine: bool
    """Whether a key that both changed stays as it is here."""


@dataclass
class Session:
    """A config being edited. A change that is not valid leaves it as it was; undo has no limit."""

    file: OnDisk | None
    """None for a config that was never saved."""
    dialect: str
    """Of the file, with its release: ``verl@0.9``."""
    report: Report
    """Of reading it."""
    defaults: Config
    """What an empty file of the dialect means."""
    _states: list[_State]
    _now: int = 0
    _saved: int | None = 0
    """The state that the file holds; None where it was left on a way that was given up."""
    _merges: list[_Merged] = field(default_factory=list, repr=False)
    """The versions of the file by other programs that were taken, in order."""
    _merging: KeyPath | None = field(default=None, repr=False)
    identity: str = field(default_factory=lambda: uuid4().hex)
    """Of this session, for what is kept of it."""
    lost: list[tuple[str, Any, Any]] = field(default_factory=list)
    """What the dialect could not say when the file was saved last: key, the value here, the one in the file."""
    facts: dict[str, str] = field(default_factory=dict)
    """What a person said of the run that no config says, as ``dataset_rows``: plan, preview and saving go by it."""
    given: Mapping[str, str] = field(default_factory=dict)
    """What the file is given where it is a launch script: its variables, and by number its arguments."""
    readonly: bool = False
    """Whether every change is refused."""
    moment: float = field(default_factory=time.time)
    """When it was opened: a script that prints the time is read as at this moment until it is closed."""

    # Opening

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        dialect: str | None = None,
        assignments: Sequence[str] = (),
        given: Mapping[str, str] | None = None,
    ) -> Session:
        """Open a file of any dialect, a launch script included, which is given what it wants.

        Raises:
            UsageError: there is something for a launch script, and the file is none.
            RlctlError: it cannot be read, or holds no config; every problem is named.
        """
        text = read_text(path)
        if given and not is_script(text, str(path)):
            raise UsageError(
                said("--env sets a variable of a launch script, but {path} is not one", path=path),
                hint="set it before rlctl",
            )
        moment = time.time()
        with at_moment(moment):
            loaded, report = _read(text, path, dialect, given)
        file = OnDisk(path, text, loaded)
        states = [_State(loaded, base=file)]
        session = cls(file, report.dialect, report, _silence(report.dialect), states, given=given or {}, moment=moment)
        if assignments:
            session._assign(assignments)
        return session

    @classmethod
    def of_text(cls, text: str, name: str) -> Session:
        """Begin with a text that is no file of the user's, as a preset.

        Raises:
            RlctlError: it holds no config.
        """
        loaded, report = _read(text, Path(name), None)
        first = _State(loaded, base=OnDisk(Path(name), text, loaded))
        return cls(None, report.dialect, report, _silence(report.dialect), [first], _saved=None)

    @classmethod
    def new(cls, dialect: str = "rlctl@1") -> Session:
        """Begin with nothing but a dialect's defaults."""
        defaults = _silence(dialect)
        return cls(None, dialect, Report(dialect=dialect), defaults, [_State(Loaded(defaults))])

    def become(self, dialect: str) -> None:
        """Take another dialect, for a config without a file."""
        self.dialect, self.report, self.defaults = dialect, Report(dialect=dialect), _silence(dialect)

    def _assign(self, assignments: Sequence[str]) -> None:
        changed = set_keys(self.loaded, assignments)
        self._push(changed, (Change((), symbolic(changed)),))

    # What it is

    @property
    def loaded(self) -> Loaded:
        """The config as it is now, with where its values come from."""
        return self._states[self._now].loaded

    @property
    def config(self) -> Config:
        return self.loaded.config

    @property
    def kind(self) -> str:
        """The kind of the framework's files that holds the config, as ``ppo`` of verl; empty if none does, or it is rlctl's."""
        name, _, release = self.dialect.partition("@")
        try:
            return "" if name == "rlctl" else dialect_called(name).kind_for(self.config, release)
        except TranslationError:
            return ""

    @property
    def is_changed(self) -> bool:
        """Whether something would be lost without saving."""
        if self._now == self._saved:
            return False
        return self.file is None or self.base is not self.file or not self._is_same(self.file.loaded)

    def written(self, path: KeyPath) -> Any:
        """A value as a file would say it: plain, without defaults inside, and with links as they are written.

        Raises:
            ConfigError: there is no such key.
        """
        return _written(self.loaded, path)

    @property
    def unsaved(self) -> list[Change]:
        """The changes from ``base``, the text that is edited, to the current config; from the defaults if there is no text.

        That text is the file, unless what was saved was undone, or a whole text was written: then it is kept too.
        """
        base = self.base
        return list(_changes(base.loaded if base is not None else Loaded(self.defaults), self.loaded))

    @property
    def changes(self) -> list[Change]:
        """The changes since the file was opened, in order, without those undone."""
        return [change for state in self._states[1 : self._now + 1] for change in state.changes]

    # Changing

    def set(self, path: KeyPath, value: Any, *, merge: bool = False) -> None:
        """Give a canonical key a plain value; a list or mapping as a whole is a value too.

        ``merge``: further typing in the same field is one thing to undo.

        Raises:
            ConfigError: there is no such key, the value does not fit, or nothing may be changed.
        """
        self._refuse_if_readonly()
        changed = _with(self.loaded, path, value)
        if self._is_same(changed):
            return
        if merge and self._merging == path and self._now != self._saved:
            self._now -= 1
        self._push(changed, (Change(path, value),))
        self._merging = path if merge else None

    def apply(self, changes: Sequence[Change]) -> None:
        """Make several changes, which are one to undo; one without a path holds a whole config, or what of it is no default.

        Of a whole config only the keys change that it says otherwise, but for those that say another thing each time.

        Raises:
            ConfigError: one of them does not fit; none is made.
        """
        self._refuse_if_readonly()
        changed = self.loaded
        for change in changes:
            if change.path:
                changed = _with(changed, change.path, change.value)
                continue
            wanted = changed
            for key, value in {**to_plain(Config()), **change.value}.items():
                wanted = _with(wanted, (key,), value)
            volatile = self._volatile()
            for one in _changes(changed, wanted):
                if not any(overlap(dotted(one.path), key) for key in volatile):
                    changed = _with(changed, one.path, one.value)
        if not self._is_same(changed):
            self._push(changed, tuple(changes))

    def assume(self, facts: Mapping[str, str]) -> None:
        """State facts that no config says; those that are empty are no longer stated.

        Raises:
            UsageError: nothing asks for one of them, or it is no number where it must be one.
        """
        stated = {name: value.strip() for name, value in facts.items() if value.strip()}
        check_facts(stated)
        self.facts = stated

    @property
    def rows(self) -> int | None:
        """Rows of the training data, where a person said it."""
        return int(self.facts["dataset_rows"]) if "dataset_rows" in self.facts else None

    def _refuse_if_readonly(self) -> None:
        if self.readonly:
            raise ConfigError("the config was opened read-only", hint="start rlctl tui without --readonly to edit it")

    def _is_same(self, changed: Loaded) -> bool:
        return changed.config == self.config and changed.expressions == self.loaded.expressions

    def choose(self, path: KeyPath, name: str) -> None:
        """Take another option of a choice, with that option's own defaults.

        Raises:
            ConfigError: there is no such option.
        """
        self.set(path, {tag_of(path): name})

    def reset(self, path: KeyPath) -> None:
        """Give a key what the silence of the dialect means; a key of a stage what the run says.

        Raises:
            ConfigError: it has no default there, as a key of a list's item.
        """
        if in_stage(path):
            self.set(path[:2], without_at(self.written(path[:2]), path[2:]))
        else:
            self.set(path, value_at(self.defaults, path))

    def undo(self) -> tuple[Change, ...]:
        """Take back what was done last; what it was, nothing where there is no more."""
        if self._now == 0:
            return ()
        self._merging = None
        self._now -= 1
        self._settle()
        return self._states[self._now + 1].changes

    def redo(self) -> tuple[Change, ...]:
        """Do again what was undone last; what it was, nothing where there is no more."""
        if self._now + 1 == len(self._states):
            return ()
        self._now += 1
        self._settle()
        return self._states[self._now].changes

    def take_text(self, text: str) -> None:
        """Take a whole text in the file's dialect instead, as one change that can be undone; its look is kept when it is saved.

        Raises:
            RlctlError: it cannot be read, or holds no config; every problem is named.
        """
        self._refuse_if_readonly()
        loaded, report = self._read(text, self.place, self.dialect)
        self._push(loaded, (Change((), symbolic(loaded)),), OnDisk(self.place, text, loaded, is_typed=True))
        self.report = report

    @property
    def place(self) -> Path:
        """The file, or where it would be: what it names is found from there."""
        return self.file.path if self.file is not None else Path("new.yaml")

    @property
    def base(self) -> OnDisk | None:
        """The text that the config of now is a change of."""
        return self._states[self._now].base

    def _push(self, loaded: Loaded, changes: tuple[Change, ...], base: OnDisk | None = None) -> None:
        if self._saved is not None and self._saved > self._now:
            self._saved = None
        self._states[self._now + 1 :] = [_State(loaded, changes, base or self.base, len(self._merges))]
        self._now += 1
        self._merging = None

    # What is thought of it

    def findings(self, cluster: Cluster | None = None) -> list[Finding]:
        """The findings of the checks, and those of reading the file that still hold."""
        now = self.loaded
        checked = check(now.config, locate=now.locate_any, cluster=cluster, symbolic=now.expressions, silent=now.silent)
        own = [expressible_fixes(finding, now, self.dialect, self.facts) for finding in checked]
        return [*now.as_written(own), *of_reading(self.report)]

    def preview(self, dialect: str, *, script: bool = False) -> Translation:
        """The run as it is now in a dialect, with the account of every key.

        Raises:
            UsageError: a script is asked for, and the dialect has none.
        """
        read = replace(self.report, findings=[*self.report.findings])
        return translate_loaded(self.loaded, read, dialect, options={**self.facts, "format": "sh" if script else ""})

    def differences(self) -> list[Difference]:
        """What differs in meaning from the file as it was read or saved."""
        before = self.file.loaded if self.file is not None else Loaded(self.defaults)
        return differences(before, self.loaded)

    def from_defaults(self) -> list[Difference]:
        """What differs in meaning from an empty file of the dialect."""
        return differences(Loaded(self.defaults), self.loaded)

    def changed_lines(self) -> list[str]:
        """What saving would change in the file, as a unified diff; without a file, its whole text is new.

        Raises:
            RlctlError: the dialect cannot say the config, or the file cannot be read any more.
        """
        before = read_text(self.file.path) if self.file is not None and self.file.path.exists() else ""
        pair = (before.splitlines(), self.text().splitlines())
        return list(unified_diff(*pair, "on disk", "as it would be saved", lineterm=""))

    # Saving

    def text(self) -> str:
        """The file as it would be saved: its own text with the changed keys, or written anew where that cannot be.

        Raises:
            UsageError: the dialect cannot say the config.
        """
        return self._written().text

    def _written(self) -> Edited:
        kept = self._edited()
        if kept is not None:
            return kept
        base = self.base
        if base is not None and is_script(base.text, str(base.path)):
            raise UsageError(
                said("{path}: rlctl cannot make this change in the script key by key", path=base.path),
                hint="save it under another name, as YAML or as a new script",
            )
        return Edited(self.text_in(self.dialect))

    def draft(self) -> Draft:
        """What saving would write.

        Raises:
            RlctlError: the dialect cannot say the config, or the text cannot be read back.
        """
        loaded, found = self.loaded, self._written()
        lost = self._unsaid_by(found.text, self.place)
        return Draft(found.text, loaded, lost, found.disconnected, found.also, tuple(self._side_effects(found.text)))

    def _side_effects(self, text: str) -> Iterator[SideEffect]:
        """The file's keys that a text changes although their canonical keys were not changed."""
        base = self.base
        if base is None or text == base.text or self.dialect.startswith("rlctl"):
            return
        changed = [item.key for item in differences(base.loaded, self.loaded)]
        before = self._values_in(base.text)
        for key, (after, targets) in self._values_in(text).items():
            was, _ = before.get(key, (after, ()))
            if was == after or len(targets) != 1 or any(overlap(targets[0][0], other) for other in changed):
                continue
            path = parse_dotted(targets[0][0])
            with suppress(LookupError, TypeError):  # the config has no such key: of an option that is not chosen
                value = value_at(self.config, path)
                yield SideEffect(key, was, after, path, value, self._value_to_keep(key, was, after, path, value))

    def _value_to_keep(self, key: str, was: Any, after: Any, path: KeyPath, value: Any) -> Any:
        """The value of a canonical key with which a key of the file does not change.

        It is guessed in proportion and tried; the file's key may be a rounded number, so that what the file then says counts.
        """
        now, wanted = after, value
        for _ in range(GUESSES):
            if not all(type(number) is int and number > 0 for number in (was, now, wanted)):
                return None
            wanted = max(1, round(wanted * was / now))
            try:
                found = self._edited(_with(self.loaded, path, wanted))
            except ConfigError:  # the key takes no such value
                return None
            if found is None:
                return None
            loaded, report = self._read(found.text, self.place, self.dialect)
            now = next((entry.value for entry in report.accounting if entry.key == key), None)
            if now == was:
                return value_at(loaded.config, path)
        return None

    def _values_in(self, text: str) -> dict[str, tuple[Any, Sequence[tuple[str, Any]]]]:
        """The value of each of the dialect's keys in a text, with the canonical keys that it sets."""
        _, report = self._read(text, self.place, self.dialect)
        return {entry.key: (entry.value, entry.targets) for entry in report.accounting}

    def draft_for(self, path: Path, dialect: str | None = None) -> Draft:
        """What saving under another name, in this or another dialect, would write.

        Raises:
            RlctlError: the dialect cannot say the config, has no scripts, or the text cannot be read back.
        """
        loaded, found = self.loaded, self._written_for(path, dialect)
        lost = self._unsaid_by(found.text, path, dialect or self.dialect)
        return Draft(found.text, loaded, lost, found.disconnected, found.also)

    def keeping_fixes(self, finding: Finding) -> dict[Fix, SideEffect]:
        """Fixes of a finding with which a key of the file that saving would change stays as it is."""
        try:
            effects = self.draft().side_effects
        except RlctlError:
            return {}
        keys = {key for key, _ in finding.fixes}
        found = {(one.path, one.value_to_keep_key): one for one in effects if one.path in keys}
        return {fix: one for fix, one in found.items() if fix[1] is not None and self._is_fixed_by(finding, fix)}

    def _is_fixed_by(self, finding: Finding, fix: Fix) -> bool:
        try:
            config = _with(self.loaded, *fix).config
        except ConfigError:
            return False
        return not any((other.code, other.key) == (finding.code, finding.key) for other in check(config))

    def undo_side_effects(self, draft: Draft) -> None:
        """Take the values with which the file's keys do not change, as one change that can be undone.

        Raises:
            ConfigError: one of them does not fit.
        """
        found = ((one.path, one.value_to_keep_key) for one in draft.side_effects)
        self.apply([Change(path, value) for path, value in found if value is not None])

    def follow_variables(self, draft: Draft) -> None:
        """Take the values that other keys get when the variables of a draft are edited, as one change that can be undone.

        Raises:
            ConfigError: one of them does not fit.
        """
        self.apply([Change(path, value) for path, _, value in draft.also])

    def _read(self, text: str, path: Path, dialect: str | None) -> tuple[Loaded, Report]:
        with at_moment(self.moment):
            return _read(text, path, dialect, self.given)

    def _unsaid_by(self, text: str, place: Path, dialect: str | None = None) -> tuple[Difference, ...]:
        moved = self._moved()
        said = self._read(text, place, dialect or self.dialect)[0]
        return tuple(item for item in differences(self.loaded, said) if item.key not in moved)

    def _edited(self, loaded: Loaded | None = None) -> Edited | None:
        """The text that the config was read from, changed to this or another config; None if that is impossible."""
        base = self.base
        if base is None:
            return None
        name, changed = str(base.path), loaded or self.loaded
        with at_moment(self.moment):
            return edited_text(base.text, name, self.dialect, base.loaded, changed, self.facts, self.given)

    def text_for(self, path: Path, dialect: str | None = None) -> str:
        """The text for a file of another name, in this or another dialect: a script where it is called as one.

        Raises:
            UsageError: the dialect cannot say the config, or has no scripts.
        """
        return self._written_for(path, dialect).text

    def _written_for(self, path: Path, dialect: str | None) -> Edited:
        base = self.base
        was_script = base is not None and is_script(base.text, str(base.path))
        script = path.name.endswith(SCRIPT_ENDINGS) or (was_script and not path.suffix and dialect is None)
        kept = self._edited() if dialect is None and script == was_script else None
        return kept if kept is not None else Edited(self.text_in(dialect or self.dialect, script=script))

    def _unsaid(self, said: Loaded) -> list[tuple[str, Any, Any]]:
        return [(item.key, item.first.value, item.second.value) for item in differences(self.loaded, said)]

    def _moved(self) -> frozenset[str]:
        """What the text that this was read from says otherwise by now, as a name with a time in it."""
        if (base := self.base) is None:
            return frozenset()
        with at_moment(self.moment):
            today = reread(base.text, str(base.path), self.dialect, base.loaded, self.given)
        return frozenset(item.key for item in differences(base.loaded, today))

    def _volatile(self) -> frozenset[str]:
        """The keys that the text says otherwise each time: a day later, they have another value."""
        if (base := self.base) is None or not is_script(base.text, str(base.path)):
            return frozenset()
        with at_moment(self.moment + LATER):
            later = reread(base.text, str(base.path), self.dialect, base.loaded, self.given)
        return frozenset(item.key for item in differences(base.loaded, later))

    @property
    def is_script(self) -> bool:
        """Whether the file is a launch script, of which more is kept than its keys."""
        return self.file is not None and is_script(self.file.text, str(self.file.path))

    def text_in(self, dialect: str, *, script: bool = False) -> str:
        """The config written anew in a dialect, as YAML or as a launch script.

        Raises:
            UsageError: the dialect cannot say it, or has no scripts.
        """
        found = self.preview(dialect, script=script)
        if found.text is None:
            errors = [item.message for item in found.report.findings if item.level is Level.ERROR]
            raise UsageError(
                said("{dialect} cannot express this config: {errors}", dialect=dialect, errors=together(errors)),
                hint="save it in another format",
            )
        return found.text

    def changed_on_disk(self) -> bool:
        """Whether the file is not what was read or saved last; one that is gone is."""
        if self.file is None:
            return False
        try:
            return read_text(self.file.path) != self.file.text
        except DocumentError:
            return bool(self.file.text)

    def on_disk(self) -> Merge:
        """What the file says now, as another program wrote it, next to what was changed here.

        Raises:
            UsageError: there is no file yet.
            RlctlError: it cannot be read, or holds no config.
        """
        if self.file is None:
            raise UsageError("this config has no file yet", hint="save it under a name")
        text, mine, before = read_text(self.file.path), self.loaded, self.file
        loaded, report = self._read(text, before.path, self.dialect)
        file = OnDisk(before.path, text, loaded)
        theirs, ours = tuple(_changes(before.loaded, loaded)), tuple(_changes(before.loaded, mine))
        both = tuple(dict.fromkeys(dotted(other.path) for other in theirs for one in ours if _clash(one, other)))
        is_possible = not any(state.base is not None and state.base.is_typed for state in self._states)
        try:
            _merged(mine, _Merged(before, file, keeps_mine=True))
        except (ConfigError, LookupError, TypeError):  # what one changed is gone from the other
            is_possible = False
        return Merge(file, report, theirs, both, mine, is_possible)

    def merge(self, found: Merge, *, keeps_mine: bool = True) -> bool:
        """Take what another program wrote, and keep what was changed here; undo takes back only the latter.

        Args:
            found: what the file says.
            keeps_mine: whether the keys that both changed stay as they are here.

        Returns:
            Whether it is done: not if something was changed here since it was looked at.
        """
        if not found.is_possible or found.mine is not self.loaded or self.file is None:
            return False
        self._merges.append(_Merged(self.file, found.file, keeps_mine))
        self.file, self.report, self._merging = found.file, found.report, None
        self._settle()
        return True

    def _settle(self) -> None:
        """Let the state of now contain what other programs wrote since it was made."""
        state = self._states[self._now]
        loaded, base = state.loaded, state.base
        for one in self._merges[state.merges :]:
            with suppress(ConfigError, LookupError, TypeError):
                loaded, base = _merged(loaded, one), one.after
        self._states[self._now] = replace(state, loaded=loaded, base=base, merges=len(self._merges))

    def keep_mine(self) -> None:
        """Take note of what another program wrote, also if it holds no config: it is what is saved over.

        Raises:
            DocumentError: it cannot be read.
        """
        if self.file is None:
            return
        text, loaded = read_text(self.file.path) if self.file.path.exists() else "", self.file.loaded
        with suppress(RlctlError):
            loaded = self._as_here(self._read(text, self.file.path, self.dialect)[0], self._moved())
        self.file = OnDisk(self.file.path, text, loaded)
        self._saved = None

    def save(self, draft: Draft | None = None, *, force: bool = False) -> Path:
        """Write the file, whole or not at all, in its own dialect.

        Args:
            draft: what to write, where that is known; it is made again if the config was changed since.
            force: also over what somebody else wrote there since, and over a write-protected file.

        Raises:
            UsageError: there is no file yet, or the dialect cannot say the config.
            FileChangedError: somebody else wrote the file meanwhile.
            FileProtectedError: the file is write-protected.
            DocumentError: it cannot be written.
        """
        if self.file is None:
            raise UsageError("this config has no file yet", hint="save it under a name")
        if not force and self.changed_on_disk():
            raise FileChangedError(
                said("{path} was changed by another program since it was opened", path=self.file.path),
                hint="open it again, save under another name, or save over it",
            )
        if not force and _is_protected(self.file.path):
            raise FileProtectedError(
                said("{path} is write-protected", path=self.file.path),
                hint="save under another name, or save over it",
            )
        text = draft.text if draft is not None and draft.loaded is self.loaded else self.text()
        write_atomic(self.file.path, text, force=True)
        self._saved_as(self.file.path, text)
        return self.file.path

    def save_as(
        self, path: Path, dialect: str | None = None, *, draft: Draft | None = None, force: bool = False
    ) -> Path:
        """Write the config to another file, in this or another dialect, and go on with that one.

        ``draft``: what to write, where that is known; it is made again if the config was changed since.

        Raises:
            UsageError: the dialect cannot say the config.
            DocumentError: the file is there already and ``force`` is off, or it cannot be written.
        """
        text = draft.text if draft is not None and draft.loaded is self.loaded else self.text_for(path, dialect)
        write_atomic(path, text, force=force, executable=path.name.endswith(SCRIPT_ENDINGS))
        if dialect is not None:
            self.dialect = dialect
        self._saved_as(path, text)
        return path

    def export(self, path: Path, dialect: str, *, force: bool = False) -> Path:
        """Write the config to another file in a dialect, and go on with this one.

        Raises:
            UsageError: the dialect cannot say the config.
            DocumentError: the file is there already and ``force`` is off, or it cannot be written.
        """
        script = path.name.endswith(SCRIPT_ENDINGS)
        write_atomic(path, self.text_in(dialect, script=script), force=force, executable=script)
        return path

    def _saved_as(self, path: Path, text: str) -> None:
        loaded, report = self._read(text, path, self.dialect)
        moved = self._moved()
        self.lost = [item for item in self._unsaid(loaded) if item[0] not in moved]
        here = self._states[self._now]
        loaded = self._as_here(loaded, moved)
        self.file, self.report, self.dialect = OnDisk(path, text, loaded), report, report.dialect
        self.defaults = _silence(report.dialect)
        self._states[self._now] = replace(here, loaded=replace(loaded, config=here.loaded.config), base=self.file)
        self._saved, self._merging = self._now, None

    def _as_here(self, loaded: Loaded, keys: Collection[str]) -> Loaded:
        """A text that was read just now, with the values here of what says another thing each time: nobody changed these."""
        changed = loaded
        for key in keys:
            path = parse_dotted(key)
            changed = _with(changed, path, value_at(self.config, path))
        return replace(loaded, config=changed.config)

    def reopen(self) -> None:
        """Take the file as it is on disk now, as one change that can be undone.

        Raises:
            RlctlError: it cannot be read, or holds no config any more.
        """
        if self.file is None:
            raise UsageError("this config has no file yet", hint="save it under a name")
        text = read_text(self.file.path)
        loaded, self.report = self._read(text, self.file.path, self.dialect)
        self.file = OnDisk(self.file.path, text, loaded)
        self._push(loaded, (Change((), symbolic(loaded)),), self.file)
        self._saved = self._now
        self.lost = []


def overlap(one: str, other: str) -> bool:
    """Whether a key is another one, above it or below it."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}["))


def _changes(before: Loaded, after: Loaded) -> Iterator[Change]:
    """The smallest changes that make one config from another; an option with other keys, or a longer list, changes as a
    whole."""
    yield from _changed_parts(_tree(before), _tree(after), ())


def _tree(loaded: Loaded) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(loaded.config)
    for path, text in loaded.expressions.items():
        put_at(plain, path, text)
    return plain


def _changed_parts(before: Any, after: Any, path: KeyPath) -> Iterator[Change]:
    if before == after and type(before) is type(after):
        return
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for key, value in after.items():
            yield from _changed_parts(before[key], value, (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, value in enumerate(after):
            yield from _changed_parts(before[number], value, (*path, number))
    else:
        yield Change(path, after)


def _clash(one: Change, other: Change) -> bool:
    """Whether two changes are not of the same key to the same value, and not of different ones."""
    return overlap(dotted(one.path), dotted(other.path)) and one != other


def _merged(loaded: Loaded, merge: _Merged) -> Loaded:
    """A config with what another program changed in the file.

    Raises:
        ConfigError: what was changed here does not fit what the file holds now.
    """
    theirs = [] if merge.keeps_mine else list(_changes(merge.before.loaded, merge.after.loaded))
    found = merge.after.loaded
    for change in _changes(merge.before.loaded, loaded):
        if not any(_clash(change, other) for other in theirs):
            found = _with(found, change.path, change.value)
    return found


def in_stage(path: KeyPath) -> bool:
    """Whether it is a key that a stage says, or could."""
    return path[0] == "stages" and len(path) > 2


def without_at(stage: Any, path: KeyPath) -> Any:
    """A plain stage without one of its keys, and without sections that then hold nothing."""
    key, rest = path[0], path[1:]
    if not isinstance(stage, dict) or key not in stage:
        return stage
    left = without_at(stage[key], rest) if rest else {}
    others = {name: item for name, item in stage.items() if name != key}
    return {**others, key: left} if left else others


def _is_protected(path: Path) -> bool:
    """Whether a file was made read-only, which replacing it would ignore; for root the mode alone tells."""
    return path.exists() and not (os.access(path, os.W_OK) and path.stat().st_mode & 0o222)


def _with(loaded: Loaded, path: KeyPath, value: Any) -> Loaded:
    """A config with another value; of a stage's key it is the stage that says it.

    Raises:
        ConfigError: there is no such key, or the value does not fit.
    """
    if path[0] != "stages":
        return put(loaded, path, value)
    whole = path
    if in_stage(path):
        stage = _written(loaded, path[:2])
        at = stage
        for number, part in enumerate(path[2:-1], start=3):
            held = at.get(part)
            if not isinstance(held, dict):  # nothing yet, or an option by its name alone
                at[part] = {tag_of(path[:number]): held} if isinstance(held, str) else {}
            at = at[part]
        at[path[-1]] = value
        path, value = path[:2], stage
    changed = put(loaded, path, value)
    before = {problem.message for problem in resolve_stages(loaded.config)[1]}
    for problem in resolve_stages(changed.config)[1]:
        if problem.message not in before:
            raise ConfigError(problem.message, hint=problem.hint)
    return changed if whole == path else _with_sources(changed, loaded, whole)


def _with_sources(changed: Loaded, before: Loaded, path: KeyPath) -> Loaded:
    """A changed stage, of whose other keys it is still known where they were written."""
    stage = path[:2]
    kept = {at: source for at, source in before.sources.items() if at[:2] == stage and at[: len(path)] != path}
    edited = changed.sources.get(stage)
    others = {at: source for at, source in changed.sources.items() if at[:2] != stage}
    return replace(changed, sources={**others, **kept, **({path: edited} if edited is not None else {})})


def _written(loaded: Loaded, path: KeyPath) -> Any:
    """A value as a file would say it.

    Raises:
        ConfigError: there is no such key.
    """
    value: Any = loaded.config
    try:
        for part in path:
            declared: type = type(value)
            is_section = is_dataclass(value)
            value = getattr(value, fields_of(declared)[str(part)].attribute) if is_section else value[part]
    except (LookupError, TypeError) as error:
        raise ConfigError(said("there is no key {key!r}", key=dotted(path))) from error
    links = {at[len(path) :]: text for at, text in loaded.expressions.items() if at[: len(path)] == path}
    if () in links:
        return links[()]
    plain = to_plain(value, sparse=True)
    for at, text in links.items():
        put_at(plain, at, text)
    return plain


def tag_of(path: KeyPath) -> str:
    """The key that tells items apart: the type of a choice's option, or a name."""
    hint: Any = Config
    for part in path[2:] if in_stage(path) else path:
        held = [cls for cls, _ in sections_in(hint)]
        fields = [fields_of(option).get(str(part)) for cls in held for option in _options(cls)]
        hint = next((info.type for info in fields if info is not None), hint)
    return next((cls.tag for cls, _ in sections_in(hint) if issubclass(cls, Choice)), "name")


def _options(cls: type) -> list[type]:
    return list(cls.registry.values()) if issubclass(cls, Choice) else [cls]


def _read(text: str, path: Path, dialect: str | None, given: Mapping[str, str] | None = None) -> tuple[Loaded, Report]:
    loaded, report = read_input(gathered(text, str(path), given), dialect=dialect)
    if loaded is None:
        raise UsageError("\n".join(_errors(report)), hint=said("fix {path} first", path=path))
    return loaded, report


def _errors(report: Report) -> Iterator[str]:
    for finding in report.findings:
        if finding.level is Level.ERROR:
            yield f"{finding.at or ''} {finding.message}".strip()


def _silence(dialect: str) -> Config:
    """The config that an empty file of a dialect means; rlctl's own defaults if it means none."""
    document = Document(name="<empty>", values={}, marks={}, comments={}, text="")
    try:
        loaded, _ = read_document(document, dialect=dialect)
    except RlctlError:
        return Config()
    return Config() if loaded is None else loaded.config


__all__ = ["Change", "Draft", "FileChangedError", "FileProtectedError", "Merge", "OnDisk", "SaveOverError", "Session"]
