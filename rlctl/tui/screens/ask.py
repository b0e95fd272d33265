"""Questions in a box over the screen: yes or no, or a file's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Select, Static


class AskScreen(ModalScreen[bool]):
    """A question; the answer that changes nothing is the one that is chosen first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "No", id="ask.no"),
        Binding("y", "answer(True)", "Yes", id="ask.yes"),
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__()
        self.question, self.yes = question, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(self.question, markup=False)
            with Horizontal(classes="buttons"):
                yield Button("No (n)", id="no")
                yield Button(f"{self.yes} (y)", id="yes", variant="warning")

    @on(Button.Pressed)
    def _pressed(self, message: Button.Pressed) -> None:
        self.dismiss(message.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class NameScreen(ModalScreen["tuple[str, str] | None"]):
    """Where to save, and in which dialect."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", id="name.cancel")]

    def __init__(self, name: str, dialect: str, dialects: Sequence[str]) -> None:
        super().__init__()
        self.file_name, self.dialect, self.dialects = name, dialect.partition("@")[0], dialects

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("Save as")
            yield Input(self.file_name, id="name")
            yield Select([(name, name) for name in self.dialects], value=self.dialect, allow_blank=False, id="dialect")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel")
                yield Button("Save", id="save", variant="primary")

    @on(Button.Pressed, "#save")
    @on(Input.Submitted, "#name")
    def _save(self) -> None:
        self.dismiss((self.query_one("#name", Input).value, str(self.query_one("#dialect", Select).value)))

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)
