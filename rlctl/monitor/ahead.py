"""A long log, read in a separate process, so that the process that draws can draw meanwhile.

    with reading_ahead(folder) as batches:
        for view.log, batch in batches:
            view.take(batch)

Python runs one thread of a process at a time, so a thread that parses 100 MiB takes turns with keys and frames. If the process
cannot start or is killed, the batches end early, and the caller continues from ``view.log``.
"""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rlctl.common import own_python
from rlctl.monitor.log import EventLog
from rlctl.monitor.watching import Batch, RunView

PIPE_BYTES = 1 << 20
"""What the process may be ahead of its reader, which draws the first frame: the most that Linux gives everyone."""

Batches = Iterator[tuple[EventLog, Batch]]


@contextmanager
def reading_ahead(folder: Path) -> Iterator[Batches]:
    """Read the log of a run in another process: batches of its events, each with the log's position after it."""
    command = own_python.module(__name__, str(folder))
    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null, pipesize=PIPE_BYTES)
    except OSError:  # no memory, or too many processes
        yield iter(())
        return
    with process:
        try:
            assert process.stdout is not None
            yield _received(process.stdout)
        finally:
            process.kill()


def _received(source: IO[bytes]) -> Batches:
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(source)  # noqa: S301 - of our own process


def write_batches(folder: Path, out: IO[bytes]) -> None:
    """Write what the log of a run holds now.

    Raises:
        OSError: the log cannot be read, or the reader has ended.
    """
    view = RunView(folder)
    while (batch := view.read()).bytes:
        pickle.dump((view.log, batch), out, pickle.HIGHEST_PROTOCOL)
        out.flush()


if __name__ == "__main__":
    gc.disable()  # nothing in here is a cycle
    with suppress(OSError):
        write_batches(Path(sys.argv[1]), sys.stdout.buffer)
