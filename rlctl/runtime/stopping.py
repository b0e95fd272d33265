"""What a run is asked to do: to end at once, or after the step it is in; to write a checkpoint after it.

end at once              SIGINT (Ctrl-C), SIGTERM, SIGHUP (its terminal is gone; under nohup it is not taken)
end after the step       the file ``stop`` in the run folder, a limit of time, a limit of steps
checkpoint, and go on    the file ``checkpoint`` in the run folder, which goes when the checkpoint is begun
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rlctl.common.messages.reasons import said

STOP_FILE = "stop"
"""Its presence in the run folder asks the run to save and end after the current step."""
CHECKPOINT_FILE = "checkpoint"
"""Its presence in the run folder asks the run to save after the current step, and go on."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Those that ask the run to end at once."""


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
    _signals: int = 0
    """That came so far."""
    _raising: int | None = None
    """The signal, counted from the first, from which on they raise KeyboardInterrupt; None is none."""
    _failed: bool = False
    _before: dict[int, Any] = field(default_factory=dict)
    """Who takes signals otherwise."""
    _tell: Callable[[str], None] = lambda message: None
    _telling: threading.Thread | None = None
    _began: float = field(default_factory=time.monotonic)

    def now(self) -> bool:
        """Whether to end at once, leaving the current step."""
        return self._signals > 0 or self._failed

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
        return self._signals > 0 or overdue or enough or (self.folder / STOP_FILE).exists()

    def checkpoint_asked(self) -> bool:
        """Whether to save when the current step is over."""
        return (self.folder / CHECKPOINT_FILE).exists()

    def checkpoint_begun(self) -> None:
        """What was asked is done."""
        (self.folder / CHECKPOINT_FILE).unlink(missing_ok=True)

    @contextmanager
    def on_signals(self, tell: Callable[[str], None] = lambda message: None) -> Iterator[None]:
        """Take signals as "at once": who waits for workers asks ``now``, and all is put away, whatever further signals come.

        Outside of the main thread, where signals cannot be taken, nothing is changed.

        Args:
            tell: is told of the first one, from a thread of its own.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._tell = tell
        self._before = {
            number: handler for number in SIGNALS if (handler := signal.getsignal(number)) != signal.SIG_IGN
        }
        self.take_signals()
        try:
            yield
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before = {}
            if self._telling is not None:
                self._telling.join()

    def take_signals(self) -> None:
        """Within ``on_signals``, take them again from whoever has taken them meanwhile, as Ray does with SIGTERM."""
        for number in self._before:
            signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._raising is not None and self._signals >= self._raising:
            raise KeyboardInterrupt
        if self._signals == 1:
            told = said(
                "{name}: the run stops now; work after the last checkpoint is repeated on resume",
                name=signal.Signals(number).name,
            )
            self._telling = threading.Thread(target=self._tell, args=(told,))
            self._telling.start()

    @contextmanager
    def interrupted_by(self, number: int) -> Iterator[None]:
        """Within, so many signals raise KeyboardInterrupt where the program is.

        Args:
            number: 1 where nobody asks ``now`` and nothing would be lost, 2 where somebody should and may not come to it.

        Raises:
            KeyboardInterrupt: they came before.
        """
        if self._signals >= number:
            raise KeyboardInterrupt
        self._raising = number
        try:
            yield
        finally:
            self._raising = None
