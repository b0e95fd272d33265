"""What screens ask of the app that shows them: to open another page, to leave theirs, and what was started from here.

Screens know the app by this protocol only, so that the app may import them and they need not import the app.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from textual.screen import Screen

    from rlctl.editing.session import Session
    from rlctl.runs.launching import Launched
    from rlctl.runs.record import Status

Opening = Callable[[dict[str, str]], "Session"]
"""Opens a config, with what the user says of it: variables and arguments of a launch script."""


class Navigation(Protocol):
    """The app, as its screens see it."""

    runs_folder: Path
    launched: list[Launched]
    watched: set[Path]
    machines: str
    """What configs are planned for, as ``2x8:H100``; empty if that is not known."""

    def watch_run(self, folder: Path) -> None: ...

    def edit(
        self, name: str, opening: Opening, given: dict[str, str] | None = None, *, changed: bool = False
    ) -> None: ...

    def edit_file(self, path: Path) -> None: ...

    def edit_preset(self, name: str) -> None: ...

    def leave_screen(self, left: Screen[Any]) -> None: ...

    def tell_ended(self, name: str, status: Status) -> None: ...


def navigation(app: object) -> Navigation:
    """The app of a screen or a widget, for what only rlctl's has."""
    return cast(Navigation, app)
