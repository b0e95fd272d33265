"""What every tab of the monitor is: a widget that is shown a run once a poll while it is in sight."""

from __future__ import annotations

from textual.containers import Vertical

from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo


class Pane(Vertical):
    """One side of a run. Its own keys are its BINDINGS, its own look its DEFAULT_CSS."""

    def show(self, view: RunView, info: RunInfo | None) -> None:
        """Show the run as it is now: on every poll while the pane is in sight, and when it comes into sight.

        Args:
            view: what its log says; its content changes only between calls, and another run begun in the folder empties it.
            info: what run.json says; None where it cannot be read.
        """
        raise NotImplementedError

    def focus_first(self) -> None:
        """Where keys go when the pane comes into sight: the first thing in it that takes them."""
        for widget in self.query("*"):
            if widget.focusable:
                self.screen.set_focus(widget)
                return
