"""The monitor: the frame of its tabs, and the one place that reads the run: once a second, in a thread, only what is new.

A tab is a line of ``PANES`` and a module of ``rlctl.tui.panes``. What is done to a run is in ``run_actions``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static, TabbedContent, TabPane, Tabs
from textual.worker import get_current_worker

from rlctl import runs
from rlctl.common.errors import RlctlError, RunError, shown
from rlctl.monitor.ahead import reading_ahead
from rlctl.monitor.log import EventLog
from rlctl.monitor.processes import alive, processes_of
from rlctl.monitor.watching import Batch, RunView
from rlctl.tui.language import say
from rlctl.tui.navigation import navigation
from rlctl.tui.panes.events import EventsPane
from rlctl.tui.panes.logs import LogsPane
from rlctl.tui.panes.metrics import MetricsPane
from rlctl.tui.panes.overview import OverviewPane
from rlctl.tui.panes.pane import Pane
from rlctl.tui.panes.processes import ProcessesPane
from rlctl.tui.panes.samples import SamplesPane
from rlctl.tui.screens.run_actions import RunActions
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.head import Head
from rlctl.tui.widgets.marks import marked
from rlctl.tui.widgets.pages import Pages, numbered
from rlctl.tui.widgets.run_texts import head_text

if TYPE_CHECKING:
    from rlctl.editing.session import Session

EVERY_SECONDS = 1.0
TURN_SECONDS = 0.1
"""How long the thread that reads waits for the app, at most."""
FIRST_FRAME_SECONDS = 5.0
"""How long the thread that reads waits for the first frame, at most."""
PROGRESS_SECONDS = 0.3
"""How long one word of how far a long log has been read stands, at least."""
LONG = 8 << 20
"""Bytes of a log whose end is shown before the whole is read."""


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab of the monitor."""

    key: str
    id: str
    title: str
    pane: type[Pane]
    tooltip: str


PANES = (
    Tab("1", "overview", say("Overview"), OverviewPane, say("Phase, time, and the main curves")),
    Tab("2", "metrics", say("Metrics"), MetricsPane, say("Any metric, large")),
    Tab("3", "samples", say("Samples"), SamplesPane, say("Prompts, responses and rewards of a step")),
    Tab("4", "processes", say("Processes"), ProcessesPane, say("What each process does and uses")),
    Tab("5", "logs", say("Logs"), LogsPane, say("The output of each process")),
    Tab("6", "events", say("Events"), EventsPane, say("What happened")),
)


@dataclass(frozen=True, slots=True)
class FolderState:
    """What a run folder says beside its log."""

    info: runs.RunInfo | None
    """None where run.json cannot be read."""
    alive: tuple[int, int] | None = None
    """Processes that told not long ago, and all that are known; None where it does not run."""
    problem: str = ""
    """Why something cannot be read."""
    asked: frozenset[str] = frozenset()
    """What it was asked to do after its step (``STOP_FILE``, ``CHECKPOINT_FILE``), and has not done yet."""


def look_at(folder: Path) -> FolderState:
    """Read what stands beside the log."""
    try:
        info = runs.inspect(folder)
    except (RlctlError, OSError) as error:
        gone = say("{folder} no longer exists").format(folder=folder)
        return FolderState(None, problem=shown(error) if folder.is_dir() else gone)
    if info.status != "running":
        return FolderState(info)
    processes = processes_of(folder, time.time())
    return FolderState(info, (alive(processes), len(processes)) if processes else None, asked=runs.asked_of(folder))


