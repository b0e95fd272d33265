"""Waiting in tests: for what another thread or process does in its own time, which load makes longer."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def until(holds: Callable[[], object], missing: str, *, seconds: float = 60.0, every: float = 0.02) -> None:
    """Return as soon as something holds; after so many seconds, fail with what is missing."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"after {seconds:g} s: {missing}"
        time.sleep(every)


def has_ended(pid: int) -> bool:
    """Whether a process has ended, waited for or not; it may end while this looks."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
