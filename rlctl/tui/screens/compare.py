"""Two runs beside each other: what differs in the meaning of their configs, and their metrics over one another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.message import Message
from textual.widgets import DataTable, Static, TabbedContent, TabPane, Tabs

from rlctl.common.errors import RlctlError, shown
from rlctl.monitor.watching import RunView
from rlctl.tui.language import say
from rlctl.tui.language import told_apart as cut_apart
from rlctl.tui.navigation import navigation
from rlctl.tui.screens.page import Page
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.head import Head
from rlctl.tui.widgets.metric_browser import FIRST, MetricBrowser
from rlctl.tui.widgets.metric_plot import MetricPlot, Source
from rlctl.tui.widgets.pages import Pages, numbered
from rlctl.tui.widgets.table import Table

if TYPE_CHECKING:
    from rlctl.translation.difference import Difference

OF_A_STAGE = re.compile(r"stages\[\d+\]\.")
"""What the key of a stage's setting begins with; its meaning is that of the same key outside of stages."""


@dataclass(frozen=True)
class Compared:
    """What was found of two runs."""

    differences: list[Difference]
    problem: str
    """Why their configs cannot be compared."""
    sources: list[Source]


def compare(first: Path, second: Path) -> Compared:
    """Read two runs. Takes as long as reading their logs does."""
    from rlctl.config import Loaded
    from rlctl.config.stages import stages_of
    from rlctl.runs import read_config
    from rlctl.translation.difference import differences

    found: list[Difference] = []
    problem = ""
    try:
        configs = [read_config(first), read_config(second)]
        found = differences(*map(Loaded, configs))
        ours, theirs = map(stages_of, configs)
        if len(ours) != len(theirs):  # a run from scratch beside one of its last stage alone
            found += differences(Loaded(ours[-1].config), Loaded(theirs[-1].config))
    except (RlctlError, OSError) as error:
        problem = shown(error)
    sources = []
    for folder, name in zip((first, second), told_apart(first, second), strict=True):
        try:
            stage = RunView(folder).read_whole().stage
        except OSError as error:
            problem = "\n".join(part for part in (problem, shown(error)) if part)
        else:
            sources += [Source(name, stage)] if stage is not None else []
    return Compared(found, problem, sources)


def told_apart(first: Path, second: Path) -> tuple[str, str]:
    """Names of two runs: of their folders, with as many folders around them as tell them apart."""
    names = first.name, second.name
    for count in range(2, max(len(first.parts), len(second.parts)) + 1):
        if names[0] != names[1]:
            break
        names = str(Path(*first.parts[-count:])), str(Path(*second.parts[-count:]))
    return names


LONGEST = 60
"""Most cells of a value in the table; the panel below it has the whole."""


class CompareScreen(Page):
    """A tab of settings that differ, with what both runs learned where there is room for it, and a tab of metrics."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high"), (30, "-tall")]
    DEFAULT_CSS = """
    CompareScreen #compare-tabs, CompareScreen DataTable { height: 1fr; }
    CompareScreen #differences-told { height: auto; padding: 0 1; }
    CompareScreen #key-told { height: auto; max-height: 8; }
    CompareScreen #both { display: none; height: 1fr; min-height: 10; }
    CompareScreen.-tall #both.-told { display: block; }
    CompareScreen.-tall #differences { height: auto; min-height: 6; max-height: 50%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "tab('config')", say("Config"), id="compare.config"),
        Binding("2", "tab('metrics')", say("Metrics"), id="compare.metrics"),
        Binding("escape", "leave", say("Back"), id="compare.leave"),
    ]

    class Read(Message):
        """Both runs were read."""

        def __init__(self, compared: Compared) -> None:
            self.compared = compared
            super().__init__()

    def __init__(self, first: Path, second: Path) -> None:
        super().__init__()
        self.first, self.second = first, second
        self._names = told_apart(first, second)
        self.compared: Compared | None = None

    def compose(self) -> ComposeResult:
        yield Head()
        with Pages(id="compare-tabs", initial="config"):
            with TabPane(numbered(1, say("Config")), id="config"):
                yield Static(say("reading both runs ..."), id="differences-told", markup=False)
                yield Table(id="differences", cursor_type="row", classes="panel")
                yield Static("", id="key-told", classes="panel", markup=False)
                yield MetricPlot(id="both", classes="panel")
            with TabPane(numbered(2, say("Metrics")), id="metrics"):
                yield MetricBrowser()
        yield Footer()

    def action_leave(self) -> None:
        navigation(self.app).leave_screen(self)

    def on_mount(self) -> None:
        self.title = say("{first} and {second}").format(first=self._names[0], second=self._names[1])
        self.query_one(Tabs).can_focus = False
        self.set_focus(self.query_one(DataTable))
        self._read()

    @work(thread=True)
    def _read(self) -> None:
        self.post_message(self.Read(compare(self.first, self.second)))

    @on(Read)
    def _show(self, message: Read) -> None:
        self.compared = compared = message.compared
        count = len(compared.differences)
        told = (
            say("one setting differs in meaning")
            if count == 1
            else say("{count} settings differ in meaning").format(count=count)
        )
        if count and compared.differences[0].key == "stages":
            told += say("; the rows below stages compare the last stage of each run")
        same = say("the configs mean the same")
        self.query_one("#differences-told", Static).update(compared.problem or (told if compared.differences else same))
        table = self.query_one(DataTable)
        table.add_columns(say("key"), *map(Text, self._names))
        for item in compared.differences:
            values = cut_apart(_shown(item.first.value), _shown(item.second.value), LONGEST)
            table.add_row(*map(Text, (item.key, *values)))
        if compared.sources:
            self.query_one(MetricBrowser).show(compared.sources)
            known = {name for source in compared.sources for name in source.stage.steps.columns}
            plot = self.query_one("#both", MetricPlot)
            plot.set_class(bool(first := [name for name in FIRST if name in known][:1]), "-told")
            plot.show(compared.sources, first)

    @on(DataTable.RowHighlighted)
    def _explain(self, message: DataTable.RowHighlighted) -> None:
        from rlctl.config.explain import explain
        from rlctl.editing.fields import without_markup

        if self.compared is None or message.cursor_row >= len(self.compared.differences):
            return
        item = self.compared.differences[message.cursor_row]
        try:
            told = without_markup(explain(OF_A_STAGE.sub("", item.key)).help)
        except RlctlError:  # the number of stages or entries is no key
            told = ""
        values = zip(self._names, (item.first.value, item.second.value), strict=True)
        lines = [f"{name}: {_shown(value)}" for name, value in values]
        panel = self.query_one("#key-told", Static)
        panel.border_title = escape(item.key)
        panel.update("\n".join([*([told] if told else []), *lines]))

    @on(TabbedContent.TabActivated, "#compare-tabs")
    def _come_into_sight(self) -> None:
        pane = self.query_one("#compare-tabs", TabbedContent).active_pane
        if self.focused is None or pane not in self.focused.ancestors:
            self._focus_first()

    def _focus_first(self) -> None:
        if self.query_one("#compare-tabs", TabbedContent).active == "metrics":
            self.query_one(MetricBrowser).focus_list()
        else:
            self.set_focus(self.query_one(DataTable))

    def action_tab(self, name: str) -> None:
        self.query_one("#compare-tabs", TabbedContent).active = name
        self._focus_first()


def _shown(value: Any) -> str:
    """A value as a file has it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
