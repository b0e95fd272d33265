"""A child process that leads a session of its own: how it ended, and ending it with all that it started.

The system gives the number of a process that was waited for to another one, whose group a late signal would kill. So a child is
only looked at (``WNOWAIT``) until its group is ended. Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time

LONGEST_PAUSE = 0.05
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT


def status_of(process: subprocess.Popen[bytes], within: float = 0.0) -> int | None:
    """The status a child ended with, less than 0 for a signal; None where it goes on for so many seconds."""
    deadline, pause = time.monotonic() + within, 0.0005
    while process.returncode is None:
        try:
            ended = os.waitid(os.P_PID, process.pid, _LOOK)
        except ChildProcessError:  # somebody else waited for it
            return process.wait()
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)
    return process.returncode


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and its group; nothing where that was done, or the child is no longer ours."""
    status_of(process)
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()  # it does not lead its group yet
    process.wait()
