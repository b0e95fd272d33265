"""What a person does to a run from the monitor: each asks first, and nothing is done where it is only watched."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from rlctl import runs
from rlctl.errors import RlctlError
from rlctl.tui.language import say
from rlctl.tui.screens.ask import AskScreen


class RunActions(Screen[None]):
    """A screen that has a run, and the keys that act on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("S", "stop", say("Stop"), id="run.stop", tooltip=say("End the run after its step, with a checkpoint")),
    ]

    def __init__(self, folder: Path, *, readonly: bool) -> None:
        super().__init__()
        self.folder, self.readonly = folder, readonly
        self.info: runs.RunInfo | None = None
        """What run.json said at the last poll; None where it could not be read."""

    def action_stop(self) -> None:
        if self.readonly:
            self.notify(say("opened to watch only"), severity="warning")
        elif self.info is None or self.info.status != "running":
            self.notify(say("the run is not running"))
        else:
            question = say("Stop {name} after its step, with a checkpoint to go on from?").format(name=self.info.name)
            self.app.push_screen(AskScreen(question, say("Stop")), lambda yes: self._stop() if yes else None)

    def _stop(self) -> None:
        try:
            if self.info is not None:
                runs.stop(self.info)
                told = say("{name} ends after its step; rlctl runs resume {folder} goes on")
                self.notify(told.format(name=self.info.name, folder=self.folder), markup=False)
        except RlctlError as error:
            self.notify(str(error), severity="error", markup=False)
