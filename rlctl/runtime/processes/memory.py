"""Memory that a worker on a CPU frees: malloc keeps it for the next tensor, instead of giving pages back and fetching new ones.

A step frees and allocates the same sizes thousands of times; new pages took a sixth of an optimizer step. The bounds are those
that glibc comes to itself when blocks of 32 MiB have been freed. Between steps a worker keeps 512 MiB at most. Other C libraries
are left alone.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

MIB = 2**20
KEPT = 512 * MIB
"""Free memory that a worker keeps while others work."""
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
"""Options of ``mallopt``, by malloc.h."""
BOUNDS = {TRIM_THRESHOLD: 64 * MIB, MMAP_THRESHOLD: 32 * MIB, ARENA_MAX: 1}
"""One heap for all threads, of which one computes."""


class _Counts(ctypes.Structure):
    """``struct mallinfo2``, of whose ten numbers the ninth is read."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (*"abcdefgh", "free_bytes", "i"))


def keep_freed_memory() -> None:
    """Have malloc keep freed memory in this process, from now on."""
    library = _glibc()
    if library is not None:
        for option, value in BOUNDS.items():
            library.mallopt(option, value)


def give_back() -> None:
    """Give freed memory back to the system if it is more than ``KEPT``."""
    library = _glibc()
    if library is not None and library.mallinfo2().free_bytes > KEPT:
        library.malloc_trim(0)


@cache
def _glibc() -> Any:
    """The C library of this process; None if it is not glibc 2.33 or later."""
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "mallinfo2"):
        return None
    library.mallinfo2.restype = _Counts
    return library
