"""Asks where a ported run is written, and whether files that are there may be replaced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Checkbox, Input, Static

from rlctl.common.filenames import expanded, is_folder, is_there
from rlctl.tui.dialogs.ask import Tick
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say
from rlctl.tui.widgets.line import Line
from rlctl.tui.widgets.path_suggester import PathSuggester


@dataclass(frozen=True, slots=True)
class Destination:
    """A folder, and whether its files are replaced by those of the same names."""

    folder: Path
    replaces: bool


class PortFolderScreen(Dialog["Destination | None"]):
    """A box with the folder's name; a folder that has files is written into only after that was allowed."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    PortFolderScreen { align: center middle; }
    PortFolderScreen .box { height: auto; }
    PortFolderScreen Line, PortFolderScreen #state, PortFolderScreen Tick { margin-top: 1; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", say("Cancel"), id="folder.cancel")]

    def __init__(self, framework: str, folder: Path, source: Path) -> None:
        """
        Args:
            framework: its name as a person knows it.
            folder: the proposed one.
            source: the folder of the config, which a launch script of the same name would be written over in.
        """
        super().__init__()
        self.framework, self.folder, self.source = framework, folder, source

    def compose(self) -> ComposeResult:
        told = say("Write the run for {framework} to this folder. None of its code runs.").format(
            framework=self.framework
        )
        with Vertical(classes="box"):
            yield Static(told, markup=False)
            yield Line(str(self.folder), id="folder", suggester=PathSuggester())
            yield Static("", id="state", markup=False)
            yield Tick(say("replace files of the same names"), False, id="replaces", compact=True)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel")
                yield Button(say("Write the folder"), id="write", variant="primary")

    @property
    def _place(self) -> Path | None:
        name = self.query_one("#folder", Input).value.strip()
        return expanded(name) if name else None

    @property
    def _replaces(self) -> bool:
        return self.query_one("#replaces", Tick).value

    def on_mount(self) -> None:
        self._tell()

    @on(Input.Changed, "#folder")
    @on(Checkbox.Changed, "#replaces")
    def _tell(self) -> None:
        """Say what is at that place, and offer to replace files where there are some."""
        place = self._place
        problem = self._problem
        has_files = not problem and place is not None and _has_files(place)
        self.query_one("#replaces").display = has_files
        told = say("The folder has files.") if has_files else say("The folder is new or empty.")
        if has_files and self._replaces:
            told = say("The folder has files; the others stay.")
        self.query_one("#state", Static).update(problem or told)

    @property
    def _problem(self) -> str:
        """Why nothing can be written there, whatever is allowed; empty if it can."""
        place = self._place
        if place is None:
            return say("Name a folder.")
        if is_there(place) and not is_folder(place):
            return say("This is a file: name a folder.")
        if place.absolute() == self.source.absolute():
            return say("The config itself is in this folder: name another one.")
        return ""

    @on(Button.Pressed, "#write")
    @on(Input.Submitted, "#folder")
    def _write(self) -> None:
        place = self._place
        if place is None or self._problem:
            self.notify(self._problem, severity="warning")
        elif _has_files(place) and not self._replaces:
            self.notify(say("allow replacing files, or name another folder"), severity="warning")
        else:
            self.dismiss(Destination(place, self._replaces))

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)


def _has_files(place: Path) -> bool:
    """Whether a folder has something in it; an unreadable folder is reported when it is written."""
    try:
        return is_folder(place) and any(place.iterdir())
    except OSError:
        return False
