"""What stands beside the form: a pane reads the session in a thread and shows what it found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.containers import Vertical
from textual.message import Message

from rlctl.documents import KeyPath
from rlctl.editing.session import Change, Session


class EditorPane(Vertical):
    """A pane beside the form."""

    class Jump(Message):
        """A person wants to see the field of a key."""

        def __init__(self, path: KeyPath) -> None:
            self.path = path
            super().__init__()

    class Ask(Message):
        """A person wants to state a fact that something hangs on."""

        def __init__(self, fact: str) -> None:
            self.fact = fact
            super().__init__()

    class Apply(Message):
        """A person wants changes made that a pane proposes, as one thing to undo."""

        def __init__(self, changes: Sequence[Change]) -> None:
            self.changes = changes
            super().__init__()

    def read(self, session: Session) -> Any:
        """What is to be shown; in a thread, so no widget is touched."""
        raise NotImplementedError

    def take(self, found: Any) -> None:
        """Show what ``read`` found."""
        raise NotImplementedError
