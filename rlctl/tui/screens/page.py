"""What every whole page is: laid out for the terminal's width from its first frame on."""

from __future__ import annotations

from textual.screen import Screen


class Page(Screen[None]):
    """A screen that fills the terminal."""

    def on_compose(self) -> None:
        """Take the classes of the terminal's width now: Textual sets them at a resize, which comes after the first frame."""
        fitting = [each for each in self.HORIZONTAL_BREAKPOINTS or [] if each[0] <= self.app.size.width]
        if fitting:
            self.add_class(max(fitting)[1])

    def is_useless(self, action: str) -> bool:
        """Whether a key of this action does nothing here, so that the footer does not show it."""
        return False
