"""The line at the top of every screen: what is open at the left, its state at the right."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from rlctl.tui.language import shortened
from rlctl.tui.widgets.marks import marked


class Head(Widget):
    """The screen's title and sub-title, or the app's; the title is shortened if both don't fit."""

    DEFAULT_CSS = """
    Head { height: 1; dock: top; padding: 0 1; background: $background; }
    """

    def compose(self) -> ComposeResult:
        yield Static("", id="head-text")

    def on_mount(self) -> None:
        for node in (self.app, self.screen):
            self.watch(node, "title", self.draw, init=False)
            self.watch(node, "sub_title", self.draw, init=False)
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Show title and state as they are now."""
        title, state = self.app.title, ""
        if self.screen.title is not None:
            title = self.screen.title
        if self.screen.sub_title is not None:
            state = self.screen.sub_title
        room = max(1, self.app.size.width - 2)
        shown = shortened(title, max(8, room - cell_len(state) - 2))
        gap = " " * max(2, room - cell_len(shown) - cell_len(state))
        text = Content.assemble(marked(shown).stylize_before("bold"), gap, marked(state).stylize_before("$text-muted"))
        self.query_one("#head-text", Static).update(text, layout=False)
