"""Programs that a model wrote, run on this machine in the sandbox (``rlctl/sandbox``), each in one of its own.

    runner.py    a program with its input; its output and results are compared here
    served.py    a program that tests call, and ...
    tester.py    ... the tests, in a second sandbox, so that a program can neither read nor skip them
    peer.py      how the two talk

A program has neither network nor the files of this machine: it sees the system's folders, Python and its packages, all read-only,
and an empty folder in memory. Its time, memory, processes and output have limits, and whatever it leaves behind ends with
it. If there is no sandbox nothing is run, unless the reward asks for the limits alone (``isolation: limits``): then a program can
read files and use the network as this process can.
"""

from __future__ import annotations

import ast
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rlctl import sandbox
from rlctl.common.errors import RunError, SandboxUnavailable
from rlctl.common.messages.reasons import said

Isolation = Literal["namespaces", "limits"]
PROCESSES = 64
"""Processes and threads that one program may start."""
SHOWN_MIB = 16
"""Output of a program that is compared; a program that writes more is wrong."""
START_SECONDS = 60.0
"""To start and end the sandboxes of the last program, in addition to the time of all; a sandbox that takes longer is an error."""
_TEXTS = {name: Path(__file__).with_name(f"{name}.py").read_text() for name in ("runner", "served", "tester", "peer")}
_HINT = (
    "; use a sandbox service (url of the reward); or set isolation: limits, which gives programs your own permissions"
)
_SAME_PROCESS = frozenset(
    """
    sys io os builtins unittest mock patch inspect contextlib subprocess threading asyncio multiprocessing importlib gc ctypes
    signal tempfile pathlib shutil globals locals vars exec eval compile input open __import__ capsys monkeypatch
    pandas pd torch tensorflow tf sklearn scipy matplotlib plt
    """.split()  # noqa: SIM905 - shorter than a list
)
"""Names with which tests reach into the program's process (patching, captured output), or exchange objects that cannot travel."""


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
    """The name that the tests are about, if it is known."""


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


def runs_apart(tests: str) -> bool:
    """Whether tests can run in another process than the program. It depends on the tests alone, never on the program."""
    try:
        tree = ast.parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # they fail there too
    return not _SAME_PROCESS.intersection(_names(tree))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
            yield from (name.name for name in node.names)


def _run(program: SandboxedProgram, limits: Limits, isolation: Isolation) -> Ran:
    with _place(limits, isolation) as profile:
        if program.tests and runs_apart(program.tests):
            return _run_apart(program, profile, isolation)
        job = {**asdict(program), "arguments": repr(program.arguments)}  # repr keeps integer keys of mappings
        with _job(job) as file, _start("runner", profile, isolation, program, file) as process:
            sandbox.supervise([process])
        assert process.result is not None, "it has ended"
        return _ran(process.result, process.result)


def _run_apart(program: SandboxedProgram, profile: sandbox.Profile, isolation: Isolation) -> Ran:
    """A program and its tests, which talk over a socket; how the tests end decides."""
    text = {"peer": _TEXTS["peer"], "prelude": program.prelude}
    ours, theirs = socket.socketpair()
    with ExitStack() as stack:
        stack.enter_context(ours)
        stack.enter_context(theirs)
        code = stack.enter_context(_job({**text, "code": program.code}))
        tests = stack.enter_context(_job({**text, "tests": program.tests, "entry": program.entry}))
        served = stack.enter_context(_start("served", profile, isolation, program, code, theirs.fileno()))
        tester = stack.enter_context(
            _start("tester", profile, isolation, replace(program, stdin=""), tests, ours.fileno())
        )
        theirs.close()
        ours.close()
        sandbox.supervise([served, tester], until=[tester])
    assert served.result is not None, "leaving the context ends it"
    assert tester.result is not None, "leaving the context ends it"
    if served.result.stopped:
        return _ran(served.result, served.result)
    return _ran(tester.result, served.result)


def _start(
    text: str, profile: sandbox.Profile, isolation: Isolation, program: SandboxedProgram, *fds: int
) -> sandbox.Process:
    return sandbox.Process(
        [sys.executable, "-I", "-c", _TEXTS[text], *map(str, fds)],
        profile,
        bwrap=sandbox.find_bwrap() if isolation == "namespaces" else "",
        stdin=program.stdin.encode("utf-8", "replace"),
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


def _ran(reported: sandbox.Result, printed: sandbox.Result) -> Ran:
    """What a process reported on its stderr, and what the program printed."""
    if reported.stopped:
        return (
            Ran("late") if reported.stopped == "time" else Ran("killed", error=f"over the limit of {reported.stopped}")
        )
    try:
        report = json.loads(reported.stderr)
        how, status, result, error = (report.get(name, default) for name, default in _REPORT.items())
    except (ValueError, AttributeError):
        return Ran("killed", error=f"the process ended with status {reported.status}")
    if how not in ("ended", "exited", "raised", "killed") or not all(
        map(isinstance, (status, result, error), (int, str, str))
    ):
        return Ran("killed", error="the program forged its report")
    return Ran(how, status, printed.stdout.decode("utf-8", "replace"), result, error)


_REPORT: dict[str, Any] = {"how": "", "status": 0, "result": "", "error": ""}
