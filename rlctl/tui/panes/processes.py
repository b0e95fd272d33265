"""The tab of processes: the devices as a rack, and what each process does and uses, and when it was last heard of."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import DataTable, Static

from rlctl.common.language import later
from rlctl.monitor.devices import LiveDevice, LiveNode, live_nodes
from rlctl.monitor.processes import Process, alive, processes_of
from rlctl.monitor.watching import RunView
from rlctl.planning.plan import LETTERS
from rlctl.runs import RunInfo
from rlctl.tui.language import say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.rack import Tile, legend, looks
from rlctl.tui.widgets.rack import node as rack_node
from rlctl.tui.widgets.run_texts import duration
from rlctl.tui.widgets.sample_texts import plain
from rlctl.tui.widgets.table import Table

COLUMNS = {
    "name": later("process"),
    "heartbeat": later("last report"),
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
    ProcessesPane #devices { height: auto; max-height: 60%; padding: 0 1; }
    ProcessesPane #process-table { height: 1fr; min-height: 5; }
    .-low ProcessesPane #devices { display: none; }
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
        yield VerticalScroll(Static("", id="rack", markup=False), id="devices", can_focus=False)
        yield Table(id="process-table", classes="panel", cursor_type="row")

    def __init__(self) -> None:
        super().__init__()
        self._seen_last: tuple[Sequence[Process], bool] = ((), False)

    def on_resize(self) -> None:
        self._draw_devices()

    def _draw_devices(self) -> None:
        """The devices of the processes that told of themselves, as wide as there is room."""
        processes, running = self._seen_last
        nodes = live_nodes(processes)
        self.query_one("#devices").display = bool(nodes)
        if nodes and self.size.width:
            width = max(24, self.size.width - 4)
            self.query_one("#rack", Static).update(devices_drawn(nodes, width, running=running))

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        table.border_title = say("Processes")
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
        self._seen_last = message.processes, message.running
        self._draw_devices()
        self.query_one("#process-head", Static).update(_head(message.processes, running=message.running))

    def _marked(self) -> str:
        """Of the process that is marked."""
        table = self.query_one(DataTable)
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or "" if table.row_count else ""

    @on(DataTable.RowSelected)
    def action_log(self) -> None:
        if name := self._marked():
            self.post_message(self.LogWanted(name))


def devices_drawn(nodes: Sequence[LiveNode], width: int, *, running: bool) -> Content:
    """The nodes as racks: of each device who is on it, its use, its memory, and what it does or which process is silent."""
    roles = dict.fromkeys(role for node in nodes for device in node.devices for role in device.roles)
    letters = {LETTERS.get(role, role[:1].upper()): role for role in roles}
    look = looks(list(letters))
    lines: list[Content] = []
    for node in nodes:
        tiles = [_tile(device, running=running) for device in node.devices]
        lines += rack_node(say("node {number}").format(number=plain(node.name)), tiles, width, look, None)
    return Content("\n").join([*lines, legend(letters, look)])


def _tile(device: LiveDevice, *, running: bool) -> Tile:
    is_silent = running and bool(device.silent)
    told = f"✗ {say('silent')}" if is_silent else device.doing or say("waits")
    return Tile(
        name=plain(device.name),
        letters="".join(LETTERS.get(role, role[:1].upper()) for role in device.roles),
        gib=device.gib,
        told=plain(told) if running else "",
        bad=is_silent,
        use=device.use,
        room=device.room,
    )


def _head(processes: Sequence[Process], *, running: bool) -> str:
    if not processes:
        return say("No process has reported yet; each reports every few seconds once it has started.")
    if not running:
        return say("The run is not running: this is what its processes were last seen to use.")
    memory = sum(process.memory for process in processes) / (1 << 30)
    told = say("{alive} of {count} processes reported; {memory} GiB; Enter shows the log of one")
    if len(processes) == 1:
        told = say("{alive} of 1 process reported; {memory} GiB; Enter shows its log")
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
