"""The page of runs: all runs of a folder live in a table, the one under the cursor below it, and what is done to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.coordinate import Coordinate
from textual.markup import escape
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from rlctl.common.messages.reasons import translated
from rlctl.runs import asked_of, remove
from rlctl.tui.dialogs.ask import AskScreen
from rlctl.tui.language import LANGUAGE, padded, say
from rlctl.tui.navigation import navigation
from rlctl.tui.run_rows import COLUMNS, COURSE, Row, RunRows, age, matching
from rlctl.tui.screens.run_actions import RunActions
from rlctl.tui.widgets.braille import blocks
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.head import Head
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.run_texts import ASKED, SIGNS, STATUSES, bar, duration, names_of
from rlctl.tui.widgets.sample_texts import plain
from rlctl.tui.widgets.spark import Spark
from rlctl.tui.widgets.table import Table

EVERY_SECONDS = 2.0
TALL = 30
"""Fewest lines of a terminal that shows the run under the cursor below the table."""
PROGRESS = 6
"""Cells of the bar of a run's steps."""
WIDE = 100
"""Cells of a terminal that has room for that bar, and for the whole course of a run."""
SHORT_COURSE = 9
"""Parts of a run's course where there is less."""
LOOKS = {
    "running": "primary",
    "finished": "success",
    "stopped": "text-muted",
    "failed": "error",
    "interrupted": "warning",
}
"""The color of each status; its sign and its name say the same."""


