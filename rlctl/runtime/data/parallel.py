"""Work on ranges of rows in other processes: measuring prompts before a run.

Processes are started anew, never forked: the controller holds threads and locks of Ray and torch. They end with the process
that started them, whatever ends it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.own_python import safe_children

T = TypeVar("T")


def over_ranges(work: Callable[[int, int], T], rows: int, size: int, *, processes: int, key: str) -> Iterator[T]:
    """Yield ``work(start, stop)`` of each range of ``size`` rows, in order.

    Args:
        work: a function that can be pickled; what it raises is raised here.
        rows: how many there are.
        size: rows of a range.
        processes: at most so many; no more than there are cores or ranges, and none beside this one where that is one.
        key: that names the number, for a message.

    Raises:
        RunError: a process ended before its work was done.
    """
    starts = range(0, rows, size)
    stops = [min(start + size, rows) for start in starts]
    processes = min(processes, os.cpu_count() or 1, len(starts))
    if processes <= 1:
        yield from map(work, starts, stops)
        return
    with safe_children():
        pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_serve)
        answers = pool.map(work, starts, stops)  # starts the processes
    with pool:
        try:
            yield from answers
        except BrokenProcessPool as error:
            raise RunError(
                said(
                    "one of {processes} processes that read the data ended before it finished: {error}",
                    processes=processes,
                    error=error,
                ),
                hint=said("it may have run out of memory; lower {key}", key=key),
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _serve() -> None:
    """Leave interrupts to the parent, end with it, and leave the cores to the other processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
    os._exit(1)
