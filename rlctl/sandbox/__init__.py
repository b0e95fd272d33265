"""Runs untrusted programs: launch scripts under ``--trace``, programs that a model wrote.

    profile.py      what a program sees, and its limits
    bubblewrap.py   bwrap's command line for a profile; what differs for root
    seccomp.py      the system calls that are denied
    process.py      a program while it runs
    cgroup.py       the kernel's limits of a tree of processes, if a control group can be made
    usage.py        memory and processes of a tree of processes
    reaper.py       ends what a command leaves behind; a program of its own

A program has no network, no capabilities and no way to get any (no new privileges, no user namespaces), no variables but those of
its profile, and no files but the system's folders and those of its profile, read-only or as copies in memory. Its time, memory,
processes, files and output have limits; those of memory and processes count everything it starts. Whatever it leaves behind ends
with it. If a machine does not allow this, nothing is run, and ``SandboxUnavailable`` says why.

    run(["python3", "-c", "print(1)"], Profile(mounts=python_mounts()))
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from rlctl.common.errors import SandboxUnavailable
from rlctl.common.messages.reasons import said
from rlctl.sandbox.bubblewrap import HINT, programs
from rlctl.sandbox.process import REAPER, Process, Result, supervise
from rlctl.sandbox.profile import PATH, SYSTEM, Limits, Mount, Profile, python_mounts

__all__ = [
    "HINT",
    "PATH",
    "REAPER",
    "SYSTEM",
    "Limits",
    "Mount",
    "Process",
    "Profile",
    "Result",
    "find_bwrap",
    "python_mounts",
    "run",
    "supervise",
]


def run(command: Sequence[str], profile: Profile, *, stdin: bytes = b"", isolated: bool = True) -> Result:
    """Run a program in the sandbox to its end.

    Args:
        command: what to run, as found in the sandbox.
        profile: what it sees and may use.
        stdin: what it reads.
        isolated: False leaves the sandbox out and keeps the limits; ``profile.folder`` is then a folder of this machine.

    Raises:
        SandboxUnavailable: there is no sandbox here; nothing was run.
    """
    with Process(command, profile, bwrap=find_bwrap() if isolated else "", stdin=stdin) as process:
        supervise([process])
        assert process.result is not None, "it has ended"
        return process.result


@functools.cache
def find_bwrap() -> str:
    """Return the bubblewrap that works on this machine.

    Raises:
        SandboxUnavailable: none does.
    """
    problem = SandboxUnavailable("the sandbox needs bubblewrap", hint=HINT)
    for program in programs():
        try:
            with Process(["true"], Profile(environment={"PATH": PATH}), bwrap=program) as process:
                supervise([process])
                if process.result is not None and process.result.status == 0:
                    return program
                answer = process.result.stderr.decode(errors="replace").strip() if process.result else ""
                problem = SandboxUnavailable(
                    said("the sandbox does not run programs: {answer}", answer=answer), hint=HINT
                )
        except SandboxUnavailable as error:
            problem = error
    raise problem
