"""What the checks say, one entry a cause as `rlctl check` groups them: each leads to its field, and its fix is one key away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from rlctl.checks import elsewhere
from rlctl.checks.hints import shown
from rlctl.common.errors import RlctlError
from rlctl.common.language import later
from rlctl.common.messages import has, text
from rlctl.common.report import Finding, Level
from rlctl.common.report_lines import Cause, causes, framework, without_runtime
from rlctl.documents import KeyPath, dotted, parse_dotted
from rlctl.editing.planning import machines_of
from rlctl.editing.session import Session
from rlctl.tui.dialogs.ask import ChooseScreen
from rlctl.tui.language import LANGUAGE, say
from rlctl.tui.navigation import navigation
from rlctl.tui.panes.editor import EditorPane
from rlctl.tui.widgets.hanging import Hanging

MARKS = {Level.ERROR: "[$error bold]✗[/]", Level.WARNING: "[$warning bold]![/]", Level.NOTE: "·"}
ORDER = list(Level)
COUNTS = {
    Level.ERROR: (later("1 error"), later("{count} errors")),
    Level.WARNING: (later("1 warning"), later("{count} warnings")),
    Level.NOTE: (later("1 note"), later("{count} notes")),
}
NOTES = "notes"
"""The line that unfolds them."""
OFFERED = 9
"""Most fields of one cause that are offered."""


class FindingsPane(EditorPane):
    """The findings, the worst first."""

    DEFAULT_CSS = """
    FindingsPane OptionList { height: 1fr; padding: 0 0 0 1; }
    FindingsPane OptionList, FindingsPane OptionList:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fix", say("Fix"), id="findings.fix", tooltip=say("Set the value that fixes the finding")),
    ]

    class Fix(Message):
        """A person wants a finding mended."""

        def __init__(self, finding: Finding) -> None:
            self.finding = finding
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self.is_open = False
        """Whether notes are listed although there are errors or warnings."""
        self._at: list[Cause | None] = []
        """The cause of each line; None of a head."""
        self._dialect = ""

    def compose(self) -> ComposeResult:
        yield OptionList(id="finding-list")

    def read(self, session: Session) -> Any:
        self._dialect = session.dialect
        cluster = machines_of(navigation(self.app).machines, session.config)
        return sorted(map(elsewhere, session.findings(cluster)), key=lambda item: ORDER.index(item.level))

    def take(self, found: Any) -> None:
        is_shown = found == self.findings and [item.fixes for item in found] == [item.fixes for item in self.findings]
        if is_shown and found:
            return
        self.findings = found
        self._list()

    def _list(self) -> None:
        listed = self.query_one("#finding-list", OptionList)
        at = listed.highlighted
        before = self._at[at] if at is not None and at < len(self._at) else None
        self._at = []
        options: list[Option] = []
        own, runtime = without_runtime(self.findings, self._dialect)
        noted = [item for item in runtime if item.level is Level.NOTE]
        worse = [cause for cause in causes(runtime) if cause.level is not Level.NOTE]
        by_level = {level: [cause for cause in causes([*own, *noted]) if cause.level is level] for level in ORDER}
        groups = [(_counted(level, len(found)), found) for level, found in by_level.items() if level is not Level.NOTE]
        groups.append((text("check-runtime", framework=framework(self._dialect)), worse))
        folds = not self.is_open and any(found for _, found in groups)
        for heading, found in groups:
            if found:
                self._add(options, Option(f"[$text-muted]{escape(heading)}[/]", disabled=True), found)
        if notes := by_level[Level.NOTE]:
            told = _counted(Level.NOTE, len(notes))
            unfolds = f"[$primary]▸[/] {say('{count}: Enter lists them').format(count=told)}"
            line = Option(unfolds, id=NOTES) if folds else Option(f"[$text-muted]{told}[/]", disabled=True)
            self._add(options, line, () if folds else notes)
        listed.clear_options()
        listed.add_options(options or [Option(say("no problems found"), disabled=True)])
        if options and (at is not None or listed.has_focus):
            known = [place for place, cause in enumerate(self._at) if cause is not None]
            same = [place for place in known if before is not None and self._at[place] == before]
            listed.highlighted = next(iter([*same, *(place for place in known if place >= (at or 0)), *known]), None)

    def _add(self, options: list[Option], heading: Option, found: Sequence[Cause]) -> None:
        options += [heading, *(Option(Hanging(_text(cause))) for cause in found)]
        self._at += [None, *found]

    def line_of(self, finding: Finding) -> int:
        """The line of the list that has a finding."""
        return next(place for place, cause in enumerate(self._at) if cause is not None and finding in cause.findings)

    @property
    def errors(self) -> int:
        return sum(cause.level is Level.ERROR for cause in causes(self.findings))

    @property
    def warnings(self) -> int:
        return sum(cause.level is Level.WARNING for cause in causes(self.findings))

    @on(OptionList.OptionSelected)
    def _to_field(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        if message.option_id == NOTES:
            self.is_open = True
            self._list()
            return
        cause = self._at[message.option_index]
        if cause is None:
            return
        keys = list(dict.fromkeys(item.key for item in cause.findings if item.key))
        if fact := cause.first.fact:
            self.post_message(self.Ask(fact))
        elif len(keys) > 1:
            answers = [(str(number), key) for number, key in enumerate(keys[:OFFERED], start=1)]
            self.app.push_screen(
                ChooseScreen(say("Go to which of these?"), answers),
                lambda answer: self._go(keys[int(answer) - 1]) if answer else None,
            )
        else:
            self._go(next(iter(keys), ""))

    def _go(self, key: str) -> None:
        if path := path_of(key):
            self.post_message(self.Jump(path))
        else:
            self.notify(say("this finding concerns several fields"))

    def action_fix(self) -> None:
        at = self.query_one("#finding-list", OptionList).highlighted
        cause = self._at[at] if at is not None and at < len(self._at) else None
        fixable = next((item for item in cause.findings if item.fixes), None) if cause is not None else None
        if cause is None:
            self.notify(say("go to a finding first"))
        elif fixable is not None:
            self.post_message(self.Fix(fixable))
        else:
            self.notify(say("there is no single value that fixes it: enter goes to the field"))


def path_of(key: str) -> KeyPath:
    """The path of a finding's key; empty if it is about no single field."""
    try:
        return parse_dotted(key) if key else ()
    except (ValueError, RlctlError):
        return ()


def counted(findings: list[Finding]) -> list[str]:
    """How many errors and warnings there are, as the list counts them, with their marks; that there are none."""
    levels = [cause.level for cause in causes(findings)]
    errors, warnings = levels.count(Level.ERROR), levels.count(Level.WARNING)
    told = [say("✗ 1 error") if errors == 1 else say("✗ {count} errors").format(count=errors)] if errors else []
    if warnings:
        told.append(say("! 1 warning") if warnings == 1 else say("! {count} warnings").format(count=warnings))
    return told or [say("✓ no problems")]


def _counted(level: Level, count: int) -> str:
    one, many = COUNTS[level]
    return say(one) if count == 1 else say(many).format(count=count)


def _text(cause: Cause) -> str:
    """A cause: where it is, what was found, what to do, and the values that fix it."""
    item = cause.first
    place = ""
    if item.at is not None and len({each.at for each in cause.findings}) == 1:
        place = f"  [$text-muted]{escape(str(item.at))}[/]"
    message, advice = _said(cause)
    key = "[b]f[/b]: " if _says(advice, item) else ""
    hint = f"\n  {key}[$text-muted]{escape(advice)}[/]" if advice else ""
    if way := _way(item):
        hint += f"\n  [b]{escape(way)}[/b]"
    told = f"{item.key}: {message}" if item.key and item.key not in message and len(cause.findings) == 1 else message
    return f"{MARKS[item.level]} {escape(told)}{place}{hint}{'' if key else _fixes(item)}"


def _said(cause: Cause) -> tuple[str, str]:
    """Message and hint; before an English message in the Chinese app what its code means."""
    item = cause.first
    if item.id or LANGUAGE == "en" or not has(f"{item.code}.about"):
        return cause.message, item.hint
    return f"{text(f'{item.code}.about')}\n  {cause.message}", item.hint


def _way(item: Finding) -> str:
    """How the app does what a command-line option does."""
    if fact := item.fact:
        return say("press F10 to give {fact}").format(fact=fact)
    if item.option.startswith("--env"):
        return say("to change it, start the app with {option}").format(option=item.option)
    return ""


def _says(advice: str, item: Finding) -> bool:
    """Whether an advice has the values that fix a finding, each with its key."""
    return bool(item.fixes) and all(dotted(key) in advice and shown(value) in advice for key, value in item.fixes)


def _fixes(item: Finding) -> str:
    if not item.fixes:
        return ""
    values = say(" or ").join(f"{dotted(key)} = {value!r}" for key, value in item.fixes)
    return f"\n  [b]f[/b]: {escape(values)}"
