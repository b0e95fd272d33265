"""Starts the environments of an agent, each in a process forked from this one, which has imported their code. See ``hosting.py``.

Started as ``python -m rlctl.runtime.agents.environment_host CONTROL CHANNELS MIB`` with the pickled ``Task`` on standard input:

    CONTROL    a socket of JSON lines: {"start": 7} and {"kill": 7} to here; {"ready": true}, {"started": 7} and
               {"ended": 7, "status": 0, "memory": false} from here
    CHANNELS   a socket; each message is the descriptor of the channel of the next environment that is started
    MIB        the most memory that the process of an environment may have, 0 for any

An environment is asked over its channel, a JSON object a line: {"number": 1, "open": SEED}, {"number": 2, "act": TEXT} or
{"close": true}. It answers with {"number": 1, "observed": {...}} or {"number": 1, "failed": TEXT, "config": false}.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.runtime.agents.played import Failed, Loader, Played, Task, import_code
from rlctl.runtime.user_code import last_lines

POLL_SECONDS = 0.25
CLOSE_SECONDS = 10
"""How long an environment may take to close."""
LINE_BYTES = 16 << 20
"""The longest answer."""
PAGE = os.sysconf("SC_PAGE_SIZE")


class Starter:
    """Forks environments, and says how they ended."""

    def __init__(self, control: socket.socket, channels: socket.socket, most: int) -> None:
        self._control, self._channels, self._most = control, channels, most
        self._pids: dict[int, int] = {}
        """Of running environments, with the number of each."""
        self._over: set[int] = set()
        """Processes that were ended because they had too much memory."""
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self, task: Task) -> None:
        """Serve until the other end closes the socket, or is gone."""
        load = Loader()
        failed = _imported(task, load)
        self._tell({"ready": True})
        unread = b""
        while True:
            watched: list[Any] = [self._control, self._woken]
            ready, _, _ = select.select(watched, [], [], POLL_SECONDS if self._most else None)
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
            self._reap()
            self._check_memory()
            if self._control not in ready:
                continue
            data = _received(self._control)
            if not data:
                break
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                if "start" in asked:
                    self._start(asked["start"], task, load, failed)
                else:
                    self._kill(asked["kill"])
        for number in list(self._pids.values()):
            self._kill(number)

    def _start(self, number: int, task: Task, load: Loader, failed: Failed | None) -> None:
        _, (descriptor,), _, _ = socket.recv_fds(self._channels, 1, 1)
        pid = os.fork()
        if pid:
            os.close(descriptor)
            self._pids[pid] = number
            self._tell({"started": number})
            return
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            self._channels.close()
            os.close(self._woken)
            os.close(self._wake)
            play(socket.socket(fileno=descriptor), task, load, failed)
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(0)

    def _kill(self, number: int) -> None:
        for pid, each in self._pids.items():
            if each == number:
                _end_group(pid)

    def _reap(self) -> None:
        while self._pids:
            # Looked at first: the number of a process that was waited for may be another one's.
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            _end_group(ended.si_pid)  # what it started
            _, status = os.waitpid(ended.si_pid, 0)
            number = self._pids.pop(ended.si_pid, None)
            if number is not None:
                over = ended.si_pid in self._over
                self._tell({"ended": number, "status": os.waitstatus_to_exitcode(status), "memory": over})
            self._over.discard(ended.si_pid)

    def _check_memory(self) -> None:
        for pid in self._pids if self._most else ():
            with suppress(OSError):
                if int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE > self._most:
                    self._over.add(pid)
                    _end_group(pid)

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(ConnectionError):  # the other end is gone, as the next read says
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _end_group(pid: int) -> None:
    for end in (os.killpg, os.kill):  # it may not lead its group yet
        with suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _imported(task: Task, load: Loader) -> Failed | None:
    """Import the environment's code; why that fails."""
    try:
        import_code(task, load)
    except RunError as error:
        return Failed(str(error), is_config=True)
    except BaseException as error:  # noqa: BLE001 - code of the user's may raise anything
        return Failed(last_lines(error))
    return None


def play(channel: socket.socket, task: Task, load: Loader, failed: Failed | None) -> None:
    """Make one environment, and do what is asked of it."""
    pid, played = os.getpid(), None
    for asked in _asked(channel):
        if "close" in asked:
            signal.alarm(CLOSE_SECONDS)
            if played is not None:
                played.close()
            return
        try:
            if failed is None and "open" in asked:
                played = Played(task, load)
                found = played.reset(asked["open"])
            elif failed is None:
                assert played is not None, "it is opened first"
                found = played.act(asked["act"])
            told = {"failed": failed.text, "config": failed.is_config} if failed else _told(found)
        except RunError as error:
            told = {"failed": str(error), "config": True}
        except BaseException as error:  # noqa: BLE001 - an environment may raise anything, also SystemExit
            told = {"failed": last_lines(error), "config": False}
        if os.getpid() != pid:  # the environment forked, and both returned
            return
        with suppress(ConnectionError):  # the other end is gone, as the next read says
            channel.sendall(json.dumps({"number": asked["number"], **told}).encode() + b"\n")


def _told(found: Any) -> dict[str, Any]:
    told = {"observed": dataclasses.asdict(found)}
    size = len(json.dumps(told))
    if size > LINE_BYTES - 1000:
        raise ValueError(f"observation and info have {size:,} bytes; expected up to {LINE_BYTES - 1000:,}")
    return told


def _received(channel: socket.socket) -> bytes:
    """What came next; nothing if the other end is gone."""
    try:
        return channel.recv(1 << 16)
    except ConnectionError:
        return b""


def _asked(channel: socket.socket) -> Iterator[dict[str, Any]]:
    unread = b""
    while data := _received(channel):
        *lines, unread = (unread + data).split(b"\n")
        yield from map(json.loads, lines)


def main() -> None:
    """Read the task, and serve."""
    control, channels, most = (
        socket.socket(fileno=int(sys.argv[1])),
        socket.socket(fileno=int(sys.argv[2])),
        sys.argv[3],
    )
    task = pickle.load(sys.stdin.buffer)  # noqa: S301 - the agent worker wrote it
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    Starter(control, channels, int(most) << 20).serve(task)
    os._exit(0)


if __name__ == "__main__":
    main()
