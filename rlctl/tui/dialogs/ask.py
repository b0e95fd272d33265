"""Questions in a box over the screen: yes or no, one of several answers, a text of several lines.

An answer is chosen with the arrows and given with Enter; no letter or digit answers, because it may have been meant for a field.
The answer that has the cursor first is the one that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Checkbox, Static, TextArea

from rlctl.common.errors import RlctlError
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say

LONG = 10
"""Lines of a question that may be longer than its box."""


def turn_page(held: VerticalScroll, way: int) -> None:
    """Scroll a text that is longer than its box by what is in sight of it, up (-1) or down (1)."""
    held.scroll_relative(y=way * max(1, held.size.height - 1), animate=False)


class Tick(Checkbox):
    """A checkbox that says without colour whether it is on."""

    DEFAULT_CSS = "Tick { text-wrap: wrap; width: 1fr; height: auto; }"

    def render(self) -> Any:
        self.BUTTON_INNER = "X" if self.value else " "
        return super().render()


ARROWS = (
    Binding("up,left", "app.focus_previous", say("Answer before"), id="ask.before", show=False),
    Binding("down,right", "app.focus_next", say("Answer after"), id="ask.after", show=False),
)
"""Between the answers of a question."""


class AskScreen(Dialog[bool]):
    """A question to be answered with yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "answer(False)", say("No"), id="ask.no"),
        *ARROWS,
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__()
        self.question, self.yes = question, yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(self.question, markup=False)
            with Horizontal(classes="buttons"):
                yield Button(say("No (esc)"), id="no")
                yield Button(self.yes.replace("[", "\\["), id="yes", variant="warning")

    @on(Button.Pressed)
    def _pressed(self, message: Button.Pressed) -> None:
        self.dismiss(message.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class ChooseScreen(Dialog["str | None"]):
    """A question with several answers; escape gives none."""

    DEFAULT_CSS = """
    ChooseScreen { align: center middle; }
    ChooseScreen VerticalScroll { height: auto; max-height: 60vh; }
    ChooseScreen .answers { height: auto; margin-top: 1; }
    ChooseScreen Button { width: 100%; }
    ChooseScreen .paged { color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", say("Cancel"), id="choose.cancel"),
        Binding("pageup", "read(-1)", say("Scroll up"), id="choose.up"),
        Binding("pagedown", "read(1)", say("Scroll down"), id="choose.down"),
        *ARROWS,
    ]

    def __init__(self, question: str, answers: Sequence[tuple[str, str]], none: str = say("Cancel")) -> None:
        """
        Args:
            question: what is asked.
            answers: a name and a text each; the name is what comes back.
            none: the text of no answer, which is the first one.
        """
        super().__init__()
        self.question, self.answers, self.none = question, answers, none

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield VerticalScroll(Static(self.question, markup=False), can_focus=False)
            if self.question.count("\n") > LONG:
                yield Static(say("page up and page down scroll it"), classes="paged", markup=False)
            with Vertical(classes="answers"):
                yield Button(f"{self.none} (esc)".replace("[", "\\["), id="answer-none", compact=True)
                for number, (name, text) in enumerate(self.answers):
                    yield Button(text.replace("[", "\\["), name=name, id=f"answer-{number}", compact=True)

    @on(Button.Pressed)
    def _pressed(self, message: Button.Pressed) -> None:
        self.dismiss(message.button.name)

    def action_read(self, way: int) -> None:
        """Scroll a question that is longer than its box."""
        turn_page(self.query_one(VerticalScroll), way)


class TextScreen(Dialog[bool]):
    """A text of several lines; what is refused stays, with the reason."""

    DEAF_SECONDS = 0

    DEFAULT_CSS = """
    TextScreen { align: center middle; }
    TextScreen TextArea { height: 1fr; }
    TextScreen .problem { color: $error; height: auto; max-height: 6; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "take", say("Apply"), id="text.take", priority=True),
        Binding("escape", "leave", say("Cancel"), id="text.cancel", priority=True),
    ]

    def __init__(self, title: str, text: str, take: Callable[[str], None]) -> None:
        """``take`` is given the text, and raises what is wrong with it."""
        super().__init__()
        self.heading, self.text, self._take = title, text, take

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(self.heading, markup=False)
            yield TextArea(self.text, tab_behavior="indent", compact=True)
            yield Static("", classes="problem", markup=False)
            with Horizontal(classes="buttons"):
                yield Button(say("Cancel"), id="cancel", compact=True)
                yield Button(say("Apply (ctrl+s)"), id="take", variant="primary", compact=True)

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()

    @on(Button.Pressed, "#take")
    def action_take(self) -> None:
        try:
            self._take(self.query_one(TextArea).text)
        except RlctlError as error:
            self.query_one(".problem", Static).update(error.shown)
        else:
            self.dismiss(True)

    @on(Button.Pressed, "#cancel")
    def action_leave(self) -> None:
        if self.query_one(TextArea).text == self.text:
            self.dismiss(False)
            return
        question = say("Discard what you typed here?")
        self.app.push_screen(AskScreen(question, say("Discard")), self._give_up)

    def _give_up(self, yes: bool | None) -> None:
        if yes:
            self.dismiss(False)
