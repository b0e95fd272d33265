"""The profilers of the config, as one worker process runs them.

torch          a Chrome trace of PyTorch's operators and kernels
torch_memory   a snapshot of the allocations on the GPU, for pytorch.org/memory_viz
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

Tool = Literal["torch", "torch_memory"]

MOST_ALLOCATIONS = 100_000
"""Entries of the record of allocations, where ``trace_alloc_max_entries`` does not say; verl's default."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is told to profile with."""

    tool: Tool
    folder: Path
    worker: str
    """Its name, which its files begin with."""
    first_step: int
    discrete: bool = False
    """A file for each call, not one for all."""
    settings: Mapping[str, Any] = field(default_factory=dict)


class Profiler(Protocol):
    """Records from start to stop."""

    def start(self) -> None: ...

    def stop(self, label: str) -> None:
        """End, and write a file that ``label`` is part of the name of."""
        ...


class WorkerProfile:
    """The profiling of one worker: nothing until it is begun."""

    def __init__(self) -> None:
        self._order: Order | None = None
        self._running: Profiler | None = None
        self._calls = 0

    def begin(self, order: Order) -> None:
        """Profile from now on."""
        self._order, self._calls = order, 0
        if not order.discrete:
            self._running = profiler_of(order)
            self._running.start()

    def end(self, label: str) -> None:
        """Profile no more, and write what was recorded; ``label`` names the steps."""
        running, self._order, self._running = self._running, None, None
        if running is not None:
            running.stop(label)

    @contextmanager
    def around(self, method: str) -> Iterator[None]:
        """Profile a call, where each has a file of its own."""
        order = self._order
        if order is None or not order.discrete:
            yield
            return
        self._calls += 1
        profiler = profiler_of(order)
        running = _told(profiler.start)
        try:
            yield
        finally:
            if running:
                _told(partial(profiler.stop, f"step-{order.first_step}-{self._calls:03d}-{method}"))


def _told(action: Callable[[], None]) -> bool:
    """Do something; where that fails it is told in the worker's log, and the call goes on."""
    try:
        action()
    except (OSError, RuntimeError) as error:
        print(f"the profiler failed: {error}", file=sys.stderr)
        return False
    return True


def profiler_of(order: Order) -> Profiler:
    """The profiler that is asked for."""
    return TorchProfiler(order) if order.tool == "torch" else MemoryProfiler(order)


class TorchProfiler:
    """PyTorch's profiler; writes ``<worker>-<label>.json.gz``."""

    _running: ClassVar[bool] = False
    """In this process; a second one would end it."""

    def __init__(self, order: Order) -> None:
        import torch

        contents = order.settings.get("contents") or ()
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._order = order
        self._profile = torch.profiler.profile(
            activities=activities,
            record_shapes="shapes" in contents,
            profile_memory="memory" in contents,
            with_stack="stack" in contents,
        )

    def start(self) -> None:
        if TorchProfiler._running:
            raise RuntimeError("PyTorch runs one profiler at a time per process")
        TorchProfiler._running = True
        self._profile.start()

    def stop(self, label: str) -> None:
        TorchProfiler._running = False
        self._profile.stop()
        self._profile.export_chrome_trace(str(_file(self._order, label, "json.gz")))


class MemoryProfiler:
    """PyTorch's record of allocations; writes ``<worker>-<label>.pickle``."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def start(self) -> None:
        import torch

        entries = self._order.settings.get("trace_alloc_max_entries", MOST_ALLOCATIONS)
        torch.cuda.memory._record_memory_history(max_entries=entries)

    def stop(self, label: str) -> None:
        import torch

        torch.cuda.memory._dump_snapshot(str(_file(self._order, label, "pickle")))
        torch.cuda.memory._record_memory_history(enabled=None)


def _file(order: Order, label: str, ending: str) -> Path:
    order.folder.mkdir(parents=True, exist_ok=True)
    return order.folder / f"{order.worker}-{label}.{ending}"
