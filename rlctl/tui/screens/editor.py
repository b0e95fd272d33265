"""The editor: sections, the form of one of them, and beside it help, findings, the plan, the run in any dialect, the difference.

What is done with files, the person's own editor and runs is in ``editor_files``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.markup import escape
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Button, Input, OptionList, Static, TabbedContent, TabPane, TextArea

from rlctl.common.errors import ConfigError, RlctlError
from rlctl.common.language import later
from rlctl.common.report import Finding, Fix, Level
from rlctl.common.report_lines import causes
from rlctl.documents import KeyPath, dotted
from rlctl.editing import recovery
from rlctl.editing.fields import FieldView, Form, search
from rlctl.editing.naming import all_names, inner_names
from rlctl.editing.session import Change, Session, SideEffect
from rlctl.editing.stage_fields import StageForm
from rlctl.editing.values import NULL, value_of
from rlctl.planning.batch_table import rows_by_stage
from rlctl.tui.dialogs.ask import ChooseScreen
from rlctl.tui.dialogs.machines import MachinesScreen
from rlctl.tui.language import plural, say, shortened
from rlctl.tui.navigation import navigation
from rlctl.tui.panes.editor import EditorPane
from rlctl.tui.panes.findings import FindingsPane, counted, path_of
from rlctl.tui.panes.help import HelpPane, hint
from rlctl.tui.panes.plan import PlanPane
from rlctl.tui.panes.preview import DiffPane, PreviewPane
from rlctl.tui.screens.editor_port import EditorPort
from rlctl.tui.widgets.batch_flow import Box, boxes, in_boxes, in_lines
from rlctl.tui.widgets.field_row import SET, Columns, FieldRow
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.head import Head
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.pages import numbered
from rlctl.tui.widgets.section_tree import ERROR, SUMMARY, WARNING, SectionTree
from rlctl.tui.widgets.summary import State, Summary

SOON_SECONDS = 0.05
"""How long after a key what follows from it is shown."""
BESIDE_TITLE = 4
"""Cells of the head that are its padding, and what stands between title and counts."""
GLANCE = (160, 48)
"""Columns and lines of the smallest terminal that shows the plan under the help."""
TOLD = 160
"""Most cells of a change that a message names."""
RESULTS = 40
"""Most fields that a search shows."""
TABS = (
    ("help", say("Help"), HelpPane, say("What the field is")),
    ("findings", say("Findings"), FindingsPane, say("Findings of the checks, and how to fix them")),
    ("plan", say("Plan"), PlanPane, say("The batch, and the roles of each device")),
    ("preview", say("Port"), PreviewPane, say("The run in any format, and what happens to every key")),
    ("diff", say("Diff"), DiffPane, say("What differs from the file, and from defaults")),
)
"""What stands beside the form: its name, title, pane and meaning. A key from 1 on leads to each; with alt also out of a field."""


BATCH = (("batch",), ("data",), ("placement",), ("schedule",), ("rollout",), ("train",))
"""Sections whose numbers are in the flow of the batch."""
BESIDE_FLOW = 6
"""Lines of a form that are neither fields nor the flow: the names of the columns, the rule above the flow, and what is folded."""
FLOWS = 3
"""Most stages whose flow is shown."""
Flow = tuple[str, list[Box]]
"""A stage, and its batch as boxes."""


def _flow(session: Session) -> list[Flow]:
    """The batch of each stage; nothing while the config cannot be computed."""
    try:
        return [(name, boxes(rows)) for name, rows in rows_by_stage(session.loaded, session.report)]
    except (RlctlError, ZeroDivisionError):
        return []


def _marks(findings: Sequence[Finding]) -> dict[KeyPath, str]:
    """The mark of the worst finding in each section, and in the sections around it."""
    found: dict[KeyPath, str] = {}
    for item in findings:
        path = path_of(item.key) if item.level is not Level.NOTE else ()
        for size in range(1, len(path) + 1):
            if found.get(path[:size]) != ERROR:
                found[path[:size]] = ERROR if item.level is Level.ERROR else WARNING
    return found


class SearchLine(Line):
    """Enter leads to the first field that fits what is typed; what is typed after it waits until the cursor is there."""

    async def action_submit(self) -> None:
        if isinstance(self.screen, EditorScreen):
            self.screen.is_moving = True
        await super().action_submit()


class Sections(SectionTree):
    """Enter leads to the fields; what is typed after it waits until the cursor is there."""

    def action_enter(self) -> None:
        if isinstance(self.screen, EditorScreen) and self.cursor_node is not None:
            self.screen.is_moving = True
        super().action_enter()


class FieldList(VerticalScroll):
    """The fields; it tells when it has another size."""

    class Resized(Message):
        """The columns may have other room now."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class EditorScreen(EditorPort):
    """Edits one config."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (160, "-very-wide")]
    QUIET_SECONDS = 0.15
    """How long nobody types before the config is checked: keys come first."""
    DEFAULT_CSS = """
    EditorScreen #middle { width: 2fr; padding: 0 0 0 1; }
    EditorScreen #side { width: 1fr; min-width: 41; max-width: 100; }
    EditorScreen #beside { height: 1fr; padding: 0; }
    EditorScreen #glance { height: 1fr; padding: 0; display: none; }
    EditorScreen.-glance #glance { display: block; }
    EditorScreen.-very-wide #middle { width: 1fr; }
    EditorScreen #search { margin: 0; }  /* Textual takes the margin of one from the width of all */
    EditorScreen #columns { height: 1; padding: 0; color: $text-muted; text-wrap: nowrap; }
    EditorScreen #form { height: 1fr; }
    EditorScreen #summary { display: none; }
    EditorScreen.-summary #summary { display: block; }
    EditorScreen.-summary #columns, EditorScreen.-summary #form { display: none; }
    EditorScreen #flow { height: auto; max-height: 16; border-top: solid $border-blurred; padding-right: 1; display: none; }
    EditorScreen.-flow #flow { display: block; }
    EditorScreen.-editing #middle {
        border-subtitle-color: $background; border-subtitle-background: $primary; border-subtitle-style: bold;
    }
    EditorScreen #hint {
        height: 2; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; display: none;
    }
    EditorScreen.-hint #hint { display: block; }
    EditorScreen #news { height: auto; padding: 0 1; color: $warning; text-style: bold; display: none; }
    EditorScreen .folded { width: 100%; }
    EditorScreen TabPane { padding: 0; }
    EditorScreen.-narrow #side, EditorScreen.-narrow #beside { display: none; }
    EditorScreen.-narrow.-beside #side { display: block; width: 1fr; max-width: 100%; }
    EditorScreen.-narrow.-beside #beside { display: block; }
    EditorScreen.-narrow.-beside #middle, EditorScreen.-narrow.-beside SectionTree { display: none; }
    EditorScreen.-alone #side, EditorScreen.-alone #beside { display: none; }
    EditorScreen.-whole #side { width: 1fr; max-width: 100%; }
    EditorScreen.-whole #middle, EditorScreen.-whole SectionTree { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash", "search", say("Search"), id="edit.search",
            tooltip=say("Find a field by key, help or a framework's name for it"),
        ),
        Binding("ctrl+f", "search", say("Search"), id="edit.search_too", priority=True),
        Binding("u", "undo", say("Undo"), id="edit.undo", tooltip=say("Undo the last change")),
        Binding("ctrl+z", "undo", say("Undo"), id="edit.undo_too", priority=True),
        Binding("U", "redo", say("Redo"), id="edit.redo", show=False, tooltip=say("Redo the last undone change")),
        Binding("ctrl+y", "redo", say("Redo"), id="edit.redo_too", priority=True, show=False),
        Binding("d", "reset", say("Default"), id="edit.reset", tooltip=say("Give the field its default")),
        Binding("f3", "reset", say("Default"), id="edit.reset_too", show=False),
        Binding(
            "i", "open_field", say("Items"), id="edit.items",
            tooltip=say("The items of a list or mapping; the whole text of any other field"),
        ),
        Binding("f6", "open_field", say("Items"), id="edit.items_too"),
        Binding(
            "a", "toggle_full", say("All"), id="edit.full", tooltip=say("Show every field, or only the important ones")
        ),
        Binding("f2", "toggle_full", say("All"), id="edit.full_too", show=False),
        Binding("p", "dialect", say("Port"), id="edit.dialect", tooltip=say("Preview the run in the next format")),
        Binding("f4", "dialect", say("Port"), id="edit.dialect_too", show=False),
        Binding(
            "z", "beside", say("Beside"), id="edit.beside",
            tooltip=say("Show the side pane next to the form, alone, or not at all"),
        ),
        Binding("f5", "beside", say("Beside"), id="edit.beside_too", show=False),
        Binding(
            "m", "machines", say("Pick GPUs"), id="edit.machines",
            tooltip=say("Choose the GPUs that the plan is for, to see whether the config fits"),
        ),
        *(
            Binding(str(number), f"tab('{name}')", title, id=f"edit.tab_{name}", show=False, tooltip=told)
            for number, (name, title, _, told) in enumerate(TABS, start=1)
        ),
        *(
            Binding(
                f"alt+{number}", f"tab('{name}')", title, id=f"edit.alt_tab_{name}", show=False, priority=True,
                tooltip=told,
            )
            for number, (name, title, _, told) in enumerate(TABS, start=1)
        ),
        Binding("escape", "leave", say("Back"), id="edit.leave", tooltip=say("Leave the search, the field, the file")),
    ]  # fmt: skip

    class Checked(Message):
        """What was found out about one state of the config: findings, and what the panes in sight show."""

        def __init__(
            self, number: int, findings: list[Finding], shown: list[tuple[EditorPane, Any]], flow: list[Flow]
        ) -> None:
            self.number, self.findings, self.shown, self.flow = number, findings, shown, flow
            super().__init__()

    def __init__(self, session: Session, *, readonly: bool = False, at: KeyPath = ()) -> None:
        """``at``: the field that is shown first; empty for the first section."""
        super().__init__(session, readonly=readonly)
        self._first = at
        self.form, self.stage_form = Form(session), StageForm(session)
        self.views: list[FieldView] = []
        self.section: KeyPath = SUMMARY
        self.full = True
        self.unfolded = False
        self._looked: FieldView | None = None
        self._flow: list[Flow] = []
        self._drafts: dict[KeyPath, tuple[str, str]] = {}
        """What was typed and does not fit, with why, of fields that are out of sight."""
        self._one_form = asyncio.Lock()
        self._quiet: Timer | None = None
        self._picking: Timer | None = None
        self._form_of: KeyPath = ()
        """The section whose fields are shown; empty for those that were found."""
        self._soon: Timer | None = None
        self._state = 0
        self._is_checked = False
        """Whether the checks have said something yet: before, nothing is told of errors."""
        self._shown_columns: Columns | None = None
        self._columns_width = 0
        """Cells of the form for which its columns were laid out."""
        self.is_moving = False
        """Whether the cursor is on its way elsewhere: the app lets keys wait for it."""

    def compose(self) -> ComposeResult:
        yield Head()
        yield Static("", id="news", markup=False)
        with Horizontal(id="body"):
            yield Sections()
            with Vertical(id="middle", classes="panel"):
                told = say("search: key, help, or a framework's name")
                yield SearchLine(placeholder=told, id="search", compact=True)
                yield Summary()
                yield Static("", id="columns")
                yield FieldList(id="form", can_focus=False)
                yield Static("", id="flow", markup=False)
                yield Static("", id="hint", markup=False)
            with Vertical(id="side"):
                with TabbedContent(id="beside", classes="panel"):
                    for number, (name, title, pane, _) in enumerate(TABS, start=1):
                        with TabPane(numbered(number, title), id=name):
                            yield self._pane(pane)
                yield PlanPane(id="glance", classes="panel")
        yield Footer()

    def _pane(self, kind: Callable[[], EditorPane]) -> EditorPane:
        pane = kind()
        if isinstance(pane, PreviewPane):
            pane.start_from(self.session.dialect.partition("@")[0])
        return pane

    async def on_mount(self) -> None:
        self.query_one("#search").display = False
        glance = self.query_one("#glance", PlanPane)
        glance.border_title = say("Plan")
        glance.query_one(VerticalScroll).can_focus = False  # the tab of the plan is where keys scroll it
        self.views = [*self.form.views(), *self.stage_form.views()]
        self.query_one(SectionTree).show(self.views)
        await self._show_form()
        self.renew()
        self.query_one(SectionTree).focus()
        self.query_one(SectionTree).pick(self.section)
        self.watch_files()
        self._learn()
        if self._first:
            await self.jump(self._first)

    @work(thread=True, group="learn")
    def _learn(self) -> None:
        """What a search wants to know, before it is asked for it."""
        for pattern in {view.pattern for view in self.views}:
            all_names(pattern)
            inner_names(pattern)

    # What is shown

    def _wanted(self) -> tuple[list[FieldView], int]:
        """The fields of the section with the options of its choices, or of the search; and how many more are folded away."""
        typed = self.query_one("#search", Input)
        if typed.display and typed.value.strip():
            return search(self.views, typed.value, all_names, inner_names)[:RESULTS], 0
        here = [view for view in self.views if self._belongs(view) and (self.full or view.is_essential or view.changed)]
        used = [view for view in here if view.applies or view.edited or view.path == self.section]
        if self.unfolded or not used:
            return here, 0
        return used, len(here) - len(used)

    def _belongs(self, view: FieldView) -> bool:
        if self.section in (view.path, view.section):
            return True
        if len(self.section) == 2 and self.section[0] == "stages":  # of a stage as a whole, what it says otherwise
            return view.path[:2] == self.section and view.changed
        above = self._by_path.get(view.section)
        return above is not None and above.kind == "choice" and above.section == self.section

    @property
    def rows(self) -> list[FieldRow]:
        """The fields of the form."""
        return [row for row in self.query_one("#form").children if isinstance(row, FieldRow)]

    @property
    def _by_path(self) -> dict[KeyPath, FieldView]:
        return {view.path: view for view in self.views}

    async def _show_form(self) -> None:
        """The fields that are wanted, in place of those that were."""
        searching = self.query_one("#search").display
        self.set_class(self.section == SUMMARY and not searching, "-summary")
        self._show_summary()
        async with self._one_form:
            wanted, folded = self._wanted()
            self._form_of = below = () if searching else self.section
            columns = self._columns(wanted, below)
            rows: list[FieldRow | Static | Button] = [FieldRow(view, columns, below=below) for view in wanted]
            self._show_frame(wanted, columns if wanted else None)
            if not rows and not self.has_class("-summary"):
                rows.append(Static(say("no matching field") if searching else self._inside(), markup=False))
            if folded:
                one = later("1 field that this run does not use: show")
                many = later("{count} fields that this run does not use: show")
                told = plural(folded, one, many)
                rows.append(Button(told, classes="folded", compact=True))
            form = self.query_one("#form", VerticalScroll)
            self._keep_drafts()
            with self.app.batch_update():
                await form.remove_children()
                await form.mount_all(rows)
            for row in self.rows:
                if (draft := self._drafts.get(row.view.path)) is not None:
                    row.take_up(*draft)
            form.scroll_home(animate=False)
        self._show_flow()
        self._look_at_section()

    def _keep_drafts(self) -> None:
        """Keep what does not fit of the fields that go out of sight: it comes back with them."""
        for row in self.rows:
            self._drafts.pop(row.view.path, None)
            if row.is_wrong:
                self._drafts[row.view.path] = row.draft

    def invalid_keys(self) -> list[str]:
        self._keep_drafts()
        return [dotted(path) for path in self._drafts]

    def _is_whole(self) -> bool:
        if not super()._is_whole():
            return False
        self._keep_drafts()
        if not self._drafts:
            return True
        path = next(iter(self._drafts))
        told = say("{key} has an invalid value: change it, or undo it with ctrl+z")
        self.notify(told.format(key=dotted(path)), severity="warning", markup=False)
        self.run_worker(self.jump(path), group="shown")
        return False

    def _columns(self, views: list[FieldView], below: KeyPath) -> Columns:
        dialect = self.session.dialect.partition("@")[0]
        self._columns_width = width = self.query_one("#form").size.width or 60
        return Columns.of(views, below, width, "" if dialect == "rlctl" else dialect, self.session.kind)

    def _show_frame(self, views: list[FieldView], columns: Columns | None) -> None:
        """What is around the fields: the section's name, how many of them are set, and the names of the columns."""
        panel = self.query_one("#middle")
        is_found = self.query_one("#search").display
        if self.has_class("-summary"):
            panel.border_title, panel.border_subtitle = say("summary"), ""
            return
        panel.border_title = say("Search") if is_found else escape(dotted(self.section))
        changed = sum(view.changed for view in views)
        told = say("1 field, {changed} set") if len(views) == 1 else say("{count} fields, {changed} set")
        panel.border_subtitle = told.format(count=len(views), changed=changed)
        is_typed = self.has_class("-editing")
        if is_typed:
            panel.border_subtitle = say("EDIT: type the value, Enter or Esc ends it")
        self._shown_columns = columns
        head = columns.head(is_typed=is_typed) if columns is not None else ""
        self.query_one("#columns", Static).update(head, layout=False)

    def _inside(self) -> str:
        """What stands for the fields of a section that holds only sections."""
        size = len(self.section)
        names = dict.fromkeys(
            str(view.path[size]) for view in self.views if view.path[:size] == self.section and len(view.path) > size
        )
        told = say("F2 shows every field") if not self.full else say("sections in it: {names}")
        return told.format(names=", ".join(names))

    def renew(self, *, discard_typed: bool = False) -> None:
        """Show the config as it is now, and let it be checked; ``discard_typed``: also in the field that is being edited."""
        self.views = [*self.form.views(), *self.stage_form.views()]
        by_path = self._by_path
        for row in self.rows:
            if row.view.path in by_path:
                row.show(by_path[row.view.path], discard_typed=discard_typed)
        self.query_one(SectionTree).show(self.views)
        self._show_summary()
        self._show_title()
        self.look_again()

    def _show_title(self) -> None:
        """The file's name, whose middle goes where the counts would be cut off."""
        name = say("new config") if self.session.file is None else self.session.file.path.name
        mark = " ●" if recovery.is_at_stake(self.session) else ""
        mark += f" ({say('read only')})" if self.readonly else ""
        pane = self.query_one(FindingsPane)
        told = "   ".join([self.session.dialect, *(counted(pane.findings) if self._is_checked else ())])
        room = self.app.size.width - BESIDE_TITLE - cell_len(mark) - cell_len(told)
        self.title, self.sub_title = shortened(name, room) + mark, told

    def on_resize(self) -> None:
        self._show_title()
        self.call_after_refresh(self._show_hint)
        self._show_glance()

    @on(FieldList.Resized)
    def _lay_out(self) -> None:
        """Give the columns the room that there is now, also after another panel has come or gone."""
        self._show_flow()
        rows, width = self.rows, self.query_one("#form").size.width
        if rows and width not in (0, self._columns_width):
            columns = self._columns([row.view for row in rows], rows[0].below)
            for row in rows:
                row.lay_out(columns)
            self._show_frame([row.view for row in rows], columns)

    def look_again(self) -> None:
        """Check the config, and read the pane in sight, once nobody types."""
        self._state += 1
        if self._quiet is not None:
            self._quiet.stop()
        self._quiet = self.set_timer(self.QUIET_SECONDS, self._look)

    def _look(self) -> None:
        if (view := self.looked_at()) is not None and not self.query_one(SectionTree).has_focus:
            self._show_help(view)
        beside = self.query_one("#beside", TabbedContent)
        found = self.query(f"#{beside.active} EditorPane").results(EditorPane) if beside.active else iter(())
        glance = self.query_one("#glance", PlanPane)
        self._check(self._state, [*found, *([glance] if glance.display else [])])

    @work(thread=True, exclusive=True, group="check")
    def _check(self, number: int, panes: Sequence[EditorPane]) -> None:
        if not (self.readonly or self._given_up):
            recovery.keep(self.session)
        try:
            findings = self.query_one(FindingsPane).read(self.session)
            shown = [(pane, pane.read(self.session)) for pane in panes if not isinstance(pane, FindingsPane)]
            flow = _flow(self.session)
        except RlctlError as error:
            self.app.call_from_thread(self.notify, error.shown, severity="error", markup=False)
            return
        self.post_message(self.Checked(number, findings, shown, flow))

    @on(Checked)
    def _checked(self, message: Checked) -> None:
        if message.number != self._state:
            return
        pane = self.query_one(FindingsPane)
        pane.take(message.findings)
        if not self._is_checked and pane.errors:
            self.query_one("#beside", TabbedContent).active = "findings"
        self._is_checked = True
        tab = self.query_one("#beside", TabbedContent).get_tab("findings")
        count = f" ✗{pane.errors}" if pane.errors else f" !{pane.warnings}" if pane.warnings else ""
        told = numbered(2, f"{say('Findings')}{count}")
        if tab.label_text != told:  # a label that is set is laid out anew
            tab.label = told
        for shown, found in message.shown:
            shown.take(found)
        self._flow = message.flow
        self.query_one(SectionTree).mark(_marks(pane.findings))
        self._show_flow()
        self._show_summary()
        self._show_title()

    def _show_summary(self) -> None:
        """The first page, as the config is now, where it is in sight."""
        if not self.has_class("-summary"):
            return
        found = causes(self.query_one(FindingsPane).findings) if self._is_checked else None
        self.query_one(Summary).show(State(self.session.config, self.views, self._flow[:FLOWS], found))

    @on(Summary.Picked)
    async def _open_line(self, message: Summary.Picked) -> None:
        message.stop()
        if message.line.tab:
            self.action_tab(message.line.tab)
        else:
            await self.jump(message.line.path)

    @on(Summary.Looked)
    def _look_at_line(self, message: Summary.Looked) -> None:
        message.stop()
        path, known = message.path, self._by_path
        near = next((known[path[:size]] for size in range(len(path), 0, -1) if path[:size] in known), None)
        if near is not None and self.query_one(Summary).has_focus:
            self._show_help(near)

    @on(TabbedContent.TabActivated)
    @on(PreviewPane.Renewed)
    def _another_pane(self) -> None:
        self._show_hint()
        self._show_glance()
        self.look_again()

    def _show_hint(self) -> None:
        """What is most worth knowing of a field is under the form where the help is out of sight."""
        is_beside = self.query_one("#beside").display and self.query_one("#beside", TabbedContent).active == "help"
        self.set_class(not is_beside, "-hint")

    def _show_glance(self) -> None:
        """Where there is room for both, the plan stays in sight under the help or the findings."""
        size, active = self.app.size, self.query_one("#beside", TabbedContent).active
        has_room = size.width >= GLANCE[0] and size.height >= GLANCE[1]
        is_new = not self.has_class("-glance")
        self.set_class(has_room and active in ("help", "findings"), "-glance")
        if is_new and self.has_class("-glance"):
            self.look_again()
        self._show_flow()

    def _show_flow(self) -> None:
        """The batch under the form of what it depends on; one line for each stage."""
        is_here = bool(self._flow) and self.section[:1] in BATCH and not self.query_one("#search").display
        is_here = is_here and not self.has_class("-glance")  # which shows it as boxes
        self.set_class(is_here and self.app.size.height >= 20, "-flow")
        flow = self.query_one("#flow", Static)
        width = max(20, self.query_one("#middle").content_size.width - 2)
        several = len(self._flow) > 1
        boxed = Content("") if several or not self._flow else in_boxes(self._flow[0][1], width)
        room = self.query_one("#middle").content_size.height - len(self.rows) - BESIDE_FLOW
        lines = [in_lines(stage, width - several * (len(name) + 2)) for name, stage in self._flow[:FLOWS]]
        if several:
            named = zip(self._flow, lines, strict=False)
            lines = [Content.assemble((f"{name}  ", "$text-muted"), line) for (name, _), line in named]
        text = boxed if 0 < str(boxed).count("\n") < room else Content("\n").join(lines)
        if str(flow.content) != str(text):
            flow.update(text)

    @property
    def findings(self) -> list[Finding]:
        return self.query_one(FindingsPane).findings

    @on(FieldRow.Editing)
    def _show_mode(self) -> None:
        """Say in the border, and above the values, that letters go into one of them now."""
        is_typed = self.is_typed_in
        if is_typed == self.has_class("-editing"):
            return
        self.set_class(is_typed, "-editing")
        self._show_frame([row.view for row in self.rows], self._shown_columns)

    @on(FieldRow.Looked)
    def _look_at(self, message: FieldRow.Looked) -> None:
        self._looked = message.view
        self._show_help(message.view)

    def _show_help(self, view: FieldView) -> None:
        self._looked = view
        self.query_one(HelpPane).show(view)
        self.query_one("#hint", Static).update(hint(view), layout=False)

    # What a person does in the form

    @on(DescendantFocus)
    def _look_at_section(self) -> None:
        """While the cursor is on a section, the help is that of the section."""
        if self.query_one(SectionTree).has_focus:
            self.query_one("#hint", Static).update("", layout=False)
            if self.section == SUMMARY:
                self.query_one(HelpPane).show_summary()
            else:
                self.query_one(HelpPane).show_section(self.section, self._wanted()[0])

    @on(SectionTree.Picked)
    def _pick(self, message: SectionTree.Picked) -> None:
        if message.path == self.section:
            return
        self.section, self.unfolded = message.path, False
        if self._picking is not None:
            self._picking.stop()
        self._picking = self.set_timer(0.05, self._show_form)

    @on(Button.Pressed, ".folded")
    async def _unfold(self, message: Button.Pressed) -> None:
        message.stop()
        self.unfolded = True
        await self._show_form()

    @on(FieldRow.Left)
    def _leave_form(self, message: FieldRow.Left) -> None:
        """Go to the panel after the form, or to the one before it."""
        message.stop()
        beside = self.query_one("#beside", TabbedContent)
        if message.way > 0 and beside.display:
            self._go_beside(beside.active)
        else:
            self.query_one(SectionTree).focus()

    @on(SectionTree.Entered)
    async def _enter_form(self, message: SectionTree.Entered) -> None:
        """Go to the first field of a section; its fields may not be shown yet."""
        message.stop()
        if self._picking is not None:
            self._picking.stop()
        if message.path != self.section:
            self.section, self.unfolded = message.path, False
        if self._form_of not in (self.section, ()):
            await self._show_form()
        if self.has_class("-summary"):
            self.query_one(Summary).focus()
        elif rows := self.rows:
            rows[0].focus()
        self.app.call_later(self._arrived)

    @on(FieldRow.Typed)
    async def _typed(self, message: FieldRow.Typed) -> None:
        row = message.row
        if self.readonly:
            row.show(row.view, discard_typed=True)
            self.notify(say("opened read-only"), severity="warning")
            return
        if not row.holds(message.text) or not self._take(row, message.text):
            return
        if not row.is_chosen:  # the key comes to the screen first, what follows from it a moment later
            if self._soon is not None:
                self._soon.stop()
            self._soon = self.set_timer(SOON_SECONDS, self.renew)
            return
        self.renew()
        shown = [row.view.path for row in self.rows]
        if [view.path for view in self._wanted()[0]] != shown:
            await self._show_form_around(row.view.path)

    def _take(self, row: FieldRow, text: str) -> bool:
        """Take what stands in a field into the config; false where it does not fit, which is told there."""
        row.take(text)
        try:
            self._set(row.view, text)
        except ConfigError as error:
            row.tell(error.shown)
            return False
        row.tell("")
        return True

    def take_typed(self) -> None:
        """Take what was typed a moment ago, and is on its way still."""
        for row in () if self.readonly else self.rows:
            if (text := row.untold) is not None:
                self._take(row, text)

    def _set(self, view: FieldView, text: str) -> None:
        if view.kind == "section" and text in (SET, NULL):
            self.session.set(view.path, {} if text == SET else None)
        elif view.kind == "choice" and text != NULL and "${" not in text:
            self.session.choose(view.path, text)
        else:
            self.session.set(view.path, value_of(text, view.info), merge=True)

    async def _show_form_around(self, path: KeyPath) -> None:
        """Show the form anew, as fields came or went, with the cursor where it was."""
        await self._show_form()
        self._focus_line(path)

    def _focus_line(self, path: KeyPath) -> None:
        """Put the cursor on the line of a field; only a key leads into its value."""
        for row in self.rows:
            if row.view.path == path:
                row.focus()
                row.scroll_visible(animate=False)

    @on(EditorPane.Jump)
    async def _jump(self, message: EditorPane.Jump) -> None:
        if not await self.jump(message.path):
            self.notify(say("{key} is no field of this config").format(key=dotted(message.path)), markup=False)

    async def jump(self, path: KeyPath) -> bool:
        """Show the field at a path, or the nearest above it, and put the cursor on its line; whether there is one."""
        self.is_moving = True  # a key that comes meanwhile is for the field that is gone to
        try:
            return await self._jump_to(path)
        finally:
            self.app.call_later(self._arrived)

    async def _jump_to(self, path: KeyPath) -> bool:
        known = self._by_path
        if path not in known and any(view.section == path for view in self.views):
            await self.show_section(path)
            return True
        near = next((path[:size] for size in range(len(path), 0, -1) if path[:size] in known), None)
        if near is None:
            return False
        self.query_one("#search", Input).display = False
        self.remove_class("-beside", "-whole")
        self.section, self.full = known[near].section or near, True
        self.unfolded = not known[near].applies
        self.query_one(SectionTree).pick(self.section)
        await self._show_form_around(near)
        return True

    @on(EditorPane.Ask)
    def _ask(self, message: EditorPane.Ask) -> None:
        self.ask_facts(message.fact)

    @on(EditorPane.Apply)
    async def _make(self, message: EditorPane.Apply) -> None:
        """Make changes that a pane proposes."""
        try:
            self.session.apply(message.changes)
        except ConfigError as error:
            self.notify(error.shown, severity="error", markup=False)
            return
        told = ", ".join(change.label for change in message.changes)
        self.renew(discard_typed=True)
        self.notify(say("set: {label}").format(label=shortened(told, TOLD)), markup=False)

    @on(FindingsPane.Fix)
    def _fix(self, message: FindingsPane.Fix) -> None:
        fixes = message.finding.fixes
        if self.readonly:
            self.notify(say("opened read-only"), severity="warning")
        elif len(fixes) == 1 and not self.session.is_changed:
            self._apply(Change(*fixes[0]))
        else:
            self.run_worker(self._ask_fix(message.finding), group="fix", exclusive=True)

    async def _ask_fix(self, finding: Finding) -> None:
        """Offer the values that fix a finding, with the one that keeps a key of the file as it was."""
        keeping = await asyncio.to_thread(self.session.keeping_fixes, finding)
        fixes = list(dict.fromkeys([*finding.fixes, *keeping]))
        if len(fixes) == 1:
            self._apply(Change(*fixes[0]))
            return
        answers = [(str(number), _fix(fix, keeping.get(fix))) for number, fix in enumerate(fixes, start=1)]
        self.app.push_screen(
            ChooseScreen(finding.message, answers),
            lambda answer: self._apply(Change(*fixes[int(answer) - 1])) if answer else None,
        )

    def _apply(self, change: Change) -> None:
        try:
            self.session.set(change.path, change.value)
        except ConfigError as error:
            self.notify(error.shown, severity="error", markup=False)
            return
        self.run_worker(self._done(change, say("set: {label}")), group="shown")

    async def _done(self, change: Change, told: str) -> None:
        """Show a change that was not typed: its field, where it is in sight."""
        self.renew(discard_typed=True)
        self.notify(told.format(label=shortened(change.label, TOLD)), markup=False)
        if [row.view.path for row in self.rows] != [view.path for view in self._wanted()[0]]:
            await self._show_form()
        self._flash(change.path)

    def _flash(self, path: KeyPath) -> None:
        """Draw the eye to a field that changed without being typed in, where it is in sight."""
        for row in self.rows:
            if row.view.path == path:
                row.flash()

    async def _after(self, changes: tuple[Change, ...], told: str) -> None:
        change = changes[-1]
        shown = [row.view.path for row in self.rows]
        here = next((row for row in self.rows if row.has_focus or row.is_edited), None)
        self.renew(discard_typed=True)
        self.notify(told.format(label=shortened(change.label, TOLD)), markup=False)
        if change.path and change.path not in shown:
            await self.jump(change.path)
        elif shown != [view.path for view in self._wanted()[0]]:
            await (self._show_form_around(change.path) if here is not None else self._show_form())
        elif here is not None and here.view.path != change.path:
            self._focus_line(change.path)
        self._flash(change.path)

    async def action_undo(self) -> None:
        self.app.clear_notifications()  # those of the keys before would cover the form
        wrong = next((row for row in self.rows if row.is_wrong), None)
        if wrong is not None:
            wrong.show(wrong.view, discard_typed=True)
            self.notify(say("undone: the invalid value of {key}").format(key=dotted(wrong.view.path)), markup=False)
        elif changes := self.session.undo():
            await self._after(changes, say("undone: {label}"))
        else:
            self.notify(say("nothing to undo"))

    async def action_redo(self) -> None:
        self.app.clear_notifications()
        if changes := self.session.redo():
            await self._after(changes, say("redone: {label}"))
        else:
            self.notify(say("nothing to redo"))

    async def action_reset(self) -> None:
        """Give the field under the cursor its default; none where the cursor is elsewhere."""
        view = self.under_cursor()
        if not self._may_write():
            return
        if view is None:
            self.notify(say("go to a field first"))
            return
        try:
            self.session.reset(view.path)
        except (ConfigError, LookupError):
            told = say("{key} has no default").format(key=dotted(view.path))
            self.notify(told, severity="warning", markup=False)
            return
        await self._after((Change(view.path, view.default),), say("default: {label}"))

    # What is in sight

    @property
    def shown_dialect(self) -> str:
        """The preview's, where it is in sight or a person chose it there; else the file's own."""
        pane = self.query_one(PreviewPane)
        is_shown = pane.is_chosen or self.query_one("#beside", TabbedContent).active == "preview"
        return pane.dialect if is_shown else self.session.dialect.partition("@")[0]

    async def action_toggle_full(self) -> None:
        self.full = not self.full
        await self._show_form()
        self.notify(say("every field") if self.full else say("only the important fields, and those that you changed"))

    def action_dialect(self) -> None:
        beside = self.query_one("#beside", TabbedContent)
        if beside.active != "preview" or not beside.display:
            self.action_tab("preview")
            if not self.has_class("-narrow"):
                self.add_class("-whole")
        else:
            self.query_one(PreviewPane).action_next()

    def action_machines(self) -> None:
        """Let a person choose the machines that the plan and the checks are for."""
        app = navigation(self.app)

        def chosen(text: str | None) -> None:
            if text is not None:
                app.machines = text
                self.look_again()

        self.app.push_screen(MachinesScreen(self.session.config, app.machines), chosen)

    def action_tab(self, name: str) -> None:
        self.query_one("#beside", TabbedContent).active = name
        self.add_class("-beside").remove_class("-alone")
        self.is_moving = True
        self.call_after_refresh(self._go_beside, name)

    def _go_beside(self, name: str) -> None:
        """Put the cursor into a pane."""
        self.app.call_later(self._arrived)
        for kind in (OptionList, TextArea, VerticalScroll):
            found = next(
                (pane for pane in self.query(f"#{name} {kind.__name__}") if type(pane) is kind and pane.display), None
            )
            if found is None:  # a choice's own list is none of the pane's
                continue
            found.focus()
            if isinstance(found, OptionList) and found.highlighted is None:
                found.action_first()
            return

    def _arrived(self) -> None:
        self.is_moving = False

    def action_beside(self) -> None:
        """What is beside the form: on a wide terminal beside it, alone, away; on a narrow one alone, away."""
        if self.has_class("-narrow"):
            self.toggle_class("-beside")
        elif self.has_class("-whole"):
            self.remove_class("-whole").add_class("-alone")
        elif self.has_class("-alone"):
            self.remove_class("-alone")
        else:
            self.add_class("-whole")
        if self.has_class("-whole") or self.has_class("-narrow", "-beside"):
            self._go_beside(self.query_one("#beside", TabbedContent).active)
        elif self.focused is None or not self.focused.is_on_screen:
            self.query_one(SectionTree).focus()
        self.call_after_refresh(self._show_hint)
        self.look_again()

    def action_search(self) -> None:
        self.remove_class("-beside", "-whole")
        typed = self.query_one("#search", Input)
        typed.display = True
        self.set_focus(typed)

    @on(Input.Changed, "#search")
    async def _search(self) -> None:
        if self._picking is not None:
            self._picking.stop()
        self._picking = self.set_timer(0.05, self._show_form)

    @on(Input.Submitted, "#search")
    async def _enter_results(self) -> None:
        """Go to the first field that fits what is typed now, whatever the list showed."""
        if self._picking is not None:
            self._picking.stop()
        await self._show_form()
        if rows := self.rows:
            rows[0].focus()
        self.app.call_later(self._arrived)

    async def action_leave(self) -> None:
        typed = self.query_one("#search", Input)
        field = next((row for row in self.rows if row.query("*:focus")), None)
        if typed.display:
            typed.display = False
            if field is not None:
                await self.jump(field.view.path)
            else:
                await self._show_form()
                self.query_one(SectionTree).focus()
        elif self.query("#beside *:focus"):
            self.remove_class("-beside", "-whole")
            self.query_one(SectionTree).focus()
        elif field is not None:
            field.focus()
        elif isinstance(self.focused, FieldRow | Summary):
            self.query_one(SectionTree).focus()
        else:
            self.leave_file()

    async def show_section(self, path: KeyPath) -> None:
        self.section, self.full = path, True
        self.query_one(SectionTree).pick(path)
        await self._show_form()
        if rows := self.rows:
            rows[0].focus()

    def under_cursor(self) -> FieldView | None:
        """The field that has the cursor."""
        around = [] if self.focused is None else self.focused.ancestors_with_self
        return next((node.view for node in around if isinstance(node, FieldRow)), None)

    def looked_at(self) -> FieldView | None:
        """The field that a person is in, or was in last."""
        return self._by_path.get(self._looked.path) if self._looked is not None else None

    async def show_again(self) -> None:
        """Show the whole form again, as after another text was taken."""
        at = next((row.view.path for row in self.rows if row.has_focus or row.is_edited), None)
        self.renew(discard_typed=True)
        await self._show_form()
        for row in self.rows:
            if row.view.path == at:
                row.focus()


def _fix(fix: Fix, keeping: SideEffect | None) -> str:
    """A value that fixes a finding, with the key of the file that it keeps."""
    key, value = fix
    told = f"{dotted(key)} = {value!r}"
    if keeping is None:
        return told
    kept = say("keeps {key} = {value}").format(key=keeping.key.rpartition(".")[2], value=keeping.before)
    return f"{told}   {kept}"
