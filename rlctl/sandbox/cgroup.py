"""Control groups: the kernel's own limits of a whole tree of processes, if this process may make a group.

A group also counts the kernel's memory for a program (mappings, files, pipes), and the kernel enforces its limits at every
moment; those of ``process.py`` are checked every 20 ms. Without a group, ``process.py`` alone limits the program.

    version 1: one hierarchy for each controller; a group is made below this process's own
    version 2: one hierarchy; a group is made in this process's own or in its parent, if the controllers are on there
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlctl.sandbox.profile import Limits

ROOT = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")
HEADROOM_MIB = 32
"""Above the limit of memory, for what the kernel keeps: a single process meets its own limit first, and may handle it."""
HEADROOM_PROCESSES = 8
"""Above the limit of processes, so that ``process.py`` sees that it is passed, and reports it."""
_OPTIONAL = {"memory.memsw.limit_in_bytes", "memory.swap.max"}
"""Absent if the kernel does not count swap."""
_EVENTS = ("memory.events", "memory.oom_control")
_OOM_KILL = re.compile(r"^oom_kill ([1-9]\d*)$", re.MULTILINE)
_REMOVE_SECONDS = 0.5
_number = itertools.count()
_busy: list[Path] = []
"""Groups that could not be removed yet."""


class Group:
    """The group of one program: it is in ``folders``, one for each hierarchy."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    @property
    def ran_out(self) -> bool:
        """Whether the kernel ended a process of the group for lack of memory."""
        return any(_OOM_KILL.search(_text(folder / name)) for folder in self._folders for name in _EVENTS)

    def add(self, pid: int) -> None:
        """Put a process that has started nothing yet into the group; the processes that it starts are in it too.

        Raises:
            OSError: it cannot be moved.
        """
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group once its processes have ended; one that is busy is removed with a later group."""
        end = time.monotonic() + _REMOVE_SECONDS
        while left := [folder for folder in self._folders if not _removed(folder)]:
            self._folders = left
            if time.monotonic() > end:
                _busy.extend(left)
                return
            time.sleep(0.005)


def make(limits: Limits) -> Group | None:
    """A new group with these limits; None if this process may not make one."""
    _busy[:] = [folder for folder in _busy if not _removed(folder)]
    made: list[Path] = []
    for parents, settings in _places(limits):
        folder = next(filter(None, (_made(parent, settings) for parent in parents)), None)
        made += [folder] if folder is not None else []
    return Group(made) if made else None


def _places(limits: Limits) -> Iterator[tuple[list[Path], Mapping[str, int]]]:
    """For each hierarchy: the folders that a group may be made in, and its settings in the order in which they are written."""
    memory, processes = (limits.memory_mib + HEADROOM_MIB) << 20, limits.processes + HEADROOM_PROCESSES
    for line in _text(MINE).splitlines():
        _, controllers, path = line.split(":", 2)
        own = path.strip("/")
        if not controllers:
            places = [ROOT / own, *([(ROOT / own).parent] if own else [])]
            settings = {"memory.max": memory, "memory.swap.max": 0, "memory.oom.group": 1, "pids.max": processes}
            yield [place for place in places if _hands_down(place)], settings
        elif controllers == "memory":
            yield [ROOT / controllers / own], {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
        elif controllers == "pids":
            yield [ROOT / controllers / own], {"pids.max": processes}


def _made(parent: Path, settings: Mapping[str, int]) -> Path | None:
    """A new group in a folder; None if it cannot be made, or has not all of the settings."""
    folder = parent / f"rlctl-{os.getpid()}-{next(_number)}"
    _sweep(parent)
    try:
        folder.mkdir()
        for name, value in settings.items():
            if name not in _OPTIONAL or (folder / name).exists():
                (folder / name).write_text(str(value))
    except OSError:
        _removed(folder)
        return None
    return folder


@functools.cache
def _sweep(parent: Path) -> None:
    """Remove the empty groups of processes that were killed."""
    for old in parent.glob("rlctl-*-*"):
        if not Path(f"/proc/{old.name.split('-')[1]}").exists():
            _removed(old)


def _hands_down(place: Path) -> bool:
    """Whether groups in a folder of version 2 have the controllers."""
    return {"memory", "pids"} <= set(_text(place / "cgroup.subtree_control").split())


def _removed(folder: Path) -> bool:
    """Whether the group is gone."""
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def _text(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
