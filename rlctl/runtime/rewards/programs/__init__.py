"""Programs that a model wrote, run on this machine in the sandbox (``rlctl/sandbox``), each in one of its own.

    runner.py    a program with its input, and tests that need its process; its output and results are compared here
    apart.py     whether tests can run apart from a program; then ...
    served.py    ... the program that they call is in one sandbox, and ...
    tester.py    ... the tests are in another, so that a program can neither read nor skip them
    wire.py      what crosses between the two: plain data

A program has neither network nor the files of this machine: it sees the system's folders, Python and its packages, all read-only,
and an empty folder in memory. Its time, memory, processes and output have limits, and whatever it leaves behind ends with
it. If there is no sandbox nothing is run, unless the reward asks for the limits alone (``isolation: limits``): then a program can
read files and use the network as this process can.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rlctl import sandbox
from rlctl.common import own_python
from rlctl.common.errors import RunError, SandboxUnavailable
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.programs.apart import Split, split

Isolation = Literal["namespaces", "limits"]
PROCESSES = 64
"""Processes and threads that one program may start."""
SHOWN_MIB = 16
"""Output of a program that is compared; a program that writes more is wrong."""
START_SECONDS = 60.0
"""To start and end the sandboxes of the last program, in addition to the time of all; a sandbox that takes longer is an error."""
_TEXTS = {name: Path(__file__).with_name(f"{name}.py").read_text() for name in ("runner", "served", "tester", "wire")}
_HINT = (
    "; use a sandbox service (url of the reward); or set isolation: limits, which gives programs your own permissions"
)


@dataclass(frozen=True, slots=True)
class SandboxedProgram:
    """One run of a program."""

    code: str
    stdin: str = ""
    function: str = ""
    """It is called after the program has ended, of its class ``Solution`` if it has one."""
    arguments: tuple[Any, ...] = ()
    """Of the function: plain JSON, but keys of mappings may be integers."""
    prelude: str = ""
    """Code before the program and before the tests."""
    tests: str = ""
    """Code behind the program, which passes by running to its end."""
    entry: str = ""
    """An expression that the tests are about, if it is known."""

    @property
    def split(self) -> Split:
        """How the tests and the program are taken apart."""
        return split(self.tests, self.prelude, self.entry)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program did; with tests, what the tests did."""

    how: Literal["ended", "exited", "raised", "killed", "late"]
    """It ran to its end, called exit, raised, ended or was ended without a report, or ran out of time."""
    status: int = 0
    """With which it exited."""
    stdout: str = ""
    result: str = ""
    """What the function returned, as Python text; empty if none was called."""
    error: str = ""
    """The last line of what was raised, or the limit that ended it."""
    together: bool = False
    """Whether tests ran in the program's process, where it can forge all of this."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of each program, and of all together."""

    seconds: float = 20.0
    all_seconds: float = 360.0
    memory_mib: int = 1024
    """Of a program together with everything it starts."""


def run_programs(
    programs: Sequence[SandboxedProgram], limits: Limits, isolation: Isolation, *, stop_at: Sequence[str] = ()
) -> list[Ran]:
    """Run programs, in their order; those that the time of all does not reach are late.

    Args:
        programs: what to run.
        limits: of their time and memory.
        isolation: ``namespaces``, or ``limits`` alone.
        stop_at: ways to end after which the others are not run, and not in the list.

    Raises:
        RunError: there is no sandbox here; nothing was run.
    """
    end = time.monotonic() + limits.all_seconds
    ran: list[Ran] = []
    try:
        for program in programs:
            left = min(limits.seconds, end - time.monotonic())
            ran.append(_run(program, replace(limits, seconds=left), isolation) if left > 0 else Ran("late"))
            if ran[-1].how in stop_at:
                break
    except SandboxUnavailable as error:
        message = said("rlctl cannot isolate programs from responses: {message}", message=error.message)
        raise RunError(message, hint=said("{hint}{hint2}", hint=error.hint, hint2=_HINT)) from None
    return ran


def check(isolation: Isolation) -> None:
    """Run a program that does nothing.

    Raises:
        RunError: programs cannot be isolated here.
    """
    (ran,) = run_programs([SandboxedProgram("")], Limits(), isolation)
    if ran.how != "ended":
        raise RunError(
            said("the sandbox fails even on an empty program: it {how}: {error}", how=ran.how, error=ran.error),
            hint=_HINT.removeprefix("; or "),
        )


