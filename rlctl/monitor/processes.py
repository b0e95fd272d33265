"""The processes of a run, as each tells of itself in the run folder; marked when it has not told for too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlctl.common.regular_files import read_json
from rlctl.planning.plan import role_and_number
from rlctl.runtime.processes.vitals import CONTROLLER, FOLDER

LATE_AFTER = 4
"""Times that a process usually waits before it tells again; a machine that is busy may miss one or two."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that a process uses; others may use it too."""

    number: int
    used: int
    """Bytes of its memory, of whoever holds them."""
    total: int
    busy: float
    """Percent of the time."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process with its children."""

    name: str
    """``policy-0``; its log has the same name."""
    node: str
    pid: int
    cpu: float
    """Percent of one core."""
    memory: int
    """Bytes."""
    children: int
    gpus: tuple[Gpu, ...]
    doing: str
    """The call it is in; empty where it waits for one."""
    doing_seconds: float
    """How long it has been in it, or has waited."""
    age: float
    """Seconds since its last heartbeat."""
    every: float
    """Seconds between heartbeats."""

    @property
    def role(self) -> str:
        """``policy``."""
        return role_and_number(self.name)[0]

    @property
    def late(self) -> bool:
        """Whether it should have told again long ago: it is gone, or hangs."""
        return self.age > LATE_AFTER * self.every


def processes_of(run: Path, now: float) -> list[Process]:
    """The processes that told of themselves, the controller first, then by role; ``now`` in seconds since the epoch."""
    found = []
    for path in (run / FOLDER).glob("*.json"):
        try:
            told, seen = read_json(path), path.stat().st_mtime
            found.append(_process(path.stem, told, seen, now))
        except (OSError, ArithmeticError, ValueError, KeyError, TypeError):
            continue  # it is just being renewed, has ended, or is damaged
    return sorted(found, key=_order)


def _process(name: str, told: dict[str, Any], seen: float, now: float) -> Process:
    return Process(
        name=name,
        node=str(told["node"]),
        pid=int(told["pid"]),
        cpu=float(told["cpu"]),
        memory=int(told["memory"]),
        children=int(told["children"]),
        gpus=tuple(
            Gpu(int(gpu["number"]), int(gpu["used"]), int(gpu["total"]), float(gpu["busy"])) for gpu in told["gpus"]
        ),
        doing=str(told["doing"]),
        doing_seconds=max(0.0, now - float(told["since"])),
        age=max(0.0, now - seen),
        every=float(told["every"]),
    )


def _order(process: Process) -> tuple[bool, str, int]:
    return process.name != CONTROLLER, *role_and_number(process.name)


def alive(processes: Sequence[Process]) -> int:
    """How many told not long ago."""
    return sum(not process.late for process in processes)
