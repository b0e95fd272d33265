"""How a run is asked to end: at once, or after the step it is in.

at once          SIGINT (Ctrl-C), SIGTERM
after the step   the file ``stop`` in the run folder, a limit of time, a limit of steps
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

STOP_FILE = "stop"
"""Its presence in the run folder asks the run to save and end after the current step."""


@dataclass
class StopSwitch:
    """Remembers that the run should end; asked by the loop between steps, and by whoever waits for workers."""

    folder: Path
    time_limit: float | None = None
    """Seconds after which the run ends by itself."""
    max_steps: int | None = None
    """Steps after which it does, counted from when this process began."""
    _steps: int = 0
    _now: bool = False
    _failed: bool = False
    _began: float = field(default_factory=time.monotonic)

    def now(self) -> bool:
        """Whether to end at once, leaving the current step."""
        return self._now or self._failed

    def fail(self, failed: bool = True) -> None:
        """Ask whoever waits to end at once, as work in the background has failed; False once that was told."""
        self._failed = failed

    def step_over(self) -> None:
        """Count a step."""
        self._steps += 1

    def after_step(self) -> bool:
        """Whether to save and end when the current step is over."""
        overdue = self.time_limit is not None and time.monotonic() - self._began > self.time_limit
        enough = self.max_steps is not None and self._steps >= self.max_steps
        return self._now or overdue or enough or (self.folder / STOP_FILE).exists()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as "at once"; a second one raises KeyboardInterrupt where the program is.

        Outside of the main thread, where signals cannot be taken, nothing is changed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._now:
            raise KeyboardInterrupt
        self._now = True
