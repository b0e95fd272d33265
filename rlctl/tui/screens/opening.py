"""What is shown while something is read: which, and that it can be given up."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from rlctl.tui.language import say


class OpeningScreen(ModalScreen[None]):
    """Stands over the screen that asked, so that no key goes to it, until what is opened takes its place."""

    DEFAULT_CSS = """
    OpeningScreen { align: center middle; }
    OpeningScreen > Static { width: auto; height: auto; padding: 1 3; border: round $primary; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", say("Back"), id="opening.leave", tooltip=say("Give up opening it"))
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name_told = name

    def compose(self) -> ComposeResult:
        yield Static(say("opening {name} ...").format(name=self._name_told), markup=False)
