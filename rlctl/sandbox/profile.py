"""What a program in the sandbox sees of the machine, and how much it may use."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
)
"""System folders and files that every program sees, read-only. Never the whole of /etc: root may read its secrets."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a program together with everything it starts."""

    seconds: float = 60.0
    memory_mib: int = 1024
    """Memory, with what files in memory take."""
    processes: int = 64
    """Processes and threads."""
    file_mib: int = 64
    """Size of one file."""
    folder_mib: int = 256
    """Size of each writable folder."""
    output_mib: float = 16.0
    """Standard output and standard error together."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the machine, shown in the sandbox."""

    source: str
    target: str = ""
    """Path in the sandbox; empty is the same path."""
    kind: Literal["read-only", "copy-on-write"] = "read-only"
    """``copy-on-write``: a folder that can be written; what is written stays in memory and ends with the sandbox."""

    @property
    def path(self) -> str:
        """The path inside the sandbox."""
        return self.target or self.source


@dataclass(frozen=True, slots=True)
class Profile:
    """The files and folders that a program sees: the system's folders and ``mounts``. There is no network.

    It can also learn where these folders are on the machine: the kernel lists the sources of mounts in ``/proc/self/mountinfo``,
    and Linux has no way to hide this file of a process from the process itself.
    """

    mounts: tuple[Mount, ...] = ()
    folders: tuple[str, ...] = ("/tmp",)
    """Empty writable folders, in memory."""
    folder: str = "/tmp"
    """In which the program starts."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All variables of the program."""
    limits: Limits = Limits()


def python_mounts() -> tuple[Mount, ...]:
    """This Python and its packages, for profiles of programs that need them."""
    found = {
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        sys.base_exec_prefix,
        str(Path(sys.executable).resolve().parent),
        *(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")),
    }
    seen = [path for path in sorted(found) if path != "/" and Path(path).exists()]
    return tuple(
        Mount(path) for path in seen if not any(Path(known) in Path(path).parents for known in [*seen, *SYSTEM])
    )
