"""What a call in a worker took: when, how long, and the memory of its process afterwards."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rlctl.planning.plan import role_and_number

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Gpu(NamedTuple):
    """The memory of a process on its GPU, in bytes, as PyTorch's allocator counts it."""

    name: str
    """Of the device."""
    allocated: int
    reserved: int
    peak: int
    """Most that was allocated during the call."""


class Usage(NamedTuple):
    """What a call took."""

    began: float
    """Seconds since the epoch, by the clock of its machine."""
    seconds: float
    pid: int
    resident: int
    """Bytes of main memory that its process holds."""
    gpu: Gpu | None = None


@dataclass(slots=True)
class Watch:
    """Takes the usage of what happens in a ``with``."""

    usage: Usage | None = None

    @contextmanager
    def around(self) -> Iterator[Watch]:
        cuda = _cuda()
        if cuda is not None:
            cuda.reset_peak_memory_stats()
        began, clock = moment(), time.perf_counter()
        try:
            yield self
        finally:
            seconds = time.perf_counter() - clock
            self.usage = Usage(began, seconds, os.getpid(), resident_bytes(), _gpu(_cuda()))


_BEGAN = time.time() - time.perf_counter()


def moment() -> float:
    """Now, in seconds since 1970 by the system's clock of when this process began: it goes on evenly when that clock is set."""
    return _BEGAN + time.perf_counter()


def resident_bytes() -> int:
    """Main memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * PAGE
    except OSError:
        return 0


def _cuda() -> Any:
    """``torch.cuda`` where this process uses it, else None: a worker without torch does not load it for this."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _gpu(cuda: Any) -> Gpu | None:
    if cuda is None:
        return None
    return Gpu(_name(cuda), cuda.memory_allocated(), cuda.memory_reserved(), cuda.max_memory_allocated())


@cache
def _name(cuda: Any) -> str:
    return str(cuda.get_device_name())


class Call(NamedTuple):
    """A call that is over."""

    worker: str
    """``policy-0``."""
    method: str
    usage: Usage


class SameCalls(NamedTuple):
    """Calls of one method of a role that are over."""

    workers: Sequence[str]
    method: str
    usages: Sequence[Usage | None]

    def known(self, name: str) -> list[Any]:
        """The values of a field of ``Usage``, without those of calls that took none or have none."""
        values = (getattr(usage, name) for usage in self.usages if usage is not None)
        return [value for value in values if value is not None]

    @property
    def role(self) -> str:
        """``policy``."""
        return role_and_number(self.workers[0])[0]

    def apart(self) -> Iterator[Call]:
        """One by one."""
        together = zip(self.workers, self.usages, strict=True)
        return (Call(worker, self.method, usage) for worker, usage in together if usage is not None)


@dataclass(slots=True)
class CallLog:
    """The calls of all workers since they were last taken. Threads may add to it."""

    _calls: list[SameCalls] = field(default_factory=list)

    def add(self, worker: str, method: str, usage: Usage | None) -> None:
        """Note a call that is over."""
        self.add_all([worker], method, [usage])

    def add_all(self, workers: Sequence[str], method: str, usages: Sequence[Usage | None]) -> None:
        """Note calls of a method that are over."""
        if workers:
            self._calls.append(SameCalls(workers, method, usages))

    def take(self) -> list[SameCalls]:
        """The calls so far, which are forgotten."""
        calls, self._calls = self._calls, []
        return calls
