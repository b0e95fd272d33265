"""Jump mode: a letter on everything that takes keys; the letter goes there."""

from __future__ import annotations

import string
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Click, Key
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Label, Tab

from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say

LETTERS = "asdfghjklqwertyuiopzxcvbnm" + string.digits + string.ascii_uppercase


def targets(screen: Screen[Any]) -> dict[str, Widget]:
    """What can be jumped to, from top to bottom, by its letter: what takes keys and is in sight, and every tab."""
    seen = [*screen.focus_chain, *(tab for tab in screen.query(Tab) if tab.is_on_screen and not tab.disabled)]
    places = {widget: place for widget in seen if (place := corner(screen, widget)) is not None}
    ordered = sorted(places, key=lambda widget: (places[widget][1], places[widget][0]))
    return dict(zip(LETTERS, ordered, strict=False))


def corner(screen: Screen[Any], widget: Widget) -> tuple[int, int] | None:
    """Where the part of a widget that is in sight begins; None where nothing of it is."""
    region = screen.find_widget(widget).visible_region if widget.is_on_screen else None
    return (region.x, region.y) if region is not None and region.area else None


def focus(widget: Widget | None) -> None:
    """Go to what was chosen: a tab is opened, anything else gets the keys."""
    if isinstance(widget, Tab):
        widget.post_message(Tab.Clicked(widget))
    elif widget is not None:
        widget.focus()


class Mark(Label):
    """The letter over a widget."""

    def __init__(self, letter: str, at: tuple[int, int]) -> None:
        super().__init__(f" {letter} ", markup=False)
        self.letter = letter
        self.styles.offset = at


class JumpScreen(Dialog["Widget | None"]):
    """Shows the letters, and takes one."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    JumpScreen Mark { position: absolute; width: 3; background: $primary; color: $background; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", say("Stay here"), id="jump.stay")]

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        self._targets = targets(below)
        self._places = {letter: corner(below, widget) for letter, widget in self._targets.items()}

    def compose(self) -> ComposeResult:
        for letter, place in self._places.items():
            if place is not None:
                yield Mark(letter, place)

    def on_key(self, event: Key) -> None:
        if event.character in self._targets:
            event.stop()
            self.dismiss(self._targets[event.character])
        elif event.key != "escape":
            event.stop()

    @on(Click)
    def _clicked(self, event: Click) -> None:
        self.dismiss(self._targets[event.widget.letter] if isinstance(event.widget, Mark) else None)
