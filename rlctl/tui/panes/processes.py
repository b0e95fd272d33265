"""The tab of processes: what each does and uses, and when it was last heard of."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import DataTable, Static

from rlctl.common.language import later
from rlctl.monitor.processes import Process, alive, processes_of
from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.run_texts import duration
from rlctl.tui.widgets.sample_texts import plain

COLUMNS = {
    "name": later("process"),
    "heartbeat": later("last heard of"),
    "doing": later("does"),
    "cpu": later("CPU"),
    "memory": later("memory"),
    "gpu": later("GPU"),
    "node": later("node"),
    "pid": later("pid"),
}


class ProcessesPane(Pane):
    """A row a process."""

    DEFAULT_CSS = """
    ProcessesPane #process-head { height: auto; padding: 0 1; color: $text-muted; }
    ProcessesPane #process-table { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "log", say("Its log"), id="processes.log", tooltip=say("The log of the process that is marked")),
    ]

    class Seen(Message):
        """The processes were looked at."""

        def __init__(self, processes: Sequence[Process], running: bool) -> None:
            self.processes, self.running = processes, running
            super().__init__()

    class LogWanted(Message):
        """A person wants to see the log of a process."""

        def __init__(self, name: str) -> None:
            self.name = name
            super().__init__()

    def compose(self) -> ComposeResult:
        yield Static("", id="process-head", markup=False)
        yield DataTable[Text](id="process-table", classes="panel", cursor_type="row")

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for key, title in COLUMNS.items():
            table.add_column(say(title), key=key)

    def show(self, view: RunView, info: RunInfo | None) -> None:
        self._look(view.folder, info is not None and info.status == "running")

    @work(thread=True, exclusive=True, group="processes")
    def _look(self, run: Path, running: bool) -> None:
        self.post_message(self.Seen(processes_of(run, time.time()), running))

    @on(Seen)
    def _seen(self, message: Seen) -> None:
        table = self.query_one(DataTable)
        names = [process.name for process in message.processes]
        if [key.value for key in table.rows] != names:
            before = self._marked()
            table.clear()
            for name in names:
                table.add_row(*[Text("")] * len(COLUMNS), key=name)
            if before in names:
                table.move_cursor(row=names.index(before))
        for process in message.processes:
            for key, cell in _cells(process, running=message.running).items():
                table.update_cell(process.name, key, cell, update_width=True)
        self.query_one("#process-head", Static).update(_head(message.processes, running=message.running))

    def _marked(self) -> str:
        """Of the process that is marked."""
        table = self.query_one(DataTable)
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or "" if table.row_count else ""

    @on(DataTable.RowSelected)
    def action_log(self) -> None:
        if name := self._marked():
            self.post_message(self.LogWanted(name))


def _head(processes: Sequence[Process], *, running: bool) -> str:
    if not processes:
        return say("No process has told of itself yet; each does so every few seconds once it is there.")
    if not running:
        return say("The run is not running: this is what its processes were last seen to use.")
    memory = sum(process.memory for process in processes) / (1 << 30)
    told = say("{alive} of {count} processes heard of; {memory} GiB; Enter shows the log of one")
    return told.format(alive=alive(processes), count=len(processes), memory=f"{memory:.1f}")


def _cells(process: Process, *, running: bool) -> dict[str, Text]:
    """The row of a process, by column."""
    late = running and process.late
    ago = say("{time} ago").format(time=duration(process.age))
    doing = process.doing or say("waits")
    doing = f"{doing} {duration(process.doing_seconds)}" if running else ""
    name = process.name if not process.children else f"{process.name} +{process.children}"
    cells = {
        "name": name,
        "heartbeat": f"! {say('late')}: {ago}" if late else ago,
        "doing": doing,
        "cpu": f"{process.cpu:.0f} %",
        "memory": f"{process.memory / (1 << 30):.2f} GiB",
        "gpu": ", ".join(
            f"{gpu.number}: {gpu.busy:.0f} % {gpu.used / (1 << 30):.0f}/{gpu.total / (1 << 30):.0f} GiB" for gpu in process.gpus
        ),
        "node": process.node,
        "pid": str(process.pid),
    }  # fmt: skip
    right = ("cpu", "memory", "pid")
    look = "bold" if late else ""
    return {
        key: Text(plain(text), style=look, justify="right" if key in right else "left") for key, text in cells.items()
    }
