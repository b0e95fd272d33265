"""The footer: the keys of where a person is, and at its right end the key of all commands, however narrow the terminal."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import HorizontalScroll
from textual.screen import Screen
from textual.widgets import Footer as TextualFooter
from textual.widgets._footer import FooterKey

from rlctl.common.language import later
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

    _made_of: list[tuple[str, str, str, str, str]] | None = None
    """The keys that its widgets were made of."""

    def bindings_changed(self, screen: Screen[Any]) -> None:
        """Make it anew only where its keys are others: Textual tells of every move of the focus, and of much else."""
        keys = [
            (binding.key, binding.action, binding.description, str(binding.show), str(enabled))
            for _, binding, enabled, _ in screen.active_bindings.values()
        ]
        is_seen = screen.app.app_focus and self.is_attached and screen is self.screen
        if not is_seen or keys != self._made_of:
            self._made_of = keys if is_seen else None
            super().bindings_changed(screen)

    def compose(self) -> ComposeResult:
        last = []
        with HorizontalScroll(classes="keys", can_focus=False):
            for key in super().compose():
                if isinstance(key, FooterKey):
                    key.description = say(key.description)
                if key.has_class("-command-palette"):
                    last.append(key)
                else:
                    if isinstance(key, FooterKey):  # it would be laid out as compact first, and then as it is to be
                        key.set_reactive(FooterKey.compact, self.compact)
                    yield key
        yield from last
