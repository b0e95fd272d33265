"""A program while it runs: it is started with its limits, watched, and ended together with everything it started.

    here                                         in the sandbox
    Process ──bwrap──▶ first process (bwrap) ──▶ program ──▶ whatever it starts
       │  every 20 ms: memory and processes of the tree           │
       └─ output, up to a limit ◀─────────────────────────────────┘

The kernel's limits hold for each process (address space, file size) or for a user (number of processes). The limits of the whole
tree are checked from outside, where the program cannot reach, and by the kernel too if a control group can be made. Ending the
first process ends its PID namespace, so nothing survives it. Without isolation ``reaper.py`` is the first process, and ends
what it can find.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from rlctl.common import own_python
from rlctl.common.errors import SandboxUnavailable
from rlctl.sandbox import bubblewrap, cgroup, usage
from rlctl.sandbox.profile import Profile
from rlctl.sandbox.seccomp import seccomp_filter

SAMPLE_SECONDS = 0.02
"""Between two looks at what a program uses. A program that takes 2 GB/s passes its limit by 40 MB before it is ended."""
REAPER = Path(__file__).with_name("reaper.py")
_START_SECONDS = 30.0
_END_SECONDS = 10.0
_CHUNK = 1 << 16
_OPEN_FILES = 256
_COUNTS_BY_NAMESPACE = (5, 14)
"""From this Linux on ``RLIMIT_NPROC`` counts the processes in a user namespace, before it all processes of the user."""

Stopped = Literal["", "time", "memory", "processes", "output"]


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended."""

    status: int
    """Exit status; 128 and the number of the signal if a signal ended it."""
    stopped: Stopped = ""
    """The limit that ended it, if one did; ``status`` has no meaning then."""
    stdout: bytes = b""
    stderr: bytes = b""


