"""What runs in a process of environments: it makes, resets, steps and closes them, each in a thread. See ``hosting.py``.

Started as ``python -m rlctl.runtime.agents.environment_host FD MIB``: FD is its end of a socket, MIB the most memory that the
process may have, 0 for any. Messages are ``(number, operation, environment, arguments)``; each is answered once with
``(number, result or Failed)``, in any order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rlctl.runtime.agents.played import Held

THREADS = 64
POLL_SECONDS = 0.25
OUT_OF_MEMORY = 77
"""Its exit status if it needs more memory than it may."""
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Serve until the parent closes the socket or is gone, or the environments need too much memory."""
    threading.Thread(target=_watch, args=(os.getppid(), int(sys.argv[2]) << 20), daemon=True).start()
    connection, held, sending = Connection(int(sys.argv[1])), Held(), threading.Lock()
    threads = ThreadPoolExecutor(THREADS)

    def answer(number: int, operation: str, environment: int, arguments: Sequence[Any]) -> None:
        result = held.do(operation, environment, arguments)
        with sending:
            connection.send((number, result))

    while True:
        try:
            number, operation, environment, arguments = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # environments that hang must not keep the process
        if operation == "ping":
            with sending:
                connection.send((number, None))
        else:
            threads.submit(answer, number, operation, environment, arguments)


def _watch(parent: int, most: int) -> None:
    statm = Path("/proc/self/statm")
    while os.getppid() == parent:
        if most and int(statm.read_bytes().split()[1]) * PAGE > most:
            os._exit(OUT_OF_MEMORY)
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