class RunsScreen(RunActions):
    """All runs of a folder."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    DEFAULT_CSS = """
    RunsScreen #run-below { width: 100%; height: 1fr; min-height: 12; display: none; }
    RunsScreen.-below #run-below { display: block; }
    RunsScreen #run-below Spark { width: 2fr; height: 1fr; }
    RunsScreen #run-facts { width: 1fr; height: 1fr; }
    RunsScreen.-narrow #run-facts { display: none; }
    RunsScreen #runs-filter { margin: 0 1; }
    RunsScreen #runs-told { height: auto; padding: 0 1; color: $text-muted; }
    RunsScreen DataTable { width: 100%; height: 1fr; }
    RunsScreen.-below DataTable { height: auto; min-height: 8; max-height: 60%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", say("Mark"), id="runs.mark", tooltip=say("Mark two runs to compare them")),
        Binding("c", "compare", say("Compare"), id="runs.compare",
                tooltip=say("How the configs of two runs differ, and their metrics in one plot")),
        Binding("X", "remove", say("Remove"), id="runs.remove", tooltip=say("Delete the folder of a run that does not run")),
        Binding("s", "sort", say("Sort"), id="runs.sort", tooltip=say("Sort by the next column")),
        Binding("o", "turn", say("Reverse"), id="runs.turn", show=False),
        Binding("slash", "filter", say("Filter"), id="runs.filter", key_display="/"),
        Binding("r", "refresh", say("Refresh"), id="runs.refresh", show=False),
        Binding("escape", "leave", say("Back"), id="runs.leave"),
    ]  # fmt: skip

    class Found(Message):
        """The runs that are there."""

        def __init__(self, rows: list[Row]) -> None:
            self.rows = rows
            super().__init__()

    def __init__(self, folder: Path, others: Iterable[Path] = (), *, readonly: bool = False) -> None:
        """``others``: further folders whose runs are listed."""
        super().__init__(readonly=readonly)
        self.sorted_by, self.falling = [column.title for column in COLUMNS].index("age"), True
        self.marked: list[Path] = []
        self._rows = RunRows(folder, others)
        self.folder = Path.cwd() if self._rows.others else folder
        """What the title names."""
        self._found: list[Row] | None = None
        self._names: dict[Path, str] = {}
        """What each run is called."""
        self._shown: list[Row] = []
        self._places: list[int] = []
        """Of the columns that are there."""
        self._ordered: tuple[int, bool] | None = None
        """The order that the heads of the columns tell."""
        self._looking = False

    def compose(self) -> ComposeResult:
        yield Head()
        yield Line(placeholder=say("/ filters: words of a name or a status"), id="runs-filter", compact=True)
        yield Table(id="runs-table", classes="panel", cursor_type="row", cursor_foreground_priority="renderable")
        with Horizontal(id="run-below"):
            yield Spark("", id="run-course")
            yield Static("", id="run-facts", classes="panel", markup=False)
        yield Static(say("looking for runs ..."), id="runs-told", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.title = say("Runs in {folder}").format(folder=self.folder)
        self._table.border_title = say("Runs")
        self.set_focus(self._table)
        self.action_refresh()
        self.set_interval(EVERY_SECONDS, self.action_refresh)

    @property
    def _table(self) -> DataTable[Text]:
        return self.query_one("#runs-table", DataTable)

    @property
    def _under(self) -> Row | None:
        """The run under the cursor."""
        at = self._table.cursor_row
        return self._shown[at] if 0 <= at < len(self._shown) else None

    def action_refresh(self) -> None:
        if not self._looking:
            self._looking = True
            self._look()

    @work(thread=True)
    def _look(self) -> None:
        rows: list[Row] = []
        try:
            rows = self._rows.read()
        finally:
            self.post_message(self.Found(rows))

    @on(Found)
    def _take(self, message: Found) -> None:
        self._looking = False
        self._tell_ended(self._found or [], message.rows)
        self._found = message.rows
        self._names = names_of(row.info for row in message.rows)
        self._show()

    def _tell_ended(self, before: list[Row], now: list[Row]) -> None:
        """Ring where a run that ran has ended."""
        ran = {row.info.folder for row in before if row.info.status == "running"}
        for row in now:
            if row.info.folder in ran and row.info.status != "running":
                navigation(self.app).tell_ended(row.info.name, row.info.status)

    def _show(self) -> None:
        if self._found is None:
            return
        under = self._under
        column = COLUMNS[self.sorted_by]
        found = matching(self._found, self.query_one("#runs-filter", Input).value)
        self._shown = sorted(found, key=column.by, reverse=self.falling)
        self.marked = [folder for folder in self.marked if any(row.info.folder == folder for row in self._found)]
        self._fill(under)
        self._show_below()
        told = say("no runs in {folder}; rlctl launch starts one")
        if self._found:
            told = say("1 run") if len(self._found) == 1 else say("{all} runs")
            if len(found) != len(self._found):
                told = say("{shown} of 1 run") if len(self._found) == 1 else say("{shown} of {all} runs")
        self.query_one("#runs-told", Static).display = not self._found
        self.query_one("#runs-told", Static).update(told.format(shown=0, all=0, folder=self.folder))
        running = sum(row.info.status == "running" for row in self._found)
        state = [say("● {count} running").format(count=running)] if running else []
        self.sub_title = "   ".join([*state, told.format(shown=len(found), all=len(self._found), folder=self.folder)])

    @on(DataTable.RowHighlighted)
    def _show_below(self) -> None:
        """Show the run under the cursor: the course of what it learns, and where it is."""
        row = self._under
        self.info = row.info if row is not None else None
        self.refresh_bindings()
        self.set_class(row is not None and self._is_tall, "-below")
        if row is None:
            self.asked = frozenset()
            return
        self.asked = asked_of(row.info.folder) if row.info.status == "running" else frozenset()
        chart = self.query_one("#run-course", Spark)
        chart.display = len(row.series) > 1
        chart.metric = row.metric
        chart.show(row.series)
        facts = self.query_one("#run-facts", Static)
        facts.border_title = escape(row.info.name)
        facts.update(run_facts(row, self.asked))

    @property
    def _is_tall(self) -> bool:
        """Whether there is room below the table."""
        return self.app.size.height >= TALL

    def _fill(self, under: Row | None) -> None:
        """Show the rows; where they are the same ones, only their cells change, and what is in sight stays there."""
        table, folders = self._table, [str(row.info.folder) for row in self._shown]
        cells = [self._cells(row) for row in self._shown]
        places, order = self._fitting(cells), (self.sorted_by, self.falling)
        if (places, order) != (self._places, self._ordered):
            self._places, self._ordered = places, order
            table.clear(columns=True)
            table.add_column(" ", key="mark")
            for place in places:
                sign = "" if place != self.sorted_by else " ▼" if self.falling else " ▲"
                table.add_column(f"{say(COLUMNS[place].title)}{sign}", key=str(place))
        lines = [[line[0], *(line[1 + place] for place in places)] for line in cells]
        if folders != [key.value for key in table.rows]:
            table.clear()
            for line, folder in zip(lines, folders, strict=True):
                table.add_row(*line, key=folder)
            if under is not None and str(under.info.folder) in folders:
                table.move_cursor(row=folders.index(str(under.info.folder)))
            return
        for place, line in enumerate(lines):
            for column, cell in enumerate(line):
                table.update_cell_at(Coordinate(place, column), cell, update_width=True)

    def _fitting(self, cells: Sequence[Sequence[Text]]) -> list[int]:
        """The places of the columns that have room, and a value if they are optional."""
        return [
            place
            for place, column in enumerate(COLUMNS)
            if self.app.size.width >= column.at_least
            and (not column.optional or any(str(line[1 + place]) for line in cells))
        ]

    def _cells(self, row: Row) -> tuple[Text, ...]:
        info = row.info
        colors = self.app.get_css_variables()
        muted, accent = colors["text-muted"], colors["primary"]
        look = f"bold {colors[LOOKS[info.status]]}"
        step = f"{info.step}/{info.total_steps}" if info.total_steps else str(info.step)
        is_wide = self.app.size.width >= WIDE
        has_bar = bool(info.total_steps) and is_wide
        progress = f" {bar(min(1.0, info.step / (info.total_steps or 1)), PROGRESS)}" if has_bar else ""
        left = "" if row.seconds_left is None else duration(row.seconds_left)
        return (
            Text("✓" if info.folder in self.marked else " ", style=accent),
            Text(plain(self._names.get(info.folder, info.name)), style="bold" if info.status == "running" else ""),
            Text.assemble((f"{SIGNS[info.status]} ", look), plain(say(STATUSES[info.status]))),
            Text.assemble(f"{step:>9}", (progress, accent if info.status == "running" else muted)),
            Text(plain(row.learned)),
            Text(left),
            Text(course(row, COURSE if is_wide else SHORT_COURSE), style=accent),
            Text(duration(age(info)), style=muted),
            Text(duration(info.seconds), style=muted),
        )

    @on(DataTable.RowSelected)
    def _open(self) -> None:
        if (row := self._under) is not None:
            navigation(self.app).watch_run(row.info.folder)

    @on(DataTable.HeaderSelected)
    def _sort_by(self, message: DataTable.HeaderSelected) -> None:
        if message.column_index > 0:
            self._sort(self._places[message.column_index - 1])

    @on(Input.Changed, "#runs-filter")
    def _filter(self) -> None:
        self._show()

    @on(Input.Submitted, "#runs-filter")
    def _filtered(self) -> None:
        self.set_focus(self._table)

    def _sort(self, place: int) -> None:
        """Sort by a column; by the one that it is sorted by already, the other way round."""
        self.falling = not self.falling if place == self.sorted_by else COLUMNS[place].falling
        self.sorted_by = place
        self._show()

    def action_sort(self) -> None:
        if self._places:
            self._sort(next((place for place in self._places if place > self.sorted_by), self._places[0]))

    def action_turn(self) -> None:
        self._sort(self.sorted_by)

    def action_filter(self) -> None:
        self.set_focus(self.query_one("#runs-filter"))

    def action_mark(self) -> None:
        if (row := self._under) is not None:
            folder = row.info.folder
            others = [known for known in self.marked if known != folder]
            self.marked = others if folder in self.marked else [*others, folder][-2:]
            self._show()

    def action_compare(self) -> None:
        under = self._under
        both = self.marked if under is None or under.info.folder in self.marked else [*self.marked, under.info.folder]
        if len(both) < 2:
            self.notify(say("mark a run with space, go to another one, and compare"))
            return
        from rlctl.tui.screens.compare import CompareScreen

        self.app.push_screen(CompareScreen(both[0], both[1]))

    def action_remove(self) -> None:
        """Delete the run under the cursor, once that is confirmed."""
        info = self.info
        if info is None or self._only_watched():
            return
        if info.status == "running":
            self.notify(say("{name} is running: stop it first").format(name=info.name), markup=False)
            return
        question = say("Delete {folder} with its checkpoints, logs and samples? This cannot be undone.")

        def answered(said: bool | None) -> None:
            if said:
                self._do(lambda: remove(info), say("{name} is deleted").format(name=info.name))
                self.action_refresh()

        self.app.push_screen(AskScreen(question.format(folder=info.folder), say("Delete")), answered)

    def action_leave(self) -> None:
        words = self.query_one("#runs-filter", Input)
        if words.has_focus or words.value:
            words.value = ""
            self.set_focus(self._table)
        else:
            navigation(self.app).leave_screen(self)


def course(row: Row, width: int) -> str:
    """The metric of a run from its first step to its newest, on a scale that does not move with it."""
    return blocks(row.series.outlined(width), width, row.scale) if len(row.series) else ""


def run_facts(row: Row, asked: Collection[str]) -> Content:
    """Where a run is, since when, what it was asked to do, and why it failed."""
    info = row.info
    step = f"{info.step}/{info.total_steps}" if info.total_steps else str(info.step)
    facts = [
        (say("status"), f"{SIGNS[info.status]} {say(STATUSES[info.status])}"),
        (say("step"), step),
        (say("newest"), row.learned),
        (say("time left"), "" if row.seconds_left is None else duration(row.seconds_left)),
        (say("started"), f"{info.started.astimezone():%Y-%m-%d %H:%M}"),
        (say("took"), duration(info.seconds)),
        (say("machine"), f"{info.host}, {say('process {pid}').format(pid=info.pid)}" if info.status == "running" else info.host),
        (say("folder"), str(info.folder)),
    ]  # fmt: skip
    lines = [Content.assemble((padded(name, 11), "$text-muted"), plain(told)) for name, told in facts if told]
    lines += [Content.styled(say(told), "$warning") for name, told in ASKED.items() if name in asked]
    if info.cause:
        lines.append(Content.styled(plain(translated(info.cause, LANGUAGE)), "$error"))
    return Content("\n").join(lines)