def _run(program: SandboxedProgram, limits: Limits, isolation: Isolation) -> Ran:
    parts = program.split
    if program.tests and not parts.together:
        return _run_apart(program, parts, limits, isolation)
    job = {name: getattr(program, name) for name in ("prelude", "code", "tests", "function")}
    job["arguments"] = repr(program.arguments)  # it keeps integer keys of mappings
    with (
        _place(limits, isolation) as profile,
        _job(job) as file,
        _start("runner", profile, isolation, program.stdin, file) as process,
    ):
        sandbox.supervise([process])
    assert process.result is not None, "it has ended"
    return replace(_ran(process.result, process.result.stderr, process.result), together=bool(program.tests))


def _run_apart(program: SandboxedProgram, parts: Split, limits: Limits, isolation: Isolation) -> Ran:
    """A program, and its tests, which call it over a socket; how the tests end decides.

    When the tests are over, their process asks for a pipe, over a socket of its own. It gets one only when the program, and all
    that the program started, has been ended here. What the tests report there counts if their process then ends well.
    """
    code = {"wire": _TEXTS["wire"], "prelude": program.prelude, "code": program.code}
    tests = {
        "wire": _TEXTS["wire"],
        "prelude": parts.prelude,
        "tests": program.tests,
        "names": parts.names,
        "tested": parts.tested,
    }
    with ExitStack() as stack:
        ours, theirs, here, there = map(stack.enter_context, (*socket.socketpair(), *socket.socketpair()))

        def start(text: str, job: dict[str, Any], stdin: str, *sockets: socket.socket) -> sandbox.Process:
            profile, file = stack.enter_context(_place(limits, isolation)), stack.enter_context(_job(job))
            fds = (file, *(each.fileno() for each in sockets))
            return stack.enter_context(_start(text, profile, isolation, stdin, *fds))

        served, tester = start("served", code, program.stdin, theirs), start("tester", tests, "", ours, there)
        for each in (ours, theirs, there):
            each.close()
        sandbox.supervise([served, tester], until=[tester], wake=here.fileno())
        served.close()
        report = b""
        if tester.result is None:
            pipe = [stack.enter_context(os.fdopen(fd, "rb" if i == 0 else "wb", 0)) for i, fd in enumerate(os.pipe())]
            with suppress(OSError):
                socket.send_fds(here, [b"\0"], [pipe[1].fileno()])
            pipe[1].close()
            sandbox.supervise([tester])
            report = pipe[0].read(_REPORT_BYTES) or b""
    assert served.result is not None, "it has been ended"
    assert tester.result is not None, "it has ended"
    if served.result.stopped:
        return _ran(served.result, b"", served.result)
    return _ran(tester.result, report, served.result)


def _start(text: str, profile: sandbox.Profile, isolation: Isolation, stdin: str, *fds: int) -> sandbox.Process:
    return sandbox.Process(
        own_python.isolated("-c", _TEXTS[text], *map(str, fds)),
        profile,
        bwrap=sandbox.find_bwrap() if isolation == "namespaces" else "",
        stdin=stdin.encode("utf-8", "replace"),
        pass_fds=fds,
    )


@contextmanager
def _job(job: dict[str, Any]) -> Iterator[int]:
    """A descriptor that a job can be read from."""
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(job).encode())
        file.flush()
        fd = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _place(limits: Limits, isolation: Isolation) -> Iterator[sandbox.Profile]:
    """What a program sees; without isolation, a folder of this machine that is removed behind it."""
    with ExitStack() as stack:
        isolated = isolation == "namespaces"
        folder = "/box" if isolated else stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        yield sandbox.Profile(
            mounts=sandbox.python_mounts() if isolated else (),
            folders=("/box", "/tmp"),
            folder=folder,
            environment={
                "PATH": sandbox.PATH,
                "HOME": folder,
                "TMPDIR": folder,
                "LANG": "C.UTF-8",
                **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            },
            limits=sandbox.Limits(limits.seconds, limits.memory_mib, PROCESSES, output_mib=SHOWN_MIB),
        )


def _ran(reported: sandbox.Result, report: bytes, printed: sandbox.Result) -> Ran:
    """What a process reported before it ended well, and what the program printed."""
    if reported.stopped:
        return (
            Ran("late") if reported.stopped == "time" else Ran("killed", error=f"over the limit of {reported.stopped}")
        )
    try:
        if reported.status:
            raise ValueError("it did not end well")
        told = json.loads(report)
        how, status, result, error = (told.get(name, default) for name, default in _REPORT.items())
    except (ValueError, AttributeError, RecursionError):
        return Ran("killed", error=f"the process ended with status {reported.status}")
    if how not in ("ended", "exited", "raised", "killed") or not all(
        map(isinstance, (status, result, error), (int, str, str))
    ):
        return Ran("killed", error="the program forged its report")
    return Ran(how, status, printed.stdout.decode("utf-8", "replace"), result, error)


_REPORT_BYTES = 1 << 16
_REPORT: dict[str, Any] = {"how": "", "status": 0, "result": "", "error": ""}
