"""The tab of events: what happened, in order."""

from __future__ import annotations

import time
from typing import Any

from textual.app import ComposeResult
from textual.widgets import RichLog

from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.sample_texts import plain


class EventsPane(Pane):
    """A line an event, but steps and phases."""

    def __init__(self) -> None:
        super().__init__()
        self._told = 0
        """Events that have been shown, of those the view has told."""

    def compose(self) -> ComposeResult:
        yield RichLog(id="event-log", classes="panel", wrap=True, markup=False, max_lines=2000)

    def show(self, view: RunView, info: RunInfo | None) -> None:
        log = self.query_one("#event-log", RichLog)
        if view.events_told < self._told:  # the log was begun anew
            log.clear()
            self._told = 0
        new = min(view.events_told - self._told, len(view.events))
        self._told = view.events_told
        for event in list(view.events)[len(view.events) - new :]:
            log.write(event_line(event))


def event_line(event: dict[str, Any]) -> str:
    """An event in a line: its time, its kind, and what it tells."""
    try:
        when = time.strftime("%H:%M:%S", time.localtime(event.get("time", 0)))
    except (TypeError, ValueError, OverflowError, OSError):  # of a damaged event
        when = "--:--:--"
    rest = {key: value for key, value in event.items() if key not in ("time", "kind") and value not in ("", None)}
    return plain(f"{when}  {event['kind']:<14} " + "  ".join(f"{key}={value}" for key, value in rest.items()))
