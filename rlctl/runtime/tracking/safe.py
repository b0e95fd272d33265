"""A tracker that cannot stop the run: its first error is reported, and it is used no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlctl.runtime.tracking.interface import Tracker


class SafeTracker:
    """Wraps a tracker.

    Args:
        name: of the tracker, for the report.
        tracker: what is wrapped.
        report: called once, with a sentence, when it fails.
    """

    def __init__(self, name: str, tracker: Tracker, report: Callable[[str], None]) -> None:
        self.name = name
        self._tracker: Tracker | None = tracker
        self._report = report

    @property
    def enabled(self) -> bool:
        """Whether it is still used."""
        return self._tracker is not None

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step."""
        self._guarded(lambda tracker: tracker.log(metrics, step=step), f"at step {step}")

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the settings of the run."""
        self._guarded(lambda tracker: tracker.log_config(config), "while it took the config")

    def close(self) -> None:
        """Send what is left and end."""
        self._guarded(lambda tracker: tracker.close(), "while it was closed")
        self._tracker = None

    def _guarded(self, action: Callable[[Tracker], None], when: str) -> None:
        if self._tracker is None:
            return
        try:
            action(self._tracker)
        except Exception as error:  # noqa: BLE001 - observability never stops training, whatever the service raises
            self._tracker = None
            self._report(f"the tracker {self.name} failed {when} and is not used any more: {describe(error)}")


def describe(error: BaseException) -> str:
    """An exception in one line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