class MonitorScreen(RunActions):
    """Watches one run, live or over."""

    HORIZONTAL_BREAKPOINTS = [(0, "-small"), (70, "-narrow"), (100, "-wide"), (160, "-very-wide")]
    DEFAULT_CSS = """
    MonitorScreen #run-head { height: auto; padding: 0 1; }
    MonitorScreen #tabs { height: 1fr; }
    MonitorScreen Head { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(tab.key, f"tab('{tab.id}')", tab.title, id=f"run.{tab.id}", tooltip=tab.tooltip, show=False)
            for tab in PANES
        ),
        Binding("escape", "leave", say("Back"), id="run.leave"),
    ]

    class News(Message):
        """The folder was looked at, or a part of what is there was read."""

        def __init__(self, view: RunView, batch: Batch, folder: FolderState) -> None:
            self.view, self.batch, self.folder = view, batch, folder
            super().__init__()

    class Progress(Message):
        """So much of a long log has been read."""

        def __init__(self, share: float) -> None:
            self.share = share
            super().__init__()

    class Looked(Message):
        """All that was there has been read."""

    def __init__(self, folder: Path, *, readonly: bool = False) -> None:
        super().__init__(readonly=readonly)
        self.folder = folder
        self.view = RunView(folder)
        self._whole = RunView(folder)
        """What is shown once it is read; before that nothing is, or, of a long log, the end. Until it is shown the thread
        that reads fills it; then only the app does."""
        self._looking = False
        self._drawn = threading.Event()
        """The first frame is there."""

    def compose(self) -> ComposeResult:
        yield Head()
        yield Static(say("reading the run ..."), id="run-head", markup=False)
        with Pages(id="tabs", initial=PANES[0].id):
            for tab in PANES:
                with TabPane(numbered(int(tab.key), tab.title), id=tab.id):
                    yield tab.pane()
        yield Footer()

    def on_mount(self) -> None:
        self.title = self.folder.name
        self.query_one(Tabs).can_focus = False  # keys belong to the pane in sight, also after a click on its tab
        self.pane.focus_first()
        self._loop = asyncio.get_running_loop()
        self._poll()
        self.call_after_refresh(self._drawn.set)
        self.set_interval(EVERY_SECONDS, self._poll)

    @property
    def pane(self) -> Pane:
        """The one in sight."""
        return self.query_one(f"#{self.query_one('#tabs', TabbedContent).active}", TabPane).query_one(Pane)

    @property
    def is_reading(self) -> bool:
        """Whether the run has not been read whole yet."""
        return self.view is not self._whole

    def _poll(self) -> None:
        if not self._looking:  # a thread that has not come back yet goes on where it is
            self._looking = True
            self._look()

    @work(thread=True, group="poll")
    def _look(self) -> None:
        """Read what is new; of a long log first its end, so that there is something to see."""
        is_long = self.is_reading and self._whole.log.size > LONG
        with reading_ahead(self.folder) if is_long else nullcontext(()) as ahead:
            self._drawn.wait(FIRST_FRAME_SECONDS)  # a thread that computes would hold it up
            import numpy  # noqa: F401 - curves need it: imported by the app's own thread, it would hold up a frame for 0.1 s

            state, batch = look_at(self.folder), Batch()
            try:
                if is_long:
                    self.post_message(self.News(RunView.newest(self.folder), Batch(), state))
                if self.is_reading:
                    self._read_first(ahead)
                while (batch := self._whole.read()).bytes and not get_current_worker().is_cancelled:
                    self._let_app()
                    self.post_message(self.News(self._whole, batch, state))
            except OSError as error:
                state = replace(state, problem=f"{error.filename}: {error.strerror}")
        self.post_message(self.News(self._whole, batch, state))
        self.post_message(self.Looked())

    def _read_first(self, ahead: Iterable[tuple[EventLog, Batch]]) -> None:
        """Read the log so far, before the app shows it: what another process has read ahead, then the rest."""
        told = time.monotonic()
        for log, batch in chain(ahead, self._read_rest()):
            self._whole.log = log
            self._whole.take(batch)
            if get_current_worker().is_cancelled:
                return
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                self.post_message(self.Progress(log.position / max(1, log.size)))

    def _read_rest(self) -> Iterator[tuple[EventLog, Batch]]:
        batch = Batch(bytes=1)
        while batch.bytes:
            batch = self._whole.read()
            self._let_app()
            yield self._whole.log, batch

    def _let_app(self) -> None:
        """Wait until the app has drawn what it is drawing, which takes twice as long while a thread computes."""
        turn = threading.Event()
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(turn.set)
            turn.wait(TURN_SECONDS)

    @on(Progress)
    def _show_progress(self, message: Progress) -> None:
        self.query_one("#run-head", Static).update(
            say("{name}   reading the run ... {share:.0%}").format(name=self.folder.name, share=message.share)
        )

    @on(News)
    def _news(self, message: News) -> None:
        message.view.take(message.batch)
        folder = message.folder
        ran, info = self.info is not None and self.info.status == "running", folder.info
        if ran and info is not None and info.status != "running":
            navigation(self.app).tell_ended(info.name, info.status)
        is_new = (self.info.status if self.info else "") != (info.status if info else "")
        self.view, self.info, self.asked = message.view, folder.info, folder.asked
        if is_new:
            self.refresh_bindings()
        shown = self.query_one("#run-head", Static)
        head = head_text(
            self.view,
            self.info,
            time.time(),
            alive=folder.alive,
            problem=folder.problem,
            asked=folder.asked,
            name=self.folder.name,
            width=shown.content_size.width,
        )
        if self.info is not None and self.info.status == "running":
            self.begins = None
        if self.begins is not None:
            head += "\n" + say("resuming: its process is starting; its output is in {log}").format(log=self.begins)
        shown.update(marked(head).stylize("bold", 0, len(self.folder.name)))
        self.pane.show(self.view, self.info)

    @on(Looked)
    def _looked(self) -> None:
        self._looking = False

    @on(TabbedContent.TabActivated, "#tabs")
    def _come_into_sight(self) -> None:
        pane = self.pane
        pane.show(self.view, self.info)
        if self.focused is None or pane not in self.focused.ancestors:
            pane.focus_first()

    def action_tab(self, name: str) -> None:
        self.query_one("#tabs", TabbedContent).active = name
        self._come_into_sight()  # at once: the next key belongs to it

    @on(ProcessesPane.LogWanted)
    def _show_log(self, message: ProcessesPane.LogWanted) -> None:
        self.query_one(LogsPane).open(message.name)
        self.action_tab("logs")

    @on(OverviewPane.Apply)
    def _open_next(self, message: OverviewPane.Apply) -> None:
        """Edit the config of a next run with what an advice changes; it is launched from there."""
        folder, app = self.folder, navigation(self.app)

        def opening(given: dict[str, str]) -> Session:
            from rlctl.tui.advised import next_run

            try:
                found = next_run(folder, message.stage, message.code)
            except OSError as error:
                raise RunError(f"{error.filename}: {error.strerror}") from error
            if found is None:
                raise RunError(say("the config of the run has this change already"))
            told = say("a next run with {changes}; it starts from scratch. l launches it, u undoes a change")
            if found.step is not None:
                told = say(
                    "a next run with {changes}; it resumes from step {step}. l launches it, u takes a change back"
                )
            text = told.format(changes=", ".join(change.label for change in found.changes), step=found.step)
            self.app.call_from_thread(self.app.notify, text, markup=False)
            return found.session

        app.edit(say("the next run"), opening, changed=True)

    def action_leave(self) -> None:
        navigation(self.app).leave_screen(self)
