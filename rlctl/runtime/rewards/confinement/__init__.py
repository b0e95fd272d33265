"""Programs that a model wrote, run on this machine: one after the other, each in a process of its own with limits.

    here                            in namespaces                          a process for each program
    programs ──JSON──▶ inside.py: a root of its own, ──program──▶ program.py: run it, say how it ended
    what each did ◀── read-only, without network

A program has neither network nor the files of this machine: it sees the system's libraries, Python and its packages, all
read-only, and an empty folder in memory. Its time, memory, processes and files have limits. It runs without privileges, and
whatever it leaves behind ends with it. Where Linux namespaces cannot be had nothing is run, unless the reward says that the
limits alone will do (``isolation: limits``): then a program can read files and use the network as this process can.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rlctl.errors import RunError

Isolation = Literal["namespaces", "limits"]
PROCESSES = 64
"""Processes and threads that one program may start."""
WAY_SECONDS = 30.0
"""For the way in and out, beside the time of the programs."""
_ROOT = Path(__file__).parents[4]
_UNSHARE = ("--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from rlctl.runtime.rewards.confinement.inside import main; main()"
)
_HINT = (
    "start rlctl where user namespaces are allowed; or ask a sandbox service (url of the reward); or set its isolation to"
    " limits, and what the model writes can read files and use the network as you can"
)


@dataclass(frozen=True, slots=True)
class Program:
    """One run of a program."""

    code: str
    stdin: str = ""
    function: str = ""
    """Is called once the program has ended, of its class ``Solution`` where it has one."""
    arguments: tuple[Any, ...] = ()
    """Of the function: plain JSON, but keys of mappings may be integers."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program did."""

    how: Literal["ended", "exited", "raised", "killed", "late"]
    """It ran to its end, called exit, raised, ended without a word, or was still running at its time's end."""
    status: int = 0
    """With which it exited."""
    stdout: str = ""
    result: str = ""
    """What the function returned, as Python text; empty where none was called."""
    error: str = ""
    """The last line of what was raised."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of each program, and of all together."""

    seconds: float = 20.0
    all_seconds: float = 360.0
    memory_mib: int = 1024


def run_programs(
    programs: Sequence[Program], limits: Limits, isolation: Isolation, *, stop_at: Sequence[str] = ()
) -> list[Ran]:
    """Run programs, in their order; those that the time of all does not reach are late.

    Args:
        programs: what to run.
        limits: of their time and memory.
        isolation: ``namespaces``, or ``limits`` alone.
        stop_at: ways to end after which the others are not run, and not in the list.

    Raises:
        RunError: they cannot be isolated here; nothing was run.
    """
    order = {
        "programs": [{**asdict(each), "arguments": _as_text(each.arguments)} for each in programs],
        **asdict(limits),
        "processes": PROCESSES,
        "isolated": isolation == "namespaces",
        "stop_at": list(stop_at),
        "python": _python(),
    }
    command = [sys.executable, "-I", "-S", "-c", _START, str(_ROOT)]
    if isolation == "namespaces":
        command = [_unshare(), *_UNSHARE, "--", *command]
    try:
        ended = subprocess.run(
            command,
            input=json.dumps(order),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limits.all_seconds + limits.seconds + WAY_SECONDS,
            start_new_session=True,
            check=False,
        )
        answer = json.loads(ended.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"the programs of responses could not be run: {error}", hint=_HINT) from error
    except ValueError:
        said = (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise RunError(f"programs of responses cannot be isolated here: {said}", hint=_HINT) from None
    if "refused" in answer:
        raise RunError(f"programs of responses cannot be isolated here: {answer['refused']}", hint=_HINT)
    return [Ran(**each) for each in answer["ran"]]


def check(isolation: Isolation) -> None:
    """Run a program that does nothing.

    Raises:
        RunError: programs cannot be isolated here.
    """
    (ran,) = run_programs([Program("")], Limits(), isolation)
    if ran.how != "ended":
        raise RunError(f"an empty program does not end well here: it {ran.how}: {ran.error}", hint=_HINT)


def _as_text(arguments: tuple[Any, ...]) -> str:
    """As Python text, which keeps integer keys of mappings."""
    return repr(arguments)


def _python() -> list[str]:
    """Folders that hold Python and its packages."""
    found = {
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        sys.base_exec_prefix,
        str(Path(sys.executable).resolve().parent),
    }
    return sorted(path for path in found if path != "/")


def _unshare() -> str:
    found = shutil.which("unshare")
    if found is None or not sys.platform.startswith("linux"):
        raise RunError(
            "programs of responses cannot be isolated here: that needs Linux namespaces, and the program 'unshare' is missing",
            hint=_HINT,
        )
    return found
