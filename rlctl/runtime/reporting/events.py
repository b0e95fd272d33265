"""The run folder as the runtime writes it: ``events.jsonl``, append-only, one JSON object a line.

    {"time": 1763712000.1, "kind": "step", "stage": "grpo", "step": 3, "total_steps": 50, "metrics": {...}}

Whoever watches a run reads this file; nothing is ever asked of the run itself. Writing an event never stops training: a full
disk is told once to whoever listens in the process, and the next checkpoint reports it as an error.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.messages.recorded import with_templates
from rlctl.common.secrets import without_secrets

Kind = Literal[
    "run_started",
    "resumed",
    "changes_accepted",
    "data_operators",
    "stage_started",
    "phase",
    "phase_ended",
    "step",
    "evaluation",
    "checkpoint",
    "sync",
    "samples",
    "advisory",
    "failure",
    "stage_ended",
    "run_ended",
]
Observer = Callable[[dict[str, Any]], None]
NOTHING: Mapping[str, Any] = {}


class Events:
    """Appends events to a file and hands them to an observer in the same process."""

    def __init__(self, path: Path, observer: Observer) -> None:
        """Open the log, after what an earlier attempt of the run left in it.

        Raises:
            RunError: it cannot be written.
        """
        try:
            _cut_unfinished_line(path)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise RunError(
                said("{path} cannot be written: {strerror}", path=path, strerror=error.strerror),
                hint="choose another run.folder",
            ) from error
        self._observer = observer
        self._stage: dict[str, Any] = {}
        self._broken = False
        self._one_at_a_time = threading.RLock()

    def enter_stage(self, name: str) -> None:
        """Name the stage that further events belong to."""
        self._stage = {"stage": name}

    def emit(self, kind: Kind, *, beside: Mapping[str, Any] = NOTHING, **data: Any) -> None:
        """Write one event; ``beside`` is for the observer only: the run folder has it in a file of its own."""
        with self._one_at_a_time:  # rollout in the background has things to tell too
            told = {name: without_secrets(value) if isinstance(value, str) else value for name, value in data.items()}
            event = {"time": time.time(), "kind": kind, **self._stage, **_finite(told)}
            self._write(event)
            self._observer({**event, **_finite(dict(beside))})

    def advise(self, message: str, hint: str = "") -> None:
        """Tell people something that does not end the run."""
        self.emit("advisory", message=message, hint=hint)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Tell that a phase outside of the steps began, and how long it took."""
        began = time.perf_counter()
        self.emit("phase", name=phase)
        yield
        self.emit("phase_ended", name=phase, seconds=time.perf_counter() - began)

    def _write(self, event: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(with_templates(event), ensure_ascii=False, default=str) + "\n")
            self._file.flush()
        except OSError as error:
            if not self._broken:
                self._broken = True
                self._observer(
                    {
                        **event,
                        "kind": "advisory",
                        "message": said("events.jsonl cannot be written: {error}", error=error),
                    }
                )

    def close(self) -> None:
        """Make what was written durable; what cannot be written was told at the first event."""
        with suppress(OSError):
            os.fsync(self._file.fileno())
        with suppress(OSError):  # it tries once more
            self._file.close()


def _cut_unfinished_line(path: Path) -> None:
    """Remove what a crash left of a line, so that the next event does not become a part of it."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 20))
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            end = start if newline < 0 else start + newline + 1
            if newline >= 0:
                break
        if end < size:
            file.truncate(end)


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(value) if _are_finite(value) else [_finite(item) for item in value]
    return value


def _are_finite(values: Sequence[Any]) -> bool:
    """Whether these are numbers, and all finite: then so is their sum, unless it is too large. Most are, and they are many."""
    try:
        return math.isfinite(sum(values))
    except (TypeError, ValueError, OverflowError):
        return False
