"""The footer: the keys of where a person is, and at its right end the key of all commands, however narrow the terminal."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import HorizontalScroll
from textual.widgets import Footer as TextualFooter
from textual.widgets._footer import FooterKey

from rlctl.language import later
from rlctl.tui.language import say

TEXTUALS = (later("Dismiss menu"), later("Exit the command palette"))
"""What Textual's own widgets call their keys."""


class Footer(TextualFooter):
    """Textual's, where the last key stands beside the others and not over them.

    What stands over others is cut at their edges, and half of a Chinese character is nothing.
    """

    DEFAULT_CSS = """
    Footer .keys { width: 1fr; height: 1; scrollbar-size: 0 0; }
    Footer FooterKey.-command-palette { dock: none; width: auto; }
    """

    def compose(self) -> ComposeResult:
        last = []
        with HorizontalScroll(classes="keys", can_focus=False):
            for key in super().compose():
                if isinstance(key, FooterKey):
                    key.description = say(key.description)
                if key.has_class("-command-palette"):
                    last.append(key)
                else:
                    yield key
        yield from last
