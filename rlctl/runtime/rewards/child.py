"""What runs in a scoring process: load a scorer, then score calls one after the other. See ``pool.py``.

Started as ``python -m rlctl.runtime.rewards.child FD``, where FD is its end of a socket. It sends ``Ready`` or an error once,
then for each list of calls one answer a call, in order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from multiprocessing.connection import Connection

from rlctl.common.errors import RlctlError
from rlctl.runtime.rewards.interface import Call, Failure, Loaded, Outcome, Ready
from rlctl.runtime.rewards.outcome import attempt, attempt_all

PARENT_POLL_SECONDS = 1.0


def main() -> None:
    """Serve until the parent closes the socket or is gone."""
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    try:
        loaded: Loaded = connection.recv().load()
    except RlctlError as error:
        connection.send(error)
        return
    connection.send(Ready(loaded.together is not None, os.getpid()))
    _serve(connection, loaded)


def _serve(connection: Connection, loaded: Loaded) -> None:
    this = os.getpid()
    while True:
        try:
            calls = connection.recv()
        except (EOFError, OSError):
            return
        for answer in _answers(loaded, calls):
            if os.getpid() != this:
                os._exit(0)  # a copy that the user's code made of this process, and let come back here
            connection.send(answer)


def _answers(loaded: Loaded, calls: Sequence[Call]) -> Iterable[Outcome | Failure]:
    """One by one, as they come, where the scorer scores so."""
    if loaded.together is not None:
        return attempt_all(loaded.together, calls)
    assert loaded.one is not None, "a scorer scores one by one or together"
    return map(partial(attempt, loaded.one), calls)


def _die_with_parent(parent: int) -> None:
    """End the process and what it started once its parent is gone, also while the user's code runs."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    if os.getpgrp() == os.getpid():  # the group is its own, as the pool starts it
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
