"""The app: which screen is shown first, and what holds on all of them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from rlctl.editing.session import Session
from rlctl.tui.screens.editor import EditorScreen
from rlctl.tui.screens.monitor import MonitorScreen
from rlctl.tui.screens.start import StartScreen


class RlctlApp(App[None]):
    """Edits a config, or watches a run, or asks which."""

    TITLE = "rlctl"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", id="app.quit", tooltip="Leave; what is not saved is kept for the next start"),
        Binding("f1", "show_help_panel", "Help", id="app.help", tooltip="Every key of where you are"),
    ]

    def __init__(
        self,
        *,
        session: Session | None = None,
        run: Path | None = None,
        runs_folder: Path = Path("runs"),
        readonly: bool = False,
    ) -> None:
        """
        Args:
            session: the config to edit.
            run: the folder of the run to watch; without either, the start page.
            runs_folder: where runs are, for the start page.
            readonly: runs are watched, never stopped or resumed, and files are not written.
        """
        super().__init__()
        self.session, self.run_folder, self.runs_folder, self.readonly = session, run, runs_folder, readonly

    def on_mount(self) -> None:
        if self.run_folder is not None:
            self.push_screen(MonitorScreen(self.run_folder, readonly=self.readonly))
        elif self.session is not None:
            self.push_screen(EditorScreen(self.session, readonly=self.readonly))
        else:
            self.push_screen(StartScreen(self.runs_folder, readonly=self.readonly))
