"""What the checks say: each finding leads to its field, and what would mend it is one key away."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from rlctl.common.errors import RlctlError
from rlctl.common.messages import has, text
from rlctl.common.report import Finding, Level
from rlctl.documents import dotted, parse_dotted
from rlctl.editing.session import Session
from rlctl.tui.language import LANGUAGE, say
from rlctl.tui.panes.editor import EditorPane

MARKS = {Level.ERROR: "[$error on $surface]✗[/]", Level.WARNING: "[$warning on $surface]![/]", Level.NOTE: "·"}
"""With a ground of their own, so that they can be read in the chosen row too."""
ORDER = list(Level)


class FindingsPane(EditorPane):
    """The findings, the worst first."""

    DEFAULT_CSS = """
    FindingsPane OptionList { height: 1fr; padding: 0 0 0 1; }
    FindingsPane OptionList, FindingsPane OptionList:focus { border: none; }
    FindingsPane Static { height: auto; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fix", say("Fix"), id="findings.fix", tooltip=say("Set what would mend the finding")),
    ]

    class Fix(Message):
        """A person wants a finding mended."""

        def __init__(self, finding: Finding) -> None:
            self.finding = finding
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.findings: list[Finding] = []

    def compose(self) -> ComposeResult:
        yield Static(say("enter: to the field   f: apply the fix"), markup=False)
        yield OptionList(id="finding-list")

    def read(self, session: Session) -> Any:
        return sorted(session.findings(), key=lambda item: ORDER.index(item.level))

    def take(self, found: Any) -> None:
        is_shown = found == self.findings and [item.fixes for item in found] == [item.fixes for item in self.findings]
        if is_shown and found:
            return
        listed = self.query_one("#finding-list", OptionList)
        at = listed.highlighted
        self.findings = found
        listed.clear_options()
        listed.add_options([Option(_text(item)) for item in found] or [Option(say("nothing is wrong"), disabled=True)])
        if found and (at is not None or listed.has_focus):
            listed.highlighted = min(at or 0, len(found) - 1)

    @property
    def errors(self) -> int:
        return sum(item.level is Level.ERROR for item in self.findings)

    @on(OptionList.OptionSelected)
    def _to_field(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        item = self.findings[message.option_index]
        if fact := item.fact:
            self.post_message(self.Ask(fact))
            return
        key = item.key
        try:
            path = parse_dotted(key) if key else ()
        except (ValueError, RlctlError):
            path = ()
        if path:
            self.post_message(self.Jump(path))
        else:
            self.notify(say("this finding is about no single field"))

    def action_fix(self) -> None:
        at = self.query_one("#finding-list", OptionList).highlighted
        if at is None or at >= len(self.findings):
            self.notify(say("go to a finding first"))
        elif self.findings[at].fixes:
            self.post_message(self.Fix(self.findings[at]))
        else:
            self.notify(say("there is no single value that mends it: enter leads to the field"))


def counted(findings: list[Finding]) -> list[str]:
    """How many errors and warnings there are, with their marks; that there are none."""
    errors = sum(item.level is Level.ERROR for item in findings)
    warnings = sum(item.level is Level.WARNING for item in findings)
    told = [say("✗ 1 error") if errors == 1 else say("✗ {count} errors").format(count=errors)] if errors else []
    if warnings:
        told.append(say("! 1 warning") if warnings == 1 else say("! {count} warnings").format(count=warnings))
    return told or [say("✓ no problems")]


def _text(item: Finding) -> str:
    where = f" ({item.at})" if item.at is not None else ""
    message, advice = _said(item)
    hint = f"\n  [dim]{escape(advice)}[/dim]" if advice else ""
    if way := _way(item):
        hint += f"\n  [b]{escape(way)}[/b]"
    told = f"{item.key}: {message}" if item.key and item.key not in message else message
    return f"{MARKS[item.level]} {escape(told + where)}{hint}{_fixes(item)}"


def _said(item: Finding) -> tuple[str, str]:
    """Message and hint; before an English message in the Chinese app what its code means."""
    if item.id or LANGUAGE == "en" or not has(f"{item.code}.about"):
        return item.message, item.hint
    return f"{text(f'{item.code}.about')}\n  {item.message}", item.hint


def _way(item: Finding) -> str:
    """How the app does what a command-line option does."""
    if fact := item.fact:
        return say("press F10 to state {fact}").format(fact=fact)
    if item.option.startswith("--env"):
        return say("to change it, start the app with {option}").format(option=item.option)
    return ""


def _fixes(item: Finding) -> str:
    if not item.fixes:
        return ""
    values = say(" or ").join(f"{dotted(key)} = {value!r}" for key, value in item.fixes)
    return f"\n  [b]f[/b]: {escape(values)}"
