"""What every box over a screen has in common."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Dialog(ModalScreen[ScreenResultType]):
    """A box over a screen, which is closed once.

    Textual's ``dismiss`` takes away whatever screen is uppermost: a second key or click that was on its way to a closed box would
    close the screen below it, and a third one would end the app.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()
