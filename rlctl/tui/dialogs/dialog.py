"""What every box over a screen has in common."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import ClassVar

from textual import on
from textual.await_complete import AwaitComplete
from textual.events import Mount
from textual.screen import ModalScreen, ScreenResultType

STREAM_SECONDS = 0.3
"""How long a box still takes no keys after one that it ignored: what is typed in one go goes on coming."""


class Dialog(ModalScreen[ScreenResultType]):
    """A box over a screen, which is closed once, and takes no keys before it can have been read.

    Textual's ``dismiss`` takes away whatever screen is uppermost: a second key or click that was on its way to a closed box would
    close the screen below it, and a third one would end the app.
    """

    DEAF_SECONDS: ClassVar[float] = 0.5
    """How long it ignores keys once it is seen: what was typed for the screen below is no answer. 0 where keys do no harm."""

    def __init__(self) -> None:
        super().__init__()
        self._deaf_until = inf

    @on(Mount)
    def _begin_deaf(self) -> None:
        self.call_after_refresh(self.be_deaf)

    @staticmethod
    def clock() -> float:
        """The time in seconds."""
        return monotonic()

    def be_deaf(self) -> None:
        """Ignore keys for a moment from now on, as something new is to be read."""
        self._deaf_until = self.clock() + self.DEAF_SECONDS

    def is_deaf(self) -> bool:
        """Whether a key that comes now is ignored."""
        now = self.clock()
        if not self.DEAF_SECONDS or now >= self._deaf_until:
            return False
        self._deaf_until = max(self._deaf_until, now + STREAM_SECONDS)
        return True

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()
