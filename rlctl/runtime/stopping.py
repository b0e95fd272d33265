"""What a run is asked to do: to end at once, or after the step it is in; to write a checkpoint after it.

end at once              SIGINT (Ctrl-C), SIGTERM
end after the step       the file ``stop`` in the run folder, a limit of time, a limit of steps
checkpoint, and go on    the file ``checkpoint`` in the run folder, which goes when the checkpoint is begun
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
CHECKPOINT_FILE = "checkpoint"
"""Its presence in the run folder asks the run to save after the current step, and go on."""


def forget_requests(folder: Path) -> None:
    """What was asked of a run that is over is not asked of the one that goes on."""
    for name in (STOP_FILE, CHECKPOINT_FILE):
        (folder / name).unlink(missing_ok=True)


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

    def checkpoint_asked(self) -> bool:
        """Whether to save when the current step is over."""
        return (self.folder / CHECKPOINT_FILE).exists()

    def checkpoint_begun(self) -> None:
        """What was asked is done."""
        (self.folder / CHECKPOINT_FILE).unlink(missing_ok=True)

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
