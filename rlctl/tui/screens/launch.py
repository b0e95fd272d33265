"""Before a run: the plan, what is in the way, where to run it; then what it says until it is there, or why it did not begin."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Button, Input, Label, Static, TextArea

from rlctl import runs
from rlctl.cluster.address import address_of
from rlctl.common.errors import RlctlError
from rlctl.common.report import Finding
from rlctl.config.reveal import at_home
from rlctl.editing.planning import Before, Planned, before, file_to_launch, launch_words, obstacles, planned
from rlctl.editing.session import Session
from rlctl.monitor.logs import readable
from rlctl.runs.launching import Launched, begin, place
from rlctl.tui.dialogs.ask import Tick
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say, shortened
from rlctl.tui.navigation import navigation
from rlctl.tui.panes.plan import drawn
from rlctl.tui.widgets.footer import Footer
from rlctl.tui.widgets.head import Head
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.marks import marked

QUIET_SECONDS = 0.4
"""How long nobody types an address before the plan is made for it."""
CHANGES = 5
"""Most keys that are named with which an earlier run of this name was made otherwise."""
EVERY_SECONDS = 0.5
"""How often a starting run is looked for."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a launch would be."""

    planned: Planned
    findings: list[Finding]
    before: Before


class LaunchScreen(Dialog[None]):
    """Shows the plan for confirmation."""

    DEFAULT_CSS = """
    LaunchScreen { align: center middle; }
    LaunchScreen > Vertical { width: 95%; height: 95%; border: round $primary; background: $background; padding: 0 1; }
    LaunchScreen VerticalScroll { height: 1fr; border-bottom: solid $panel; }
    LaunchScreen Horizontal { height: auto; }
    LaunchScreen Label { padding: 0 1 0 0; }
    LaunchScreen #address { width: 1fr; }
    LaunchScreen Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", say("Not now"), id="launch.cancel"),
        Binding("f9", "launch", say("Launch"), id="launch.go"),
    ]

    class Ready(Message):
        """The plan is made."""

        def __init__(self, outlook: Outlook) -> None:
            self.outlook = outlook
            super().__init__()

    def __init__(self, session: Session, *, save: Callable[[Callable[[], Any]], None]) -> None:
        """``save``: saves the session, and calls what it is given once it is saved."""
        super().__init__()
        self.session, self._save = session, save
        self.outlook: Outlook | None = None
        self._waits: Timer | None = None

    def compose(self) -> ComposeResult:
        address = self.session.config.runtime.ray.address or ""
        with Vertical():
            with VerticalScroll():
                yield Static(say("planning ..."), id="outlook", markup=False)
            with Horizontal():
                yield Label(say("where"))
                yield Line(
                    address, id="address", compact=True, placeholder=say("here; or auto, HOST:PORT, http://HOST:8265")
                )
            yield Tick(say("start a new run under another name (--new)"), id="new", compact=True)
            with Horizontal():
                if self.session.is_changed:
                    yield Button(say("Save and launch"), id="save", variant="primary", compact=True, disabled=True)
                    yield Button(say("Launch without saving (F9)"), id="go", compact=True, disabled=True)
                else:
                    yield Button(say("Launch (F9)"), id="go", variant="primary", compact=True, disabled=True)
                yield Button(say("Not now (esc)"), id="cancel", compact=True)

    def on_mount(self) -> None:
        self._plan(self.query_one("#address", Input).value.strip())

    @on(Input.Changed, "#address")
    def _elsewhere(self, message: Input.Changed) -> None:
        if self._waits is not None:
            self._waits.stop()
        self._waits = self.set_timer(QUIET_SECONDS, lambda: self._plan(message.value.strip()))

    @work(thread=True, exclusive=True)
    def _plan(self, address: str) -> None:
        cluster = runs.local_cluster() if not address else None
        found = obstacles(self.session.findings(cluster), elsewhere=_is_job(address))
        self.post_message(self.Ready(Outlook(planned(self.session, cluster), found, before(self.session.config))))

    @on(Ready)
    def _ready(self, message: Ready) -> None:
        self.outlook = message.outlook
        self.query_one("#new", Tick).value = message.outlook.before.is_in_the_way
        self.query_one("#outlook", Static).update(self._told(message.outlook))
        refused = message.outlook.planned.plan is None or bool(message.outlook.findings)
        for button in self.query(Button):
            button.disabled = refused and button.id != "cancel"
        if not self.query_one("#address").has_focus:
            self.query_one("#cancel").focus()
            self.be_deaf()

    def _told(self, outlook: Outlook) -> Content:
        lines = []
        if outlook.findings:
            lines += [say("It cannot start yet. In the editor, Findings takes you to the fields:"), ""]
            for item in outlook.findings:
                told = item.message if item.message.startswith(item.key) else f"{item.key}: {item.message}"
                lines += [f"✗ {told}", *([f"    {item.hint}"] if item.hint else [])]
            lines.append("")
        there = outlook.before
        if there.is_resumed:
            lines += [
                say("{folder} has a run of this name that did not end: it will be resumed.").format(
                    folder=there.folder
                ),
                "",
            ]
        elif there.is_in_the_way:
            told = say("{folder} has a run of this name ({status}): this one starts under another name.")
            lines += [
                told.format(folder=there.folder, status=there.status),
                *(
                    f"    {shortened(line, max(40, self.size.width * 95 // 100 - 10))}"
                    for line in there.changed[:CHANGES]
                ),
            ]
            if more := len(there.changed) - CHANGES:
                lines += ["    " + say("and {count} more").format(count=more)] if more > 0 else []
            lines.append("")
        picture = drawn(outlook.planned, max(40, self.size.width - 12))
        return Content("\n").join([*map(marked, lines), picture])

    @on(Button.Pressed)
    def _pressed(self, message: Button.Pressed) -> None:
        message.stop()
        if message.button.id == "cancel":
            self.dismiss(None)
        elif message.button.id == "save":
            self._save(self._start)
        else:
            self.action_launch()

    def action_launch(self) -> None:
        """Start it as it is now."""
        if self.outlook is None or self.query_one("#go", Button).disabled:
            self.notify(say("it cannot start yet"), severity="warning")
        else:
            self._start()

    def _start(self) -> None:
        address = self.query_one("#address", Input).value.strip()
        try:
            is_job = bool(address) and address_of(address).jobs is not None  # an address that is none is told now
            file = file_to_launch(self.session)
            new = self.query_one("#new", Tick).value
            words = launch_words(self.session, file, address=address, new=new, detach=is_job)
            launched = begin(words, place(self.session.config.run.name, ".log"))
        except RlctlError as error:
            self.notify(error.shown, title=say("not started"), severity="error", markup=False)
            return
        folder = Path(at_home(self.session.config.run.folder))
        app = navigation(self.app)
        app.launched.append(launched)
        self.app.switch_screen(StartingScreen(launched, None if is_job else folder))


def _is_job(address: str) -> bool:
    """Whether a run goes to a job server; not where the address is no address yet."""
    try:
        return bool(address) and address_of(address).jobs is not None
    except RlctlError:
        return False


class StartingScreen(Screen[None]):
    """What a command says until its run is there; then the monitor. Leaving does not end it."""

    DEFAULT_CSS = """
    StartingScreen Static { height: auto; padding: 0 1; }
    StartingScreen TextArea { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape",
            "leave",
            say("Back"),
            id="starting.leave",
            tooltip=say("Back to the editor; started runs continue"),
        ),
    ]

    def __init__(self, launched: Launched, runs_folder: Path | None) -> None:
        """``runs_folder``: where the run's folder will be; None where it is on another cluster."""
        super().__init__()
        self.launched, self.runs_folder = launched, runs_folder

    def compose(self) -> ComposeResult:
        yield Head()
        yield Static("", id="starting-head", markup=False)
        yield TextArea("", read_only=True, id="output", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        self.title = f"rlctl {' '.join(self.launched.words)}"
        self._poll = self.set_interval(EVERY_SECONDS, self._look)
        self._look()

    def _look(self) -> None:
        """Go to the monitor once the run is there; show everything where it ended before."""
        output = self.query_one("#output", TextArea)
        text = readable(self.launched.text())
        if text != output.text:
            output.load_text(text)
            output.scroll_end(animate=False)
        folder = self.launched.folder(self.runs_folder) if self.runs_folder is not None else None
        code = self.launched.exit_code
        if folder is not None:
            if self.app.screen is not self:  # it goes there when the box over it is closed
                return
            from rlctl.tui.screens.monitor import MonitorScreen

            self._poll.stop()
            navigation(self.app).watched.add(folder)
            self.app.switch_screen(MonitorScreen(folder))
            return
        told = say(
            "starting for {seconds:.0f} s: process {pid}; it continues when you leave. Its output is in {output}"
        )
        if code is not None:
            self._poll.stop()
            told = say("It failed to start (exit code {code}). Its output is below and in {output}")
            if self.runs_folder is None and code == 0:
                told = say("It runs on the cluster now. How to follow and stop it is below, and in {output}")
        seconds = time.time() - self.launched.began
        head = told.format(seconds=seconds, pid=self.launched.process.pid, code=code, output=self.launched.output)
        self.query_one("#starting-head", Static).update(head)

    def action_leave(self) -> None:
        navigation(self.app).leave_screen(self)
