"""What is shown while something is read: which, and that it can be given up."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say


class OpeningScreen(Dialog[None]):
    """Stands over the screen that asked, so that no key goes to it, until what is read takes its place."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    OpeningScreen { align: center middle; }
    OpeningScreen > Static { width: auto; height: auto; padding: 1 3; border: round $primary; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", say("Back"), id="opening.leave", tooltip=say("Do not wait for it"))
    ]

    def __init__(self, told: str) -> None:
        super().__init__()
        self._told = told

    def compose(self) -> ComposeResult:
        yield Static(self._told, markup=False)
