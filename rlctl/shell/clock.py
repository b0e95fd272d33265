"""The time that a script is read at. A name with ``$(date)`` in it stays one name however often an open script is read again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_moment: ContextVar[float | None] = ContextVar("moment", default=None)


def now() -> float:
    """Seconds since 1970."""
    moment = _moment.get()
    return time.time() if moment is None else moment


@contextmanager
def at_moment(moment: float) -> Iterator[None]:
    """Within, scripts are read as at a moment."""
    token = _moment.set(moment)
    try:
        yield
    finally:
        _moment.reset(token)
