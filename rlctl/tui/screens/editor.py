"""The editor: sections, the form of one of them, and beside it help, findings and the run in any dialect."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.markup import escape
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Header, Input, OptionList, Static, TabbedContent, TabPane
from textual.widgets.option_list import Option

from rlctl.documents import KeyPath, parse_dotted
from rlctl.editing import recovery
from rlctl.editing.fields import FieldView, fields, search
from rlctl.editing.session import FileChangedError, Session
from rlctl.editing.values import value_of
from rlctl.errors import ConfigError, RlctlError
from rlctl.report import Finding, Level
from rlctl.tui.screens.ask import AskScreen, NameScreen
from rlctl.tui.widgets.field_row import FieldRow
from rlctl.tui.widgets.section_tree import SectionTree

DIALECTS = ("rlctl", "verl", "trinity", "roll")
RESULTS = 40
"""Most fields that a search shows."""
MARKS = {Level.ERROR: "[$error]x[/]", Level.WARNING: "[$warning]![/]"}


class EditorScreen(Screen[None]):
    """Edits one config."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+s", "save", "Save", id="edit.save", tooltip="Write the file, in its own dialect, with its look kept"
        ),
        Binding(
            "f12", "save_as", "Save as", id="edit.save_as", tooltip="Write another file, in this or another dialect"
        ),
        Binding("ctrl+z", "undo", "Undo", id="edit.undo", priority=True, tooltip="Take back what was done last"),
        Binding("ctrl+y", "redo", "Redo", id="edit.redo", priority=True, tooltip="Do again what was undone"),
        Binding("ctrl+f", "search", "Search", id="edit.search", tooltip="Find a field by key, help or dialect name"),
        Binding("f2", "toggle_full", "All/essential", id="edit.full", tooltip="Show every field, or what is set first"),
        Binding("f3", "reset", "Default", id="edit.reset", tooltip="Give the field its default"),
        Binding("f4", "dialect", "Dialect", id="edit.dialect", tooltip="Preview the run in the next dialect"),
        Binding("f5", "beside", "Beside", id="edit.beside", tooltip="Show or hide what is beside the form"),
        Binding("escape", "leave", "Back", id="edit.leave", tooltip="Leave the search, or the file"),
    ]

    class Checked(Message):
        """What the checks say, and the preview, of one state of the config."""

        def __init__(self, findings: list[Finding], preview: str) -> None:
            self.findings, self.preview = findings, preview
            super().__init__()

    def __init__(self, session: Session, *, readonly: bool = False) -> None:
        super().__init__()
        self.session, self.readonly = session, readonly
        self.views: list[FieldView] = []
        self.section: KeyPath = ("run",)
        self.full = True
        self.dialect = 0
        self.findings: list[Finding] = []
        self._looked: FieldView | None = None
        self._names: dict[str, list[str]] = {}
        self._one_form = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield Header()
        with Horizontal(id="body"):
            yield SectionTree()
            with Vertical(id="middle"):
                yield Input(placeholder="search: key, help, or what a dialect calls it", id="search", compact=True)
                yield VerticalScroll(id="form")
            with TabbedContent(id="beside"):
                with TabPane("Help", id="help"):
                    yield VerticalScroll(Static("", id="help-text", markup=False))
                with TabPane("Findings", id="findings"):
                    yield OptionList(id="finding-list")
                with TabPane("Preview", id="preview"):
                    yield VerticalScroll(Static("", id="preview-text", markup=False))
        yield Footer()

    async def on_mount(self) -> None:
        self.query_one("#search").display = False
        self.views = fields(self.session)
        self.query_one(SectionTree).show(self.views)
        await self._show_form()
        self._renew()
        self.query_one(SectionTree).focus()
        self._offer_recovery()

    # What is shown

    async def _show_form(self) -> None:
        """The fields of the section, or of the search."""
        typed = self.query_one("#search", Input)
        if typed.display and typed.value.strip():
            shown = search(self.views, typed.value, self._dialect_names)[:RESULTS]
        else:
            shown = [view for view in self.views if view.section == self.section and (self.full or view.is_essential)]
        form = self.query_one("#form", VerticalScroll)
        async with self._one_form:
            await form.remove_children()
            await form.mount_all(
                [FieldRow(view, whole_key=typed.display) for view in shown] or [Static("nothing here")]
            )

    def _renew(self) -> None:
        """Show the config as it is now, and let it be checked."""
        self.views = fields(self.session)
        by_path = {view.path: view for view in self.views}
        for row in self.query(FieldRow):
            if row.view.path in by_path:
                row.show(by_path[row.view.path])
        self.query_one(SectionTree).show(self.views)
        name = "new config" if self.session.file is None else self.session.file.path.name
        self.title = f"{name}{' *' if self.session.is_changed else ''}"
        self.sub_title = self.session.dialect
        self._check(*recovery.contents(self.session))

    @work(thread=True, exclusive=True, group="check")
    def _check(self, place: Path, unsaved: str) -> None:
        session, name = self.session, DIALECTS[self.dialect]
        recovery.write(place, unsaved)
        findings = session.findings()
        translated = session.preview(name)
        told = [item.message for item in translated.report.findings if item.level is Level.ERROR]
        self.post_message(self.Checked(findings, translated.text or "\n".join(told)))

    @on(Checked)
    def _checked(self, message: Checked) -> None:
        self.findings = sorted(
            message.findings, key=lambda item: [Level.ERROR, Level.WARNING, Level.NOTE].index(item.level)
        )
        listed = self.query_one("#finding-list", OptionList)
        listed.clear_options()
        for item in self.findings:
            hint = f"\n  [dim]{escape(item.hint)}[/dim]" if item.hint else ""
            listed.add_option(Option(f"{MARKS.get(item.level, '·')} {escape(f'{item.key}: {item.message}')}{hint}"))
        errors = sum(item.level is Level.ERROR for item in self.findings)
        tab = self.query_one("#beside", TabbedContent).get_tab("findings")
        tab.label = f"Findings ({errors} errors)" if errors else f"Findings ({len(self.findings)})"
        self.query_one("#beside", TabbedContent).get_tab("preview").label = f"Preview: {DIALECTS[self.dialect]}"
        self.query_one("#preview-text", Static).update(message.preview)

    def _dialect_names(self, pattern: str) -> list[str]:
        """What dialects call a key."""
        if pattern not in self._names:
            from rlctl.adapters.matrix import spellings

            path = re.sub(r"<[^<>]*>", "", pattern)
            self._names[pattern] = [key.name for item in spellings(path) for key in item.keys]
        return self._names[pattern]

    @on(FieldRow.Looked)
    def _look(self, message: FieldRow.Looked) -> None:
        self._looked = view = message.view
        names = ", ".join(self._dialect_names(view.pattern)) or "no dialect has it"
        facts = [
            view.help,
            "",
            f"type     {view.type}" + (f", {view.range}" if view.range else ""),
            f"default  {view.default or 'none: it must be set'}",
            f"from     {view.origin}",
            f"called   {names}",
        ]
        self.query_one("#help-text", Static).update("\n".join([".".join(map(str, view.path)), "", *facts]))

    # What a person does

    @on(SectionTree.Picked)
    async def _pick(self, message: SectionTree.Picked) -> None:
        if message.path != self.section:
            self.section = message.path
            await self._show_form()

    @on(FieldRow.Typed)
    async def _typed(self, message: FieldRow.Typed) -> None:
        row = message.row
        try:
            if row.view.kind == "choice" and message.text != "null":
                self.session.choose(row.view.path, message.text)
            else:
                self.session.set(row.view.path, value_of(message.text, row.view.info), merge=True)
        except ConfigError as error:
            row.tell(error.message)
            return
        row.tell("")
        others = {view.path for view in self.views}
        self._renew()
        if {view.path for view in self.views} != others and row.view.kind != "text":
            await self._show_form_around(row.view.path)

    async def _show_form_around(self, path: KeyPath) -> None:
        """Show the form anew, as fields came or went, with the cursor where it was."""
        await self._show_form()
        for row in self.query(FieldRow):
            if row.view.path == path:
                row.focus_field()

    @on(OptionList.OptionSelected, "#finding-list")
    async def _jump_to_finding(self, message: OptionList.OptionSelected) -> None:
        key = self.findings[message.option_index].key
        try:
            await self.jump(parse_dotted(key) if key else ())
        except ValueError:
            self.notify(f"{key} is no key of this config", markup=False)

    async def jump(self, path: KeyPath) -> None:
        """Show the field at a path, or the nearest above it."""
        known = {view.path: view for view in self.views}
        near = next((path[:size] for size in range(len(path), 0, -1) if path[:size] in known), None)
        if near is None:
            return
        self.query_one("#search", Input).display = False
        self.section, self.full = known[near].section, True
        self.query_one(SectionTree).pick(self.section)
        await self._show_form_around(near)

    def _after(self, changes: Any, word: str) -> None:
        if not changes:
            self.notify(f"nothing to {word}")
            return
        self._renew()
        self.notify(f"{word}: {changes[-1].label}", markup=False)

    async def action_undo(self) -> None:
        self._after(self.session.undo(), "undo")
        await self._show_form()

    async def action_redo(self) -> None:
        self._after(self.session.redo(), "redo")
        await self._show_form()

    async def action_reset(self) -> None:
        if self._looked is None:
            return
        try:
            self.session.reset(self._looked.path)
        except (ConfigError, LookupError):
            self.notify(f"{self._looked.pattern} has no default", severity="warning", markup=False)
            return
        self._renew()
        await self._show_form_around(self._looked.path)

    async def action_toggle_full(self) -> None:
        self.full = not self.full
        await self._show_form()

    def action_dialect(self) -> None:
        self.dialect = (self.dialect + 1) % len(DIALECTS)
        self.query_one("#beside", TabbedContent).active = "preview"
        self._renew()

    def action_beside(self) -> None:
        beside = self.query_one("#beside")
        beside.display = not beside.display

    def action_search(self) -> None:
        typed = self.query_one("#search", Input)
        typed.display = True
        typed.focus()

    @on(Input.Changed, "#search")
    async def _search(self) -> None:
        await self._show_form()

    @on(Input.Submitted, "#search")
    def _enter_results(self) -> None:
        rows = list(self.query(FieldRow))
        if rows:
            rows[0].focus_field()

    async def action_leave(self) -> None:
        typed = self.query_one("#search", Input)
        if typed.display:
            typed.display = False
            await self._show_form()
            self.query_one(SectionTree).focus()
        elif not self.session.is_changed or (self.session.file is None and not self.session.changes):
            self._go()
        else:
            question = "There are changes that are not saved. Leave without them?"
            self.app.push_screen(AskScreen(question, "Leave"), lambda yes: self._give_up() if yes else None)

    def _give_up(self) -> None:
        recovery.forget(self.session)
        self._go()

    def _go(self) -> None:
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self.app.exit()

    # Saving

    def action_save(self) -> None:
        if self.readonly:
            self.notify("opened to read only", severity="warning")
        elif self.session.file is None:
            self.action_save_as()
        else:
            self._save(force=False)

    def _save(self, *, force: bool) -> None:
        try:
            path = self.session.save(force=force)
        except FileChangedError as error:
            self.app.push_screen(
                AskScreen(f"{error.message}. Save over it?", "Save over it"),
                lambda yes: self._save(force=True) if yes else None,
            )
        except RlctlError as error:
            self.notify(str(error), title="not saved", severity="error", markup=False)
        else:
            self._saved(path)

    def _saved(self, path: Path) -> None:
        recovery.forget(self.session)
        lost = self.session.lost
        if lost:
            told = "; ".join(f"{key} = {wanted!r} is written as {said!r}" for key, wanted, said in lost[:5])
            self.notify(f"{self.session.dialect} cannot say {told}", severity="warning", timeout=15, markup=False)
        self.notify(f"saved {path}", markup=False)
        self._renew()

    def action_save_as(self) -> None:
        if self.readonly:
            self.notify("opened to read only", severity="warning")
            return
        name = "run.yaml" if self.session.file is None else str(self.session.file.path)
        self.app.push_screen(NameScreen(name, self.session.dialect, DIALECTS), self._save_as)

    def _save_as(self, chosen: tuple[str, str] | None) -> None:
        if chosen is None:
            return
        name, dialect = chosen
        same = self.session.dialect.partition("@")[0] == dialect
        try:
            path = self.session.save_as(Path(name), None if same else dialect)
        except RlctlError as error:
            self.notify(str(error), title="not saved", severity="error", markup=False)
        else:
            self._saved(path)

    # Recovery

    def _offer_recovery(self) -> None:
        if self.session.file is None or self.readonly:
            return
        item = next(recovery.kept(self.session.file.path), None)
        if item is None:
            return
        told = "\n".join(f"  {change.label}" for change in item.changes[-8:])
        question = f"An editor that ended unexpectedly left changes that were not saved:\n{told}\nTake them up?"
        self.app.push_screen(AskScreen(question, "Take them up"), lambda yes: self._recover(item) if yes else None)

    def _recover(self, item: recovery.Kept) -> None:
        try:
            same = recovery.recover(self.session, item)
        except ConfigError as error:
            self.notify(str(error), title="not taken up", severity="error", markup=False)
            return
        if not same:
            self.notify("the file is another one by now: look at what differs", severity="warning")
        self._renew()
