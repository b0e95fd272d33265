"""What a person knows of the run and no config says, as how many rows the data has: asked for where something hangs on it."""

from __future__ import annotations

import re
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Label, Static

from rlctl.common.errors import RlctlError
from rlctl.common.report import ASKED
from rlctl.editing.session import Session
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say
from rlctl.tui.widgets.line import Line

MEANINGS = {
    "dataset_rows": say("number of training rows, to turn epochs into steps"),
    "explorer_gpus": say("devices for the explorer, because all roles share devices here and Trinity splits them"),
    "stage": say("the stage to write, if the format has no stages"),
}
"""Each fact that can be stated, and what it is."""


def in_app(text: str) -> str:
    """A text that asks for a fact, with the key that opens the window for it."""
    return re.sub(ASKED, lambda found: say("press F10 to give {fact}").format(fact=found[1]), text)


class FactsScreen(Dialog[bool]):
    """The facts of a session: plan, preview and saving go by them."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    FactsScreen { align: center middle; }
    FactsScreen Label { width: 100%; margin-top: 1; }
    FactsScreen .problem { color: $error; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", say("Cancel"), id="facts.cancel")]

    def __init__(self, session: Session, wanted: str = "") -> None:
        """``wanted``: the fact that is asked for, which the cursor is put to."""
        super().__init__()
        self.session, self.wanted = session, wanted

    def compose(self) -> ComposeResult:
        stages = [str(stage.get("name", "")) for stage in self.session.config.stages]
        with Vertical(classes="box"):
            yield Static(
                say("Facts that the config doesn't contain. Plan, preview and saving use them until you leave the app.")
            )
            for name, meaning in MEANINGS.items():
                if name != "stage" or stages:
                    yield Label(f"{name}: {meaning}", markup=False)
                    told = ", ".join(stages) if name == "stage" else say("a number; empty: not known")
                    yield Line(self.session.facts.get(name, ""), name=name, placeholder=told, compact=True)
            yield Static("", classes="problem", markup=False)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel", compact=True)
                yield Button(say("Apply"), id="take", variant="primary", compact=True)

    def on_mount(self) -> None:
        fields = {field.name: field for field in self.query(Line)}
        fields.get(self.wanted, self.query(Line).first()).focus()

    @on(Button.Pressed, "#take")
    @on(Input.Submitted)
    def _take(self) -> None:
        try:
            self.session.assume({str(field.name): field.value for field in self.query(Line)})
        except RlctlError as error:
            self.query_one(".problem", Static).update(error.shown.replace("--assume ", ""))
        else:
            self.dismiss(True)

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(False)
