"""Runs a command, and ends everything it started when it ends: ``python -I -S reaper.py [OPTION VALUE ...] -- COMMAND``.

    --held FD         wait until a byte can be read from FD (its limits are being set), then start
    --log FILE        what the command prints goes there
    --log-bytes N     a log this large is renamed to FILE.1, over an older one, and a new log is started
    --keep FD,...     descriptors that the command gets

The reaper is the "child subreaper" (prctl(2)) of the command: processes that the command leaves behind, in whatever session,
become children of the reaper. It finds and kills all of them when the command ends, when its own parent is gone, and on SIGTERM.
Then it ends as the command did. Standard library only; on systems without these calls it ends the command's session.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import time

_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 1.0
_CHUNK = 1 << 16
_ROUNDS = 1000
"""A process may fork while the others are killed; each round finds what the one before missed."""
_ROUND_SECONDS = 0.002
"""Between rounds: on a busy machine a killed process takes a moment to end."""


class Log:
    """A file of bounded size that several reapers append to."""

    def __init__(self, path: str, most: int) -> None:
        self.path, self.most = path, most
        self.fd = self._open()

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the command
            self._reopen(len(data))
            os.write(self.fd, data)

    def _reopen(self, more: int) -> None:
        """Rotate a log that is full; follow the rotation of another reaper."""
        if os.fstat(self.fd).st_size + more <= self.most and self._is_current():
            return
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        try:
            if self._is_current():
                os.replace(self.path, f"{self.path}.1")  # noqa: PTH105 - starts fast without pathlib
        finally:
            os.close(self.fd)  # and unlocks it
            self.fd = self._open()

    def _is_current(self) -> bool:
        try:
            here, there = os.fstat(self.fd), os.stat(self.path)  # noqa: PTH116 - as above
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - as above
                with open(f"/proc/{pid}/task/{task}/children") as file:  # noqa: PTH123 - as above
                    children = [int(child) for child in file.read().split()]
                found += children
                waiting += children
    return found


def kill_all(child: subprocess.Popen[bytes]) -> None:
    for number in range(_ROUNDS):
        if number:
            time.sleep(_ROUND_SECONDS)
        left = descendants(os.getpid())
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        if child.returncode is None:
            child.wait()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            return


def reap_others(child: subprocess.Popen[bytes]) -> None:
    """Wait for what was left to the reaper; the command itself is waited for by ``child``."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == child.pid:
                return
            os.waitpid(ended.si_pid, 0)


def main(words: list[str]) -> None:
    at = words.index("--")
    options = dict(zip(words[:at:2], words[1:at:2], strict=True))
    parent = os.getppid()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake, wake_theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(wake_theirs, False)
    signal.set_wakeup_fd(wake_theirs, warn_on_full_buffer=False)
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ending.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    if "--held" in options:
        os.read(int(options["--held"]), 1)
    log = Log(options["--log"], int(options["--log-bytes"])) if "--log" in options else None
    output = subprocess.PIPE if log else None
    keep = [int(fd) for fd in options.get("--keep", "").split(",") if fd]
    child = subprocess.Popen(
        words[at + 1 :],
        stdout=output,
        stderr=subprocess.STDOUT if log else None,
        pass_fds=keep,
        start_new_session=True,
    )
    for fd in keep:
        os.close(fd)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            poll.register(os.pidfd_open(parent), select.POLLIN)
    said = child.stdout.fileno() if child.stdout else -1
    if said >= 0:
        poll.register(said, select.POLLIN)
    while child.poll() is None and not ending and os.getppid() == parent:
        for fd, _ in poll.poll(_POLL_SECONDS * 1000):
            if fd == said:
                data = os.read(said, _CHUNK)
                if log and data:
                    log.write(data)
                else:
                    poll.unregister(said)
        with contextlib.suppress(OSError):
            os.read(wake, 512)
        reap_others(child)
    kill_all(child)
    _read_rest(said, log)
    status = child.returncode
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    os._exit(status)


def _read_rest(said: int, log: Log | None) -> None:
    """Pass on what the program printed at its end."""
    if log is None:
        return
    os.set_blocking(said, False)
    with contextlib.suppress(OSError):
        while data := os.read(said, _CHUNK):
            log.write(data)


if __name__ == "__main__":
    main(sys.argv[1:])
