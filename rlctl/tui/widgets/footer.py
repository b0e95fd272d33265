"""The footer: the keys that work where the cursor is, those of the focused panel first, and help at its right end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from rlctl.common.language import later
from rlctl.tui.language import say

if TYPE_CHECKING:
    from textual.binding import ActiveBinding, Binding

TEXTUALS = (later("Dismiss menu"), later("Exit the command palette"))
"""What Textual's own widgets call their keys."""
HELP = "help"
"""The action that keeps its place however narrow the terminal is."""


class Footer(Static):
    """One line of keys. A key that is clicked is pressed."""

    DEFAULT_CSS = """
    Footer {
        dock: bottom; height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: clip;
        background: $footer-background; color: $footer-description-foreground;
    }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.auto_links = False  # Textual would give all of a link's text one style, and underline it
        self._shown: tuple[list[tuple[str, str]], int] = ([], 0)
        """The keys and the width that are drawn."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _changed(self, screen: Screen[object]) -> None:
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        """Show the keys, as many as there is room for; nothing is laid out again for the same ones."""
        if not self.is_attached:
            return
        keys, width = list(self._keys()), self.size.width
        told = [(display, name) for display, name, _, _ in keys]
        if (told, width) == self._shown:
            return
        self._shown = told, width
        last = [part for part in keys if part[3] == HELP][:1]
        room = width - sum(_width(part) for part in last) - 2
        parts: list[Content] = []
        used = 0
        for part in keys:
            if part in last:
                continue
            if used + _width(part) > room:
                break
            used += _width(part) + 2
            parts.append(_text(part))
        left = Content("  ").join(parts)
        gap = " " * max(2, width - left.cell_length - sum(_width(part) for part in last))
        self.update(Content.assemble(left, gap, *(_text(part) for part in last)), layout=False)

    def _keys(self) -> Iterator[tuple[str, str, str, str]]:
        """Of each action that has a key here: the key as shown, the name, the key, the action."""
        focused = self.screen.focused
        is_text = focused is not None and focused.check_consume_key("a", "a")
        groups: dict[str, list[ActiveBinding]] = {}
        for active in self.screen.active_bindings.values():
            groups.setdefault(active.binding.action, []).append(active)
        is_useless = getattr(self.screen, "is_useless", None)
        for action, known in groups.items():
            if is_useless is not None and is_useless(action):
                continue
            if not any(active.binding.show and active.binding.description for active in known):
                continue
            works = [
                active.binding for active in known if active.enabled and not (is_text and _is_letter(active.binding))
            ]
            works.sort(key=lambda binding: not binding.show)
            if works:
                name = next(active.binding.description for active in known if active.binding.show)
                yield self.app.get_key_display(works[0]), say(name), works[0].key, action


def _is_letter(binding: Binding) -> bool:
    """Whether the key is text in a field."""
    key = binding.key
    return len(key) == 1 or key in (
        "slash",
        "question_mark",
        "colon",
        "space",
        "left_square_bracket",
        "right_square_bracket",
    )


def _width(part: tuple[str, str, str, str]) -> int:
    return cell_len(part[0]) + 1 + cell_len(part[1])


def _text(part: tuple[str, str, str, str]) -> Content:
    display, name, key, _ = part
    click = f"app.simulate_key('{key}')"
    return Content.assemble((display, "$footer-key-foreground bold"), " ", name).stylize(f"@click={click}")
