"""A Chrome trace of steps: a process for the controller, with its phases, and one for every worker, with its calls.

The format is that of Google's Trace Event Format document, which Perfetto (ui.perfetto.dev) and chrome://tracing read. Times are
those of each machine's own clock; between machines they are as exact as their clocks agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl.common.whole_files import write_whole
from rlctl.planning.memory import GIB
from rlctl.planning.plan import role_and_number
from rlctl.runtime.profiling.throughput import Interval
from rlctl.runtime.profiling.usage import Call

MICROSECONDS = 1e6


@dataclass(slots=True)
class Timeline:
    """The steps of one trace."""

    steps: list[Interval] = field(default_factory=list)
    phases: list[Interval] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write it, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"displayTimeUnit": "ms", "traceEvents": list(self.events())}))

    def events(self) -> Iterator[dict[str, Any]]:
        """What the file holds."""
        yield from _process(0, "controller")
        yield from _rows(0, self.steps, first=0, name="steps", category="step")
        yield from _rows(0, self.phases, first=1, name="phases", category="phase")
        workers = sorted({call.worker for call in self.calls}, key=_order)
        for pid, worker in enumerate(workers, 1):
            own = [call for call in self.calls if call.worker == worker]
            yield from _process(pid, f"{worker} (process {own[-1].usage.pid})")
            calls = [Interval(call.method, call.usage.began, call.usage.seconds) for call in own]
            yield from _rows(pid, calls, first=0, name="calls", category="call")
            for call in own:
                yield from _memory(pid, call)


def _order(worker: str) -> tuple[str, int, str]:
    return *role_and_number(worker), worker


def _process(pid: int, name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}


def _rows(pid: int, spans: Sequence[Interval], *, first: int, name: str, category: str) -> Iterator[dict[str, Any]]:
    """Spans in as many rows as there are at the same time, since those of one row may not overlap."""
    for row, members in enumerate(_apart(spans)):
        tid = first + 100 * row
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
        for span in members:
            times = {"ts": span.began * MICROSECONDS, "dur": span.seconds * MICROSECONDS}
            yield {"ph": "X", "name": span.name, "cat": category, "pid": pid, "tid": tid, **times}


def _apart(spans: Iterable[Interval]) -> list[list[Interval]]:
    rows: list[list[Interval]] = []
    for span in sorted(spans, key=lambda span: span.began):
        for row in rows:
            if row[-1].began + row[-1].seconds <= span.began:
                row.append(span)
                break
        else:
            rows.append([span])
    return rows


def _memory(pid: int, call: Call) -> Iterator[dict[str, Any]]:
    usage = call.usage
    at = {"ph": "C", "pid": pid, "tid": 0, "ts": (usage.began + usage.seconds) * MICROSECONDS}
    yield {**at, "name": "memory (GiB)", "args": {"resident": usage.resident / GIB}}
    if usage.gpu is not None:
        held = {"allocated": usage.gpu.allocated / GIB, "reserved": usage.gpu.reserved / GIB}
        yield {**at, "name": "GPU memory (GiB)", "args": held}