class Process:
    """A program in the sandbox. A context manager: leaving it ends the program.

    Start it on a thread that lives as long as the program should: the kernel ends the sandbox with the thread that started it.

    Args:
        command: what to run, as found in the sandbox.
        profile: what it sees and may use.
        bwrap: the bubblewrap to use; empty runs the command without isolation, with the limits alone, in ``profile.folder``.
        stdin: what it reads.
        pass_fds: descriptors that it gets in addition to the standard ones.

    Raises:
        SandboxUnavailable: the sandbox cannot be set up; nothing was run.
    """

    def __init__(
        self, command: Sequence[str], profile: Profile, *, bwrap: str, stdin: bytes = b"", pass_fds: Sequence[int] = ()
    ) -> None:
        self._profile, self._limits, self._bwrap = profile, profile.limits, bwrap
        self._stopped: Stopped = ""
        self._result: Result | None = None
        self._open: set[int] = set()
        self._first_fd = -1
        self._group: cgroup.Group | None = None
        self._outer_runs = True
        try:
            self._start(command, stdin, pass_fds)
        except BaseException:
            self._close(*self._open)
            self._remove_group()
            raise
        now = time.monotonic()
        self._end, self._next_sample = now + self._limits.seconds, now + SAMPLE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program and everything it started; nothing if that has happened.

        Raises:
            SandboxUnavailable: the sandbox could not be set up; nothing was run.
        """
        if self._result is not None or not self._open:
            return
        try:
            self._result = self._ended()
        finally:
            self._close(*self._open)

    @property
    def result(self) -> Result | None:
        """How it ended; None while it runs."""
        return self._result

    @property
    def descriptors(self) -> list[int]:
        """File descriptors to wait on: readable when ``step`` has something to do."""
        return [*self._pipes, self._outer_fd] if self._outer_runs else list(self._pipes)

    @property
    def due(self) -> float:
        """When ``step`` has something to do at the latest, by the monotonic clock."""
        return self._next_sample if self._stopped else min(self._end, self._next_sample)

    def step(self, ready: Sequence[int]) -> None:
        """Read what it wrote, check its limits, and find out whether it ended.

        Raises:
            SandboxUnavailable: the sandbox could not be set up; nothing was run.
        """
        for fd in [fd for fd in self._pipes if fd in ready]:
            self._read(fd)
        if self._outer_runs and self._outer_fd in ready:
            self._outer_runs = False
            self._kill()  # what it left behind, which may hold its pipes open
        now = time.monotonic()
        if not self._stopped and now >= self._end:
            self._stop("time")
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_SECONDS
            if not self._stopped:
                self._check_usage()
        if not self._pipes:
            self.close()

    def forget_output(self) -> None:
        """Drop what it wrote: the limit of output counts from here. For a program that serves one request after another."""
        for written in self._written.values():
            written.clear()

    # Starting

    def _start(self, command: Sequence[str], stdin: bytes, pass_fds: Sequence[int]) -> None:
        held_theirs, held = self._pipe()
        self._status, status_theirs = self._pipe()
        given, rules = self._data(stdin), self._data(seccomp_filter() or b"")
        theirs = [held_theirs, status_theirs, rules, *pass_fds]
        if self._bwrap:
            told = ["--json-status-fd", str(status_theirs), "--block-fd", str(held_theirs)]
            told += bubblewrap.options(self._profile, filter_fd=rules)
            options = self._data(b"".join(os.fsencode(word) + b"\0" for word in told))
            words = [self._bwrap, "--args", str(options), "--", *bubblewrap.inside(command)]
            theirs += [options, *bubblewrap.descriptors()]
            settings: dict[str, Any] = {"env": {}, "cwd": "/"}
        else:
            words = own_python.bare(str(REAPER), "--held", str(held_theirs))
            words += ["--keep", ",".join(map(str, pass_fds)), "--", *command]
            settings = {"env": dict(self._profile.environment), "cwd": self._profile.folder}
        self._process = subprocess.Popen(
            words,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=theirs,
            start_new_session=True,
            **settings,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        self._written = {self._out: bytearray(), self._err: bytearray()}
        self._pipes = [self._out, self._err]
        self._outer_fd = self._opened(os.pidfd_open(self._process.pid))
        self._close(held_theirs, status_theirs)
        first = self._first_process() if self._bwrap else self._process.pid
        if first is None:
            return
        try:
            self._first_fd = self._opened(os.pidfd_open(first))
        except ProcessLookupError:  # bwrap could not set the sandbox up, and has ended it
            return
        self._first = first
        self._set_limits()
        self._group = self._grouped()
        with contextlib.suppress(BrokenPipeError):
            os.write(held, b"\0")

    def _opened(self, fd: int) -> int:
        self._open.add(fd)
        return fd

    def _close(self, *fds: int) -> None:
        for fd in fds:
            self._open.discard(fd)
            os.close(fd)

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        return self._opened(read), self._opened(write)

    def _data(self, data: bytes) -> int:
        """A descriptor that can be read but not written: what the program gets is no place to keep data in."""
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            return self._opened(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC))

    def _first_process(self) -> int | None:
        """The number of the first process in the sandbox; None if bwrap ended before there was one."""
        found, end = b"", time.monotonic() + _START_SECONDS
        while b"\n" not in found:
            in_time = _readable(self._status, end - time.monotonic())
            more = os.read(self._status, _CHUNK) if in_time else b""
            if not more:
                return None
            found += more
        return int(json.loads(found.partition(b"\n")[0])["child-pid"])

    def _set_limits(self) -> None:
        """The kernel's limits of each process, while the program waits to be started."""
        limits = self._limits
        wanted = {
            resource.RLIMIT_AS: limits.memory_mib << 20,
            resource.RLIMIT_CPU: int(limits.seconds) + 1,
            resource.RLIMIT_FSIZE: limits.file_mib << 20,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: _OPEN_FILES,
        }
        if self._bwrap and counts_by_namespace():
            wanted[resource.RLIMIT_NPROC] = limits.processes + 1
        for kind, most in wanted.items():
            with contextlib.suppress(ProcessLookupError):
                hard = resource.prlimit(self._first, kind)[1]
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.prlimit(self._first, kind, (most, most))

    def _grouped(self) -> cgroup.Group | None:
        """The control group that holds the program; None if there is none here."""
        group = cgroup.make(self._limits)
        if group is None:
            return None
        try:
            group.add(self._first)
        except OSError:
            group.remove()
            return None
        return group

    # While it runs

    def _read(self, fd: int) -> None:
        data = os.read(fd, _CHUNK)
        if not data:
            self._pipes.remove(fd)
        elif not self._stopped:
            self._written[fd] += data
            if sum(map(len, self._written.values())) > self._limits.output_mib * (1 << 20):
                self._stop("output")

    def _check_usage(self) -> None:
        if self._first_fd < 0:
            return
        pids, threads = usage.tree(self._first)
        most = self._limits.memory_mib << 20
        used = usage.memory_of(pids, most)
        root = f"/proc/{self._first}/root"
        if self._bwrap and not usage.is_root_of_this_process(root):  # it is, until bwrap has set up the sandbox
            used += sum(usage.memory_of_files(root + folder) for folder in self._in_memory())
            used += usage.memory_of_sockets(self._first) + usage.memory_of_terminals(f"{root}/dev/pts")
        if used > most or self._ran_out():
            self._stop("memory")
        elif self._too_many(threads):
            self._stop("processes")

    def _too_many(self, threads: set[int]) -> bool:
        """Whether more threads than allowed run at the same time: a walk also finds some that end before others start."""
        most = self._limits.processes + 2
        return len(threads) > most and usage.running(threads) > most

    def _ran_out(self) -> bool:
        return self._group is not None and self._group.ran_out

    def _in_memory(self) -> list[str]:
        copies = [mount.path for mount in self._profile.mounts if mount.kind == "copy-on-write"]
        return ["/dev/shm", *self._profile.folders, *copies[:1]]  # all copies are in one file system

    def _stop(self, why: Stopped) -> None:
        self._stopped = why
        self._kill()

    # Ending

    def _kill(self) -> None:
        """End all processes: of the namespace with its first one, without isolation by the reaper."""
        if self._first_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first_fd, signal.SIGKILL if self._bwrap else signal.SIGTERM)

    def _ended(self) -> Result:
        self._kill()
        for fd in (self._first_fd, self._outer_fd):
            if fd >= 0:
                _readable(fd, _END_SECONDS)
        self._process.kill()
        status = self._process.wait()
        if not self._stopped and self._ran_out():  # since it was last looked at
            self._stopped = "memory"
        self._remove_group()
        stdout, stderr = (bytes(self._written[fd]) for fd in (self._out, self._err))
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._bwrap:
            told = self._told()
            if "exit-code" not in told and not self._stopped and stderr.startswith(b"bwrap: "):
                raise SandboxUnavailable(_why(stderr), hint=bubblewrap.HINT)
            status = told.get("exit-code", status)
        return Result(128 - status if status < 0 else status, self._stopped, stdout, stderr)

    def _remove_group(self) -> None:
        if self._group is not None:
            self._group.remove()
            self._group = None

    def _told(self) -> dict[str, int]:
        """The numbers that bwrap reported after that of the first process, by name."""
        os.set_blocking(self._status, False)
        text = b""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._status, _CHUNK):
                text += more
        found: dict[str, int] = {}
        for line in text.splitlines():
            found |= json.loads(line)
        return found


def counts_by_namespace() -> bool:
    """Whether the kernel limits the number of processes of a sandbox, and not only this module does."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= _COUNTS_BY_NAMESPACE


def _readable(fd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def _why(stderr: bytes) -> str:
    last = (stderr.decode(errors="replace").strip().splitlines() or ["bwrap printed nothing"])[-1]
    return f"the sandbox cannot be set up: {last}"


def supervise(processes: Sequence[Process], until: Sequence[Process] = (), wake: int | None = None) -> None:
    """Watch processes until some of them have ended, by default all, or until the descriptor ``wake`` can be read.

    Raises:
        SandboxUnavailable: a sandbox could not be set up; its program did not run.
    """
    while any(process.result is None for process in (until or processes)):
        running = [process for process in processes if process.result is None]
        poll = select.poll()
        for process in running:
            for fd in process.descriptors:
                poll.register(fd, select.POLLIN)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        left = min(process.due for process in running) - time.monotonic()
        ready = [fd for fd, _ in poll.poll(max(0.0, left) * 1000)]
        for process in running:
            process.step(ready)
        if wake in ready:
            return
