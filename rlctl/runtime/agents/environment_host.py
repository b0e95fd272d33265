"""What runs in a process of environments: it makes, resets, steps and closes them, each in a thread. See ``hosting.py``.

Started as ``python -m rlctl.runtime.agents.environment_host FD``, where FD is its end of a socket. Messages are
``(number, operation, environment, arguments)``; each is answered once with ``(number, result or Failed)``, in any order.
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
from typing import Any

from rlctl.runtime.agents.played import Held

THREADS = 64
PARENT_POLL_SECONDS = 1.0


def main() -> None:
    """Serve until the parent closes the socket or is gone."""
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
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


def _die_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
