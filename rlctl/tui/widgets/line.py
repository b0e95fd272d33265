"""A line of text that keeps the order of the keys, however fast they come."""

from __future__ import annotations

from textual.binding import Binding
from textual.events import Key
from textual.widgets import Input

_OWN = frozenset(binding.key for binding in Binding.make_bindings(Input.BINDINGS)) - {"enter"}
"""Keys of an input, without those that scroll: it has one line, and they are for what is around it."""


class Line(Input):
    """An input that does at once what its own keys do.

    Textual lets a key that is no letter climb to the app and come back as an action. Letters typed meanwhile overtake it: of
    backspace and ``7`` on a busy machine, the backspace may take the ``7``. Enter climbs as Tab does, so that it stays behind it.
    """

    async def _on_key(self, event: Key) -> None:
        if event.is_printable or event.key not in _OWN:
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            event.stop()
            event.prevent_default()
            await self.run_action(binding.action)
            return
