"""What every whole page is: laid out for the terminal's size from its first frame on."""

from __future__ import annotations

from textual.screen import Screen


class Page(Screen[None]):
    """A screen that fills the terminal."""

    def on_compose(self) -> None:
        """Take the classes of the terminal's size now: Textual sets them after the first frame, and styles all widgets again."""
        app, (width, height) = self.app, self.app.size
        across = app.HORIZONTAL_BREAKPOINTS if self.HORIZONTAL_BREAKPOINTS is None else self.HORIZONTAL_BREAKPOINTS
        down = app.VERTICAL_BREAKPOINTS if self.VERTICAL_BREAKPOINTS is None else self.VERTICAL_BREAKPOINTS
        for cells, breakpoints in ((width, across), (height, down)):
            if fitting := [each for each in breakpoints or [] if each[0] <= cells]:
                self.add_class(max(fitting)[1])

    def is_useless(self, action: str) -> bool:
        """Whether a key of this action does nothing here, so that the footer does not show it."""
        return False
