"""The tab of events: what happened, in order. Syncs with nothing between them are one line, written when something follows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.markup import escape
from textual.widgets import RichLog

from rlctl.common.messages.reasons import translated
from rlctl.monitor.watching import RunView
from rlctl.runs import RunInfo
from rlctl.tui.language import LANGUAGE, say
from rlctl.tui.panes.pane import Pane
from rlctl.tui.widgets.sample_texts import plain

COLORS = {"failure": "error", "advisory": "warning"}
"""Of the kinds of events that need attention."""
KIND_AT = 10
"""Cells before the kind of an event: its time."""
LONGEST = 100
"""Most characters of a mapping in a line."""


class EventsPane(Pane):
    """A line an event, but steps and phases; syncs that go on are counted below the list."""

    def __init__(self) -> None:
        super().__init__()
        self._told = 0
        """Events that have been shown, of those the view has told."""

    def compose(self) -> ComposeResult:
        yield RichLog(id="event-log", classes="panel", wrap=True, markup=False, min_width=1, max_lines=2000)

    def on_mount(self) -> None:
        self.query_one("#event-log").border_title = say("Events")

    def show(self, view: RunView, info: RunInfo | None) -> None:
        log = self.query_one("#event-log", RichLog)
        if view.events_told < self._told:  # the log was started again
            log.clear()
            self._told = 0
        events = list(view.events)
        waits = events.pop() if events and events[-1]["kind"] == "sync" else None  # more may join it
        told = view.events_told - (waits is not None)
        new = max(0, min(told - self._told, len(events)))
        self._told = max(told, self._told)
        colors = self.app.get_css_variables()
        for event in events[len(events) - new :]:
            log.write(_styled(event_line(event), str(event["kind"]), colors), expand=True)
        log.border_subtitle = escape(event_line(waits)) if waits is not None else ""


def event_line(event: dict[str, Any]) -> str:
    """An event in a line: its time, its kind, and what it tells."""
    try:
        when = time.strftime("%H:%M:%S", time.localtime(event.get("time", 0)))
    except (TypeError, ValueError, OverflowError, OSError):  # of a damaged event
        when = "--:--:--"
    rest = {key: value for key, value in event.items() if key not in ("time", "kind") and value not in ("", None)}
    if "first_step" in rest:
        rest |= {"step": f"{rest.pop('first_step')}-{rest.get('step', '')}"}
    told = "  ".join(f"{key}={_cut(value)}" for key, value in rest.items())
    return plain(f"{when}  {event['kind']:<14} {told}")


def _cut(value: Any) -> str:
    """A value for reading; the beginning of a long mapping, which events.jsonl has whole."""
    told = _short(value)
    return f"{told[:LONGEST]}…" if isinstance(value, dict) and len(told) > LONGEST else told


def _short(value: Any) -> str:
    """A value for reading: numbers with few digits, mappings and lists without quotes."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return f"({', '.join(f'{key} {_short(item)}' for key, item in value.items())})"
    if isinstance(value, list):
        return ", ".join(map(_short, value)) or "–"
    return translated(value, LANGUAGE) if isinstance(value, str) else str(value)


def _styled(line: str, kind: str, colors: Mapping[str, str]) -> Text:
    """A line with a dim time and a bold kind, which is red for failures and yellow for advice."""
    text = Text(line)
    text.stylize(colors["text-muted"], 0, KIND_AT)
    color = f" {colors[COLORS[kind]]}" if kind in COLORS else ""
    text.stylize(f"bold{color}", KIND_AT, KIND_AT + len(kind))
    return text
