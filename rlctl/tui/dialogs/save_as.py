"""Save under another name, in this or another dialect: where, what changes by it, and whether to continue with that file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Button, Input, Label, Select, Static

from rlctl.common.errors import RlctlError
from rlctl.common.filenames import SCRIPT_ENDINGS, expanded, is_there
from rlctl.common.ranks import Rank, rank_of
from rlctl.common.report import fact_in
from rlctl.common.secrets import redacted
from rlctl.config.chinese import in_words
from rlctl.editing.deviations import Deviation, Outlook, outlook
from rlctl.editing.session import Session
from rlctl.tui.dialogs.ask import Tick, turn_page
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.dialogs.facts import FactsScreen, in_app
from rlctl.tui.language import say, told_apart
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.path_suggester import PathSuggester

LONGEST = 60
"""Most cells of a value in the list of what changes."""


@dataclass(frozen=True, slots=True)
class Named:
    """A file's name, a dialect, and whether to go on with that file."""

    name: str
    dialect: str
    goes_on: bool


class SaveAsScreen(Dialog["Named | None"]):
    """Asks for the name and the dialect, and lists beforehand everything that the file would say otherwise."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    SaveAsScreen { align: center middle; }
    SaveAsScreen Line, SaveAsScreen Select { margin-bottom: 1; }
    SaveAsScreen.-low Line, SaveAsScreen.-low Select { margin-bottom: 0; }
    SaveAsScreen VerticalScroll { height: 1fr; margin-top: 1; }
    SaveAsScreen.-low VerticalScroll { margin-top: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", say("Cancel"), id="name.cancel"),
        Binding("pageup", "read(-1)", say("Scroll up"), id="name.up"),
        Binding("pagedown", "read(1)", say("Scroll down"), id="name.down"),
        Binding(
            "f10", "facts", say("Facts"), id="name.facts",
            tooltip=say("Add facts that the config doesn't contain, such as the number of rows in the data"),
        ),
    ]  # fmt: skip

    class Account(Message):
        """What would become of the keys."""

        def __init__(self, form: tuple[str, bool], found: Outlook | RlctlError) -> None:
            self.form, self.found = form, found
            super().__init__()

    def __init__(self, session: Session, dialects: Sequence[str], shown: str) -> None:
        """``shown``: the dialect that is looked at, which is proposed."""
        super().__init__()
        self.session, self.dialects, self.shown = session, dialects, shown
        self.own = session.dialect.partition("@")[0]
        self.file_name = self._proposed(shown)
        self._wanted = ""
        self._read_form: tuple[str, bool] | None = None
        """The dialect, and whether it is a script, that the list in sight is of."""
        self._pressed = False
        """Whether to save as soon as the list is there, if there is nothing on it."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(say("Save as: file and format"))
            yield Line(self.file_name, id="name", suggester=PathSuggester())
            yield Select([(name, name) for name in self.dialects], value=self.shown, allow_blank=False, id="dialect")
            yield Tick(say("continue with that file (off: export a copy)"), True, id="goes-on", compact=True)
            yield VerticalScroll(Static("", id="lost", markup=False), id="account", can_focus=False)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel")
                yield Button(say("Facts (F10)"), id="facts")
                yield Button(say("Save"), id="save", variant="primary")

    def on_mount(self) -> None:
        self.query_one("#facts").display = False
        self._look()

    @property
    def form(self) -> tuple[str, bool]:
        """The dialect that is chosen, and whether the name is one of a launch script."""
        return self.dialect, self.query_one("#name", Input).value.strip().endswith(SCRIPT_ENDINGS)

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
        self._look()

    @on(Input.Changed, "#name")
    def _named(self) -> None:
        if self._read_form is not None and self.form != self._read_form:
            self._look()

    def _look(self) -> None:
        self._read_form = None
        self.query_one("#lost", Static).update(say("computing what changes ..."))
        self._read(self.form, expanded(self.query_one("#name", Input).value.strip() or "run.yaml"))

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
    def _read(self, form: tuple[str, bool], path: Path) -> None:
        dialect, script = form
        try:
            found: Outlook | RlctlError = outlook(
                self.session, path, None if dialect == self.own else dialect, script=script
            )
        except RlctlError as error:
            found = error
        self.post_message(self.Account(form, found))

    @on(Account)
    def _show(self, message: Account) -> None:
        if message.form != self.form:
            return
        found = message.found
        self._read_form = message.form
        text = str(found) if isinstance(found, RlctlError) else "\n".join(lines_of(found))
        self._wanted = fact_in(text)
        self.query_one("#lost", Static).update(redacted(in_app(text)))
        self.query_one("#facts").display = bool(self._wanted)
        if self._pressed:
            self._pressed = False
            if isinstance(found, Outlook) and not found.refusal and not found.deviations:
                self._save()
            else:
                self.notify(say("review what changes, then save"))

    def action_read(self, way: int) -> None:
        """Scroll what is lost, where it is longer than its box."""
        turn_page(self.query_one("#account", VerticalScroll), way)

    @on(Button.Pressed, "#facts")
    def action_facts(self) -> None:
        self.app.push_screen(FactsScreen(self.session, self._wanted), self._stated)

    def _stated(self, done: bool | None) -> None:
        if done:
            self._look()

    @on(Button.Pressed, "#save")
    @on(Input.Submitted, "#name")
    def _save(self) -> None:
        name = self.query_one("#name", Input).value.strip()
        if not name:
            self.notify(say("a file needs a name"), severity="warning")
            return
        if self._read_form != self.form:
            self._pressed = True
            return
        self.dismiss(Named(name, self.dialect, self.query_one("#goes-on", Tick).value))

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)


def lines_of(found: Outlook) -> Iterator[str]:
    """The list of what changes: what changes training first, the gravest of it before the rest, each with its reason."""
    if found.refusal:
        yield found.refusal
        return
    heads = {
        True: say("Changes training ({count}):"),
        False: say("Changes speed, memory, names or records only ({count}):"),
    }
    for trains, head in heads.items():
        some = [one for one in found.deviations if one.changes_training is trains]
        some.sort(key=lambda one: (rank_of(one.key) or Rank.NAMES).place)
        if some:
            yield head.format(count=len(some))
            yield from (f"  {_line(one)}" for one in some)
    if not found.deviations:
        yield say("Nothing changes: the file can express the whole config.")
    yield ", ".join(f"{count} {in_words(bucket)}" for bucket, count in found.shares.items() if count)


def _line(one: Deviation) -> str:
    wanted, said = told_apart(one.wanted.replace("\n", " "), one.said.replace("\n", " "), LONGEST)
    became = f": {wanted} → {said}" if said else f": {wanted}" if wanted else ""
    return f"{one.key}{became}" + (f" ({one.reason})" if one.reason else "")
