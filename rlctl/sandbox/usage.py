"""What a tree of processes uses, read from ``/proc``: memory, including what the kernel holds for it, and processes.

The kernel limits each process on its own (``RLIMIT_AS``). These sums are what a limit for the whole tree is compared with.
"""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from pathlib import Path

_SIZES = re.compile(rb"^(VmRSS|VmPTE):\s*(\d+) kB", re.MULTILINE)
_INODE_BYTES = 1024
"""What the kernel holds for a file in memory, in addition to its pages."""
_MESSAGE_BYTES = 64 << 10
"""By how much a socket's buffers can pass their sizes: the last message is taken whole, and one may be in the making."""
_TERMINAL_BYTES = 2 * (640 << 10)
"""What a pseudo-terminal holds in its two directions at most."""


def tree(pid: int) -> tuple[list[int], set[int]]:
    """Return a process and all its descendants, and the ids of their threads. Processes that end meanwhile are skipped."""
    found, waiting, threads = [], [pid], set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in threads:  # it got another parent meanwhile
            continue
        try:
            tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - read many times a second
            for task in tasks:
                waiting += _children(pid, task)
        except OSError:
            continue
        found.append(pid)
        threads.update(map(int, tasks))
    return found, threads


def running(threads: set[int]) -> int:
    """Return how many threads of an earlier ``tree`` have not ended: that many ran at the same time, when ``tree`` returned."""
    return sum(os.path.exists(f"/proc/{thread}") for thread in threads)  # noqa: PTH110 - read many times a second


def _children(pid: int, task: str) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123 - read many times a second
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return [] if _LISTS_CHILDREN or task != str(pid) else _children_by_parent()[pid]


def _children_by_parent() -> dict[int, list[int]]:
    """For kernels without ``CONFIG_PROC_CHILDREN``."""
    found = defaultdict(list)
    for entry in os.listdir("/proc"):  # noqa: PTH208 - as above
        if entry.isdecimal():
            try:
                text = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue
            found[int(text.rpartition(")")[2].split()[1])].append(int(entry))
    return found


_LISTS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def memory_of(pids: list[int], more_than: int) -> int:
    """Return the bytes of memory that processes use together, with their page tables.

    Pages that processes share count once. Finding them takes long, so they are counted for each process as long as even that
    sum is not above ``more_than``.
    """
    used = [_used(pid) for pid in pids]
    if sum(map(sum, used)) <= more_than:
        return sum(map(sum, used))
    return sum(_proportional(pid, resident) + tables for pid, (resident, tables) in zip(pids, used, strict=True))


def _used(pid: int) -> tuple[int, int]:
    """The bytes of a process's pages, and those of its page tables: pages that lie far apart need twice as much for these."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - read many times a second
            sizes = {name: int(kib) << 10 for name, kib in _SIZES.findall(file.read())}
    except OSError:
        return 0, 0
    return sizes.get(b"VmRSS", 0), sizes.get(b"VmPTE", 0)


def _proportional(pid: int, resident: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return resident
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


def memory_of_files(folder: str) -> int:
    """Return the bytes that a file system in memory takes; 0 if it cannot be read."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return (status.f_blocks - status.f_bfree) * status.f_frsize + (status.f_files - status.f_ffree) * _INODE_BYTES


def memory_of_sockets(pid: int) -> int:
    """Return the bytes that the sockets of a process's network namespace can hold; 0 if they cannot be read.

    This memory belongs to no process. Each socket, also one that no process holds anymore, counts as its buffers at their default
    size. Only pairs of Unix sockets can be opened.
    """
    try:
        first = Path(f"/proc/{pid}/net/sockstat").read_text().partition("\n")[0]
        return int(first.split()[-1]) * (_socket_bytes() + 2 * _MESSAGE_BYTES)
    except (OSError, ValueError, IndexError):
        return 0


@functools.cache
def _socket_bytes() -> int:
    sizes = (Path(f"/proc/sys/net/core/{name}_default") for name in ("rmem", "wmem"))
    return max(int(size.read_text()) if size.exists() else 212992 for size in sizes)


def memory_of_terminals(folder: str) -> int:
    """Return the bytes that the pseudo-terminals of a ``/dev/pts`` can hold."""
    try:
        return max(0, len(os.listdir(folder)) - 1) * _TERMINAL_BYTES  # noqa: PTH208 - read many times a second
    except OSError:
        return 0


def is_root_of_this_process(folder: str) -> bool:
    """Whether a folder is the root folder of this process; True if it cannot be read."""
    try:
        here, there = os.stat("/"), os.stat(folder)  # noqa: PTH116 - read many times a second
    except OSError:
        return True
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
