"""What every whole page is: laid out for the terminal's size from its first frame on."""

from __future__ import annotations

import asyncio

from textual import on
from textual.events import Resize, ScreenResume
from textual.geometry import Size
from textual.screen import Screen


class Page(Screen[None]):
    """A screen that fills the terminal."""

    _laid_out: Size | None = None
    """The size that the last resize was to."""

    def on_compose(self) -> None:
        """Take the classes of the terminal's size now: Textual sets them after the first frame, and styles all widgets again."""
        self.update_classes(self._classes_of(self.app.size), animate=False)

    @on(ScreenResume)
    def _keep_styles(self, event: ScreenResume) -> None:
        """Draw the first frame with the styles that widgets got when they were mounted: Textual styles all of them again."""
        event.refresh_styles = event.refresh_styles and self._laid_out is not None

    @on(Resize)
    async def _fit(self, event: Resize) -> None:
        """Take the classes of the new size now: Textual draws a whole frame of the old ones first.

        Laying out tells the screen its own size once more; it is not laid out again for that.
        """
        if event.size == self._laid_out:
            event.prevent_default()
            return
        self._laid_out = event.size
        self.update_classes(self._classes_of(event.size), animate=False)
        await asyncio.sleep(0)  # a turn for keys between styling and drawing

    def _classes_of(self, size: Size) -> dict[str, bool]:
        """Which class of each kind fits a size."""
        app, classes = self.app, dict[str, bool]()
        across = app.HORIZONTAL_BREAKPOINTS if self.HORIZONTAL_BREAKPOINTS is None else self.HORIZONTAL_BREAKPOINTS
        down = app.VERTICAL_BREAKPOINTS if self.VERTICAL_BREAKPOINTS is None else self.VERTICAL_BREAKPOINTS
        for cells, breakpoints in ((size.width, across or []), (size.height, down or [])):
            fitting = [each for each in breakpoints if each[0] <= cells]
            classes |= {name: bool(fitting) and name == max(fitting)[1] for _, name in breakpoints}
        return classes

    def is_useless(self, action: str) -> bool:
        """Whether a key of this action does nothing here, so that the footer does not show it."""
        return False
