"""The devices of a run as its processes tell of them: use, memory, who is on each, and who has gone silent.

A run without GPUs has one device for each worker, as each computes on its own cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlctl.monitor.processes import Gpu, Process
from rlctl.runtime.processes.vitals import CONTROLLER

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class LiveDevice:
    """A GPU, or a worker on a CPU."""

    name: str
    roles: tuple[str, ...]
    """Of the processes on it."""
    use: float
    """Share of the time that it computes; of a worker on a CPU its cores in use."""
    gib: float
    """Memory in use."""
    room: float | None
    """Memory that it has; None for a worker on a CPU."""
    doing: str
    """The calls that its processes are in; empty while all wait."""
    silent: tuple[str, ...]
    """Its processes that have not been heard of for too long."""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A machine and its devices."""

    name: str
    devices: tuple[LiveDevice, ...]


def live_nodes(processes: Sequence[Process]) -> list[LiveNode]:
    """The nodes in the order in which their processes are listed."""
    workers = [process for process in processes if process.name != CONTROLLER]
    nodes = dict.fromkeys(process.node for process in workers)
    return [LiveNode(name, tuple(_devices([each for each in workers if each.node == name]))) for name in nodes]


def _devices(workers: Sequence[Process]) -> list[LiveDevice]:
    numbers = sorted({gpu.number for worker in workers for gpu in worker.gpus})
    if not numbers:
        return [_worker(worker) for worker in workers]
    return [
        _gpu(number, [each for each in workers if number in [gpu.number for gpu in each.gpus]]) for number in numbers
    ]


def _gpu(number: int, workers: Sequence[Process]) -> LiveDevice:
    """A GPU; what it uses is what the process that told last says of it."""
    seen: Gpu = next(
        gpu for worker in sorted(workers, key=lambda each: each.age) for gpu in worker.gpus if gpu.number == number
    )
    return LiveDevice(
        name=str(number),
        roles=tuple(dict.fromkeys(worker.role for worker in workers)),
        use=seen.busy / 100,
        gib=seen.used / GIB,
        room=seen.total / GIB,
        doing=", ".join(dict.fromkeys(worker.doing for worker in workers if worker.doing)),
        silent=tuple(worker.name for worker in workers if worker.late),
    )


def _worker(worker: Process) -> LiveDevice:
    return LiveDevice(
        name=worker.name,
        roles=(worker.role,),
        use=worker.cpu / 100,
        gib=worker.memory / GIB,
        room=None,
        doing=worker.doing,
        silent=(worker.name,) if worker.late else (),
    )
