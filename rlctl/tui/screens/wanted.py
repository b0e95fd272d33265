"""What a launch script wants and is not given: its variables and arguments, asked for before it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

from rlctl.tui.language import say
from rlctl.tui.widgets.line import Line


class WantedScreen(ModalScreen["dict[str, str] | None"]):
    """A value for each; what comes back is what the script is read with."""

    DEFAULT_CSS = """
    WantedScreen { align: center middle; }
    WantedScreen VerticalScroll { height: auto; max-height: 40vh; }
    WantedScreen Label { width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", say("Cancel"), id="wanted.cancel")]

    def __init__(self, told: str, wanted: Sequence[str]) -> None:
        """``told``: what the script says; ``wanted``: variables by name, arguments by number."""
        super().__init__()
        self.told, self.wanted = told, wanted

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield VerticalScroll(Static(self.told, markup=False), can_focus=False)
            with VerticalScroll(can_focus=False):
                for name in self.wanted:
                    yield Label(f"${name}", markup=False)
                    yield Line(name=name, compact=True)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel", compact=True)
                yield Button(say("Open"), id="open", variant="primary", compact=True)

    def on_mount(self) -> None:
        self.query(Line).first().focus()

    @on(Input.Submitted)
    def _next(self) -> None:
        """Go to the next that has no value; open it where all have one."""
        empty = next((line for line in self.query(Line) if not line.value), None)
        if empty is not None:
            empty.focus()
        else:
            self._open()

    @on(Button.Pressed, "#open")
    def _open(self) -> None:
        self.dismiss({str(line.name): line.value for line in self.query(Line)})

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)
