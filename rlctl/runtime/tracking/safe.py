"""A tracker that can neither stop the run nor hold it up.

It lives in a thread of its own, where what is sent to it waits in a queue, so a slow service holds no step. Its first error is
told once, by the run's own thread, and it is used no more. At the end it has some seconds to send what is left.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rlctl.common.errors import RlctlError
from rlctl.common.messages.reasons import said
from rlctl.runtime.tracking.interface import ShownResponse, Tracker

BACKLOG = 10_000
"""Calls that may wait; a service that is further behind is given up."""
START, PATIENCE, HURRY = 20.0, 60.0, 3.0
"""Seconds that a tracker is waited for: to start, to send what is left at the end of a stage, and when the run fails."""

_Action = Callable[[Tracker], None]


class SafeTracker:
    """Wraps a tracker; as a context it is closed at its end, in a hurry where that is an error.

    Args:
        name: of the tracker, for the report.
        make: makes what is wrapped.
        report: called once, with a sentence, when it fails; by the thread that sends and closes.

    Raises:
        RlctlError: what ``make`` refuses, as a package that is not installed. A start that takes long goes on by itself.
    """

    def __init__(self, name: str, make: Callable[[], Tracker], report: Callable[[str], None]) -> None:
        self.name = name
        self._make = make
        self._report = report
        self._started = threading.Event()
        self._refusal: RlctlError | None = None
        self._waiting: queue.Queue[tuple[_Action, str] | None] = queue.Queue(BACKLOG)
        self._failure = ""
        self._told = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()
        self._started.wait(START)
        if self._refusal is not None:
            raise self._refusal
        self._tell()

    @property
    def enabled(self) -> bool:
        """Whether it is still used."""
        return not self._failure and not self._closed

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step."""
        metrics = dict(metrics)
        self._send(lambda tracker: tracker.log(metrics, step=step), said("at step {step}", step=step))

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        """Send some responses of a step, for people."""
        responses = list(responses)
        self._send(lambda tracker: tracker.log_responses(name, responses, step=step), said("at step {step}", step=step))

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the settings of the run."""
        self._send(lambda tracker: tracker.log_config(config), "while it received the config")

    def close(self, patience: float = PATIENCE) -> None:
        """Send what is left and end; after ``patience`` seconds it is left behind."""
        if not self._closed:
            self._send(lambda tracker: tracker.close(), "while it was closed")
            self._closed = True
            if self._thread.is_alive():
                self._put(None)
            self._thread.join(0 if self._failure else patience)
            if self._thread.is_alive() and not self._failure:
                self._failure = said(
                    "did not finish uploading within {patience:g} s after the end; the rest is lost", patience=patience
                )
        self._tell()

    def __enter__(self) -> SafeTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close(PATIENCE if kind is None else HURRY)

    def _send(self, action: _Action, when: str) -> None:
        if self.enabled:
            self._put((action, when))
        self._tell()

    def _put(self, item: tuple[_Action, str] | None) -> None:
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            self._failure = said("is {count} calls behind; rlctl stops using it", count=BACKLOG)

    def _tell(self) -> None:
        """Report from the thread that uses this object: the event log has one writer."""
        if self._failure and not self._told:
            self._told = True
            self._report(said("the tracker {name} {failure}", name=self.name, failure=self._failure))

    def _work(self) -> None:
        try:
            tracker = self._make()
        except RlctlError as error:
            self._refusal = error
            self._failure = said("failed to start; the run continues without it: {error}", error=error.account)
        except BaseException as error:  # noqa: BLE001 - a service that cannot be reached does not stop the run
            self._failure = said("failed to start; the run continues without it: {error}", error=describe(error))
        self._started.set()
        while not self._failure and (item := self._waiting.get()) is not None:
            action, when = item
            try:
                action(tracker)
            except BaseException as error:  # noqa: BLE001 - observability never stops training, whatever the service raises
                self._failure = said(
                    "failed {when}; the run continues without it: {error}", when=when, error=describe(error)
                )


def describe(error: BaseException) -> str:
    """An exception in one line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
