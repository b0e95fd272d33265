"""What an editor shows of one text: read and checked again after each change, as far as it can be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import islice

from rlctl.adapters import dialect, names, signed
from rlctl.adapters.engine.tree import GONE
from rlctl.checks.hints import Setting, by_key, shown
from rlctl.cli.lsp.spelling import respelled
from rlctl.cli.lsp.texts import Span, Text
from rlctl.common.errors import Location, RlctlError, TranslationError
from rlctl.common.messages.reasons import spoken, translated
from rlctl.common.report import Finding, Fix, Level, Report, finding
from rlctl.config import Loaded, put
from rlctl.documents import parse_dotted
from rlctl.editing.saving import edited_text, gathered, with_own_value
from rlctl.translation.checking import Question, checked, runner_of
from rlctl.translation.translate import is_unlike_all, read_input

FIXES = 3
"""Most values of one key that are offered as fixes."""
OF_RELEASE = frozenset({"release-assumed", "releases-differ", "other-release"})
"""Notes on the release that was detected."""
TYPED = 4
"""Most keys that differ between two texts of which the second was typed into the first."""
TRIED = 8
"""Most values of one key that are tried for them."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a text: lines from ``start`` to before ``end``, counted from 0, become others."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """A change that resolves a finding, verified by checking the changed text."""

    title: str
    edits: tuple[Edit, ...]


