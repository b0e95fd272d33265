"""Imports everything once, then runs each order it is given in a fork of itself, which may be killed. See ``test_killed.py``.

An order is a line of JSON: a config, and when the fork is to be killed: so many seconds (``after``) after the event ``at``,
which is its number, from 0, or (kind, stage, step, phase).
The answer is a line too: the exit code of the fork.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import datasets  # noqa: F401 - imported before a fork, so that no fork has to
import transformers.models.auto.modeling_auto  # noqa: F401
from local import launch_here  # type: ignore[import-not-found]

from rlctl.config import config_from


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _fork(order)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _fork(order: dict[str, Any]) -> None:
    """Run the config; never returns."""
    log = os.open(Path(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (0, 1, 2):
        os.dup2(log, stream)

    at, seen = order["at"], itertools.count()

    def observe(event: dict[str, Any]) -> None:
        nonlocal at
        here = [event["kind"], event.get("stage"), event.get("step"), event.get("name")]
        if at == next(seen) or (isinstance(at, list) and here[: len(at)] == at):
            at = None
            _kill_this(order["after"])

    try:
        result = launch_here(config_from(order["config"]), observe)
        print(result.status, result.cause)
        os._exit(0 if result.status == "finished" else 1)
    except BaseException:  # noqa: BLE001 - whatever it is must end this fork, not go on as its parent
        traceback.print_exc()
        os._exit(9)


def _kill_this(after: float) -> None:
    """Kill this process, now or from a process beside it, which its own threads and locks cannot delay."""
    here = os.getpid()
    if after:
        if os.fork():
            return
        os.closerange(3, 4096)  # among them the lock of the folder: the next run takes it before this process is gone
        time.sleep(after)
    os.kill(here, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
