"""Help for where one is: what the screen is for, and every key that works there, with what it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say

NARROW = 70
"""Cells of a terminal below which names and meanings do not stand beside each other."""


class HelpScreen(Dialog[None]):
    """The keys of another screen, grouped by whose they are."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: 90%; max-width: 100; height: auto; max-height: 90%;
        padding: 0 2; border: round $primary; border-title-color: $primary; background: $background;
    }
    HelpScreen .title { text-style: bold; margin-top: 1; }
    HelpScreen .keys { height: auto; }
    HelpScreen .end { color: $text-muted; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,question_mark,q", "dismiss", say("Close"), id="help.close", key_display="esc")
    ]

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        self._below = below

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            for text in dict.fromkeys(_told(self._below)):
                yield Static(text, markup=False)
            groups = _keys(self._below)
            widths = [max(cell_len(key[place]) for keys in groups.values() for key in keys) for place in (0, 1)]
            look = f"bold {self.app.get_css_variables()['primary']}"
            for title, keys in groups.items():
                yield Static(title, classes="title", markup=False)
                yield Static(_table(keys, widths, look, self.app.size.width < NARROW), classes="keys", markup=False)
            yield Static(
                say("While you type in a field, letters go into it; esc closes this help."), classes="end", markup=False
            )

    def on_mount(self) -> None:
        box = self.query_one(VerticalScroll)
        box.border_title = say("Help")
        box.focus()


def _told(screen: Screen[Any]) -> Iterator[str]:
    """What the screen and what is focused say of themselves, from the outside in."""
    around = [] if screen.focused is None else list(screen.focused.ancestors_with_self)
    for node in [screen, *(node for node in reversed(around) if node is not screen)]:
        if text := getattr(node, "HELP", None):
            yield str(text).strip()


def _keys(screen: Screen[Any]) -> dict[str, list[tuple[str, str, str]]]:
    """Key, name and meaning, by whose they are: of what is focused, of the screen, of the app."""
    titles = {False: say("Here"), None: say("On this page"), True: say("Everywhere")}
    groups: dict[str, dict[str, tuple[str, str, str]]] = {title: {} for title in titles.values()}
    for active in screen.active_bindings.values():
        binding = active.binding
        if not binding.description or binding.system or not (binding.id or binding.show):
            continue
        group = groups[titles[None if active.node is screen else active.node is screen.app]]
        shown = screen.app.get_key_display(binding)
        if binding.action in group:  # a second key for the same
            keys, name, meaning = group[binding.action]
            keys = keys if shown in keys.split() else f"{keys} {shown}"
            group[binding.action] = (keys, name, meaning or binding.tooltip)
        else:
            group[binding.action] = (shown, binding.description, binding.tooltip)
    return {title: list(group.values()) for title, group in groups.items() if group}


def _table(keys: list[tuple[str, str, str]], widths: Sequence[int], look: str, narrow: bool) -> Any:
    """The keys as a table whose columns have at least these widths; if it is narrow, the meaning is under the name."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=widths[0])
    if narrow:
        table.add_column(overflow="fold")
        for key, name, meaning in keys:
            table.add_row(Text(key, style=look), Text(f"{name}\n{meaning}" if meaning else name))
        return table
    table.add_column(no_wrap=True, min_width=widths[1])
    table.add_column(overflow="fold")  # Chinese has no spaces to break at
    for key, name, meaning in keys:
        table.add_row(Text(key, style=look), Text(name), Text(meaning))
    return table
