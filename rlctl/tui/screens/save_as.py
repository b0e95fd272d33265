"""Save under another name, in this or another dialect: where, what is lost by it, and whether to go on with that file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Select, Static

from rlctl.config.chinese import in_words
from rlctl.editing.session import Session
from rlctl.errors import RlctlError
from rlctl.filenames import SCRIPT_ENDINGS, is_there
from rlctl.report import Bucket
from rlctl.tui.language import say
from rlctl.tui.screens.ask import Tick, turn_page
from rlctl.tui.screens.facts import FactsScreen, asked_in
from rlctl.tui.widgets.field_row import PathSuggester
from rlctl.tui.widgets.line import Line

LOST = (Bucket.UNKNOWN, Bucket.UNSUPPORTED)
"""The buckets of keys that the other dialect does not say."""


@dataclass(frozen=True, slots=True)
class Named:
    """A file's name, a dialect, and whether to go on with that file."""

    name: str
    dialect: str
    goes_on: bool


class SaveAsScreen(ModalScreen["Named | None"]):
    """Asks for the name and the dialect, and tells beforehand what the dialect cannot say."""

    DEFAULT_CSS = """
    SaveAsScreen { align: center middle; }
    SaveAsScreen .box { width: 90%; max-width: 110; }
    SaveAsScreen VerticalScroll { height: auto; max-height: 33vh; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", say("Cancel"), id="name.cancel"),
        Binding("pageup", "read(-1)", say("Read up"), id="name.up"),
        Binding("pagedown", "read(1)", say("Read on"), id="name.down"),
        Binding(
            "f10", "facts", say("Facts"), id="name.facts",
            tooltip=say("Say what no config says, as how many rows the data has"),
        ),
    ]  # fmt: skip

    class Account(Message):
        """What would become of the keys."""

        def __init__(self, dialect: str, text: str, fact: str) -> None:
            self.dialect, self.text, self.fact = dialect, text, fact
            super().__init__()

    def __init__(self, session: Session, dialects: Sequence[str], shown: str) -> None:
        """``shown``: the dialect that is looked at, which is proposed."""
        super().__init__()
        self.session, self.dialects, self.shown = session, dialects, shown
        self.own = session.dialect.partition("@")[0]
        self.file_name = self._proposed(shown)
        self._wanted = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(say("Save as: file, and dialect"))
            yield Line(self.file_name, id="name", suggester=PathSuggester())
            yield Select([(name, name) for name in self.dialects], value=self.shown, allow_blank=False, id="dialect")
            yield Tick(say("go on with that file (off: export a copy)"), True, id="goes-on", compact=True)
            yield VerticalScroll(Static("", id="lost", markup=False), id="account", can_focus=False)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel")
                yield Button(say("Facts (F10)"), id="facts")
                yield Button(say("Save"), id="save", variant="primary")

    def on_mount(self) -> None:
        self.query_one("#facts").display = False
        self._read(self.shown)

    @property
    def dialect(self) -> str:
        return str(self.query_one("#dialect", Select).value)

    @on(Select.Changed, "#dialect")
    def _chosen(self, message: Select.Changed) -> None:
        """Propose a name of that dialect where none was typed, so that nothing is written over."""
        message.stop()
        line = self.query_one("#name", Line)
        if line.value == self.file_name:
            self.file_name = line.value = self._proposed(str(message.value))
        self._read(str(message.value))

    def _proposed(self, dialect: str) -> str:
        """A name of that dialect which no file has yet; the file's own for its own dialect, to be changed."""
        place = Path("run.yaml") if self.session.file is None else self.session.file.path
        if dialect == self.own and self.session.file is not None:
            return str(place)
        ending = ".yaml" if place.suffix in SCRIPT_ENDINGS else place.suffix
        stem = place.stem if dialect == self.own else f"{place.stem.removesuffix(f'.{self.own}')}.{dialect}"
        names = (f"{stem}{'' if number == 1 else f'-{number}'}{ending}" for number in count(1))
        return str(next(path for name in names if not is_there(path := place.with_name(name))))

    @work(thread=True, exclusive=True, group="account")
    def _read(self, dialect: str) -> None:
        if dialect == self.own:
            self.post_message(self.Account(dialect, "", ""))
            return
        try:
            found = self.session.preview(dialect)
        except RlctlError as error:
            self.post_message(self.Account(dialect, str(error), ""))
            return
        report = found.report
        lines = [", ".join(f"{count} {in_words(bucket)}" for bucket, count in report.shares().items() if count)]
        if found.text is None:
            lines = [f"x {item.message}\n  {item.hint}" for item in report.errors]
        lines += [f"x {entry.key}: {entry.note}" for entry in report.accounting if entry.bucket in LOST]
        text = "\n".join(lines)
        self.post_message(self.Account(dialect, text, asked_in(text)))

    @on(Account)
    def _show(self, message: Account) -> None:
        if message.dialect == self.dialect:
            self._wanted = message.fact
            self.query_one("#lost", Static).update(message.text)
            self.query_one("#facts").display = bool(message.fact)

    def action_read(self, way: int) -> None:
        """Scroll what is lost, where it is longer than its box."""
        turn_page(self.query_one("#account", VerticalScroll), way)

    @on(Button.Pressed, "#facts")
    def action_facts(self) -> None:
        self.app.push_screen(FactsScreen(self.session, self._wanted), self._stated)

    def _stated(self, done: bool | None) -> None:
        if done:
            self._read(self.dialect)

    @on(Button.Pressed, "#save")
    @on(Input.Submitted, "#name")
    def _save(self) -> None:
        name = self.query_one("#name", Input).value.strip()
        if not name:
            self.notify(say("a file needs a name"), severity="warning")
            return
        self.dismiss(Named(name, self.dialect, self.query_one("#goes-on", Tick).value))

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)
