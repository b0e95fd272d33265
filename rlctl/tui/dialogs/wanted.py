"""What a launch script wants and is not given: its variables and arguments, asked for before it is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Input, Label, Static

from rlctl.tui.dialogs.ask import turn_page
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say
from rlctl.tui.widgets.line import Line


class WantedScreen(Dialog["dict[str, str] | None"]):
    """A value for each, to begin with what was said before; what comes back is what the script is read with."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    WantedScreen { align: center middle; }
    WantedScreen #wanted-told { height: auto; max-height: 30vh; }
    WantedScreen #wanted { height: auto; max-height: 40vh; }
    WantedScreen #wanted Horizontal { height: auto; }
    WantedScreen #wanted Label { width: 30%; min-width: 12; padding-right: 1; }
    WantedScreen #wanted Line { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", say("Cancel"), id="wanted.cancel"),
        Binding("pageup", "read(-1)", say("Scroll up"), id="wanted.up"),
        Binding("pagedown", "read(1)", say("Scroll down"), id="wanted.down"),
    ]

    def __init__(self, told: str, wanted: Mapping[str, str]) -> None:
        """``told``: what the script says, or what is wrong; ``wanted``: values of variables by name, of arguments by number."""
        super().__init__()
        self.told, self.wanted = told, wanted

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield VerticalScroll(Static(self.told, markup=False), id="wanted-told", can_focus=False)
            with VerticalScroll(id="wanted", can_focus=False):
                for name, value in self.wanted.items():
                    with Horizontal():
                        yield Label(f"${name}", markup=False)
                        yield Line(value, name=name, compact=True)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel", compact=True)
                yield Button(say("Open"), id="open", variant="primary", compact=True)

    def on_mount(self) -> None:
        lines = list(self.query(Line))
        next((line for line in lines if not line.value), lines[0]).focus()

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

    def action_read(self, way: int) -> None:
        """Scroll what is told, where it is longer than its box."""
        turn_page(self.query_one("#wanted-told", VerticalScroll), way)

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)