@dataclass
class Analysis:
    """A text, and what is known of it."""

    text: Text
    name: str
    runner: str
    """Who runs the config."""
    loaded: Loaded | None = None
    report: Report = field(default_factory=Report)
    findings: list[Finding] = field(default_factory=list)
    is_read: bool = True
    """Whether the text itself could be read; if not, ``loaded`` may be what was known before."""
    is_config: bool = True
    """Whether it is a config at all: other YAML files and scripts are left alone."""
    keeps_release: bool = False
    """Whether its release is that of the text before, which has nearly the same keys: to detect it takes half of the time."""
    _repairs: dict[tuple[str, str, int], list[Repair]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of the framework's files that the text is, as ``ppo`` of verl; empty if nothing says."""
        name, _, release = self.dialect.partition("@")
        if name in ("", "rlctl") or self.loaded is None:
            return ""
        try:
            return dialect(name).kind_for(self.loaded.config, release)
        except TranslationError:
            return ""

    @property
    def dialect(self) -> str:
        """What it was read as, as ``verl@0.9``; empty if that is not known."""
        return self.report.dialect

    def place_of(self, item: Finding) -> Span:
        """Where a finding is in this text; its first line if it is about the whole."""
        line = max(0, (item.at.line if item.at is not None and item.at.file == self.name else 0) - 1)
        if line >= len(self.text.lines):
            return Span(max(0, len(self.text.lines) - 1), 0, 0)
        key = self.text.find(item.key, near=line) if item.at is not None and item.at.line else None
        if key is not None:
            return Span(line, key.span.start, max(key.span.end, key.value.end))
        content = self.text.lines[line]
        return Span(line, len(content) - len(content.lstrip()), len(content.rstrip()))

    def repairs(self, item: Finding) -> list[Repair]:
        """The changes that resolve a finding and bring no new error or warning; each was checked."""
        place = (item.code, item.key, item.at.line if item.at is not None else 0)
        if place not in self._repairs:
            found = {repair.edits: repair for repair in self._found_repairs(item)}  # two ways may lead to one change
            self._repairs[place] = list(found.values())
        return self._repairs[place]

    def _found_repairs(self, item: Finding) -> Iterator[Repair]:
        content = self.text.content
        if item.meant and (changed := self._renamed(item)) is not None and self._resolves(item, changed):
            title = spoken("rename {key} to {meant}", key=item.key, meant=item.meant)
            yield Repair(title, tuple(edits_between(content, changed)))
            return
        for key, values in by_key(item.candidates):
            fixes = (((key, value), self._with((key, value))) for value in values[:TRIED])
            good = ((fix, changed) for fix, changed in fixes if changed is not None and self._resolves(item, changed))
            for fix, changed in islice(good, FIXES):
                edits = tuple(edits_between(content, changed))
                yield Repair(_title(edits, fix), edits)

        for changed in respelled(self.text, item, self.dialect, self.kind):
            if self._resolves(item, changed):
                edits = tuple(edits_between(content, changed))
                yield Repair(_line_of(edits), edits)
                break
        for own, choices in item.own_fixes:
            for choice in choices[:FIXES] or (GONE,):
                repaired = self._with_own(own, choice)
                if repaired is not None and self._resolves(item, repaired):
                    edits = tuple(edits_between(content, repaired))
                    title = _line_of(edits) or str(Setting(own, () if choice is GONE else (choice,)))
                    yield Repair(title, edits)

    def _with_own(self, key: str, value: object) -> str | None:
        """The text with another value of one of its own keys; None if it cannot be edited so."""
        if self.loaded is None:
            return None
        return with_own_value(self.text.content, self.name, self.dialect, self.loaded, parse_dotted(key), value)

    def _renamed(self, item: Finding) -> str | None:
        """The text with the key that was meant; None if that is in another section."""
        key = self.text.find(item.key, near=item.at.line - 1) if item.at is not None and item.at.line else None
        if key is None:
            return None
        lines, span = list(self.text.content.splitlines(keepends=True)), key.span
        old, _, new = lines[span.line][span.start : span.end], *item.meant.rpartition(".")[1:]
        if self.text.is_script:
            new = item.meant
        elif item.meant.rpartition(".")[0] != item.key.rpartition(".")[0] or old != item.key.rpartition(".")[2]:
            return None
        lines[span.line] = f"{lines[span.line][: span.start]}{new}{lines[span.line][span.end :]}"
        return "".join(lines)

    def _with(self, fix: Fix) -> str | None:
        """The text with a canonical value; None if the format cannot express it."""
        if self.loaded is None:
            return None
        with suppress(RlctlError, ValueError, LookupError):
            changed = put(self.loaded, *fix)
            edited = edited_text(self.text.content, self.name, self.dialect, self.loaded, changed)
            return edited.text if edited is not None and edited.text != self.text.content else None
        return None

    def _resolves(self, item: Finding, changed: str) -> bool:
        """Whether a text has a finding no more, and no error or warning that was not there."""
        again = analyse(changed, self.name, self.runner, before=self)
        there = {(found.code, found.key) for found in self.findings}
        left = [found for found in again.findings if found.level is not Level.NOTE]
        gone = not any((found.code, found.key) == (item.code, item.key) for found in left)
        new = [found for found in left if (found.code, found.key) not in there]
        if self.is_read:
            return gone and again.is_read and not new
        told = {item.key, item.meant} - {""}  # of a text that cannot be read the rest was not checked yet
        return gone and not any(found.code == "unreadable" or found.key in told for found in new)


def analyse(
    content: str, name: str, runner: str = "", *, before: Analysis | None = None, tries_values: bool = False
) -> Analysis:
    """Read and check a text.

    Args:
        content: what the editor holds.
        name: path of the file, from where it includes others.
        runner: who runs the config; empty if that is the framework of the file.
        before: of the text before a change: shown where the changed one cannot be read.
        tries_values: whether hints have the values that the file's framework can express, and the release is detected again
            although the keys are nearly the same; takes longer.
    """
    text = Text(content, name)
    last = before.dialect.partition("@")[0] if before is not None else ""
    same = None if tries_values else before if before is not None and _is_changed_little(before, text) else None
    try:
        loaded, report = _read(content, name, same.dialect if same else None, without_kept=last != "rlctl")
        found = report.dialect.partition("@")[0]
        if found == "rlctl" != last:
            loaded, report = _read(content, name, without_kept=False)
    except RlctlError as error:
        return _unreadable(text, name, runner, error, before)
    asks = runner_of(found, runner)
    question = Question(runner=asks, tries_values=tries_values, most=None)
    result = checked(loaded, report, question, name, content)
    made = Analysis(text, name, runner, loaded, result.report, list(result.report.findings), is_read=loaded is not None)
    if same is not None:
        made.keeps_release = True
        there = {item.code for item in made.findings}
        made.findings += [item for item in same.findings if item.code in OF_RELEASE - there]
    if loaded is None and before is not None:
        made.loaded = before.loaded
    return made


def _is_changed_little(before: Analysis, text: Text) -> bool:
    """Whether a text differs from the one before in values and in few keys, as while a key is typed: its release is the same."""
    is_read = before.loaded is not None and not any(item.code == "unreadable" for item in before.findings)
    return is_read and len(before.text.paths ^ text.paths) <= TYPED


def _read(content: str, name: str, dialect: str | None = None, *, without_kept: bool) -> tuple[Loaded | None, Report]:
    return read_input(gathered(content, name, None), dialect=dialect, without_kept=without_kept)


def _unreadable(text: Text, name: str, runner: str, error: RlctlError, before: Analysis | None) -> Analysis:
    """A text that cannot be read: what was known before stays, with the error; a file of another tool is left alone."""
    known = before if before is not None and before.is_config and before.dialect else None
    if known is None and (isinstance(error, TranslationError) or not _looks_like_config(text)):
        return Analysis(text, name, runner, is_config=False)
    at = error.at or Location(name)
    shown_error = finding(
        "unreadable", Level.ERROR, at=at, reason=translated(error.message), advice=translated(error.hint)
    )
    if known is None:
        return Analysis(text, name, runner, findings=[shown_error], is_read=False)
    return Analysis(text, name, runner, known.loaded, known.report, [shown_error], is_read=False)


def _looks_like_config(text: Text) -> bool:
    if text.is_script:
        return any(program.strip("*") in text.content for name in names() for program in dialect(name).programs)
    tops = list(dict.fromkeys(key.path[0] for key in text.keys))
    return bool(signed(tops)) or (bool(tops) and not is_unlike_all(tops))


def edits_between(before: str, after: str) -> Iterator[Edit]:
    """The lines that differ."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for tag, start, end, from_, to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Edit(start, end, tuple(new[from_:to]))


def _line_of(edits: Sequence[Edit]) -> str:
    """A change of one short line; empty for others."""
    lines = [line.strip().rstrip("\\").strip() for edit in edits for line in edit.lines]
    return spoken("change the line to: {line}", line=lines[0]) if len(lines) == 1 and len(lines[0]) < 100 else ""


def _title(edits: Sequence[Edit], fix: Fix) -> str:
    """What a fix changes: the new line if it is one, else the canonical key and value."""
    if line := _line_of(edits):
        return line
    path, value = fix
    return spoken("set rlctl's {key} to {value}", key=".".join(map(str, path)), value=shown(value))


__all__ = ["Analysis", "Edit", "Repair", "analyse", "edits_between"]
