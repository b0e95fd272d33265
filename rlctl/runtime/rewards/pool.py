"""Calls in child processes, each with a time limit.

    parent ── starts ──▶ reaper ── starts ──▶ child (a session of its own)
    scorer ────────────────────────────────▶ load it
           ◀──────────────────────── ready
    a few calls ───────────────────────────▶ score them one by one
           ◀─── answer, answer, ...          each within the limit, else the child is killed and another started

A scorer that scores responses together gets all calls in one message, and the limit is for all of them.

The parent waits for all children at once and starts no thread. Children are started as new Python processes, never
forked: the parent holds threads and locks of Ray and torch. Between them is a reaper (``rlctl/sandbox/reaper.py``): it kills all
that the user's code started, daemons too, when the child ends, the pool is closed or the parent is gone, and writes what they
print to a log of bounded size.

Pebble's pool has time limits too, but one task a message, or one limit for a whole chunk; here calls travel together
and are timed one by one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from pickle import UnpicklingError
from types import TracebackType
from typing import Self

import psutil

from rlctl.common import own_python
from rlctl.common.errors import RlctlError, RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.processes.process_group import end_group, status_of
from rlctl.runtime.rewards.interface import Call, Failure, Outcome, Ready, Scorer
from rlctl.sandbox import REAPER

LOAD_SECONDS = 300.0
"""Longest time a scorer may take to load: a user's file may import a model."""
MAX_CALLS_A_MESSAGE = 32
"""Few enough that processes finish together, many enough that messages cost nothing."""

TOGETHER_SECONDS = 2.0
"""More for a scorer that scores responses together: it may time them itself."""

LOG_BYTES = 8 << 20
"""A log this large is renamed, over the one before it, and a new log is started."""
END_SECONDS = 10.0
"""For a reaper to end its child and what that started."""

HANGS_AFTER = 3
"""Prompts, or all of several that are scored together, on which a call takes longer than it may before any call is answered: then
the scorer hangs, whatever it scores."""

UNANSWERED = Failure("not scored because another call failed", unanswered=True)


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    """Its reaper, which ends as the child does."""
    connection: Connection
    deadline: float
    loading: bool = True
    pid: int = 0
    """Known once it has loaded the scorer."""
    pending: deque[int] = field(default_factory=deque)
    """Calls sent and not answered; the first is the one it works on."""


@dataclass(slots=True)
class _Batch:
    calls: Sequence[Call]
    waiting: deque[int]
    """Calls not sent."""
    results: dict[int, Outcome | Failure] = field(default_factory=dict)
    failures: int = 0
    late: set[int] = field(default_factory=set)
    """Prompts of calls that took too long."""

    def settle(self, index: int, result: Outcome | Failure) -> None:
        self.results[index] = result
        self.failures += isinstance(result, Failure)
        if isinstance(result, Failure) and result.late:
            self.late.add(self.calls[index].group)

    def gives_up(self, after: int | None) -> bool:
        """Whether there are so many failures and nothing else, and of so many prompts: a row may be at fault for its own."""
        if after is None or self.failures < after or self.failures < len(self.results):
            return False
        prompts = len({call.group for call in self.calls})
        return prompts > 1 and len({self.calls[index].group for index in self.results}) >= min(after, prompts)


class CallPool:
    """Child processes that all hold one scorer.

    Args:
        scorer: what they load.
        processes: how many.
        timeout: seconds of one call.
        log: file that gets what they print; None takes stderr.
        late: called at the first call of each ``map`` that takes too long, with how many calls are not scored yet, and how many
            there are.

    Raises:
        RunError: the scorer cannot be loaded, or loading it takes longer than ``LOAD_SECONDS``.
    """

    def __init__(
        self,
        scorer: Scorer,
        *,
        processes: int,
        timeout: float,
        log: Path | None = None,
        late: Callable[[int, int], None] = lambda left, count: None,
    ) -> None:
        self._late = late
        self.hangs = False
        """Whether it seems to hang on every call; ``HANGS_AFTER`` says when."""
        self._answered = False
        """Whether a call has ever come to anything else than its time limit."""
        self._hung = 0
        """Prompts on which calls took too long, as long as none has."""
        self._scorer = scorer
        self._processes = processes
        self._timeout = timeout
        self._log = log
        self._together = False
        self._children: list[_Child] = []
        self._finalizer = weakref.finalize(self, _kill_all, self._children)
        try:
            self._fill()
            while any(child.loading for child in self._children):
                self._step(_Batch((), deque()))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the children."""
        return [child.pid for child in self._children]

    def map(
        self, calls: Sequence[Call], *, stop_on_failure: bool = False, give_up_after: int | None = None
    ) -> list[Outcome | Failure]:
        """Score calls, in their order. Calls without an answer have a failure too.

        Args:
            calls: what to score.
            stop_on_failure: return after the first failure.
            give_up_after: return after so many failures without any outcome, on as many prompts, or on all of several.

        Raises:
            RunError: a child that replaces a killed one cannot load the scorer.
        """
        batch = _Batch(calls, deque(range(len(calls)) if self._together else _prompt_by_prompt(calls)))
        size = max(1, min(MAX_CALLS_A_MESSAGE, len(calls) // (2 * self._processes)))
        size = len(calls) if self._together else size
        try:
            while len(batch.results) < len(calls) and not batch.gives_up(give_up_after):
                if stop_on_failure and batch.failures:
                    break
                self._fill()
                self._send(batch, size)
                late = len(batch.late)
                self._step(batch)
                if self._hangs_after(batch, late):
                    break
        finally:
            self._abandon()
        return [batch.results.get(i, UNANSWERED) for i in range(len(calls))]

    def _hangs_after(self, batch: _Batch, late: int) -> bool:
        """Tell of the first call that takes too long; whether all calls so far did, of prompts that were ``late`` before."""
        if batch.late and not late:
            self._late(len(batch.calls) - len(batch.results), len(batch.calls))
        self._answered |= any(not isinstance(each, Failure) or not each.late for each in batch.results.values())
        self._hung += len(batch.late) - late
        prompts = len({call.group for call in batch.calls})
        enough = self._hung >= HANGS_AFTER or (prompts > 1 and len(batch.late) == prompts)
        self.hangs = enough and not self._answered
        return self.hangs

    def close(self) -> None:
        """Kill the children and what they started."""
        self._finalizer()
        self._children.clear()

    def _fill(self) -> None:
        while len(self._children) < self._processes:
            self._children.append(_start(self._scorer, self._log))

    def _send(self, batch: _Batch, size: int) -> None:
        """Give every idle child its next calls."""
        for child in list(self._children):
            if child.loading or child.pending or not batch.waiting:
                continue
            child.pending.extend(batch.waiting.popleft() for _ in range(min(size, len(batch.waiting))))
            child.deadline = time.monotonic() + self._timeout + (TOGETHER_SECONDS if self._together else 0.0)
            try:
                child.connection.send([batch.calls[i] for i in child.pending])
            except OSError:
                self._lose(child, batch, _ending(child))

    def _step(self, batch: _Batch) -> None:
        """Wait for the next message or deadline, and deal with it."""
        working = [child for child in self._children if child.loading or child.pending]
        if not working:
            return
        left = min(child.deadline for child in working) - time.monotonic()
        ready = wait([child.connection for child in working], timeout=max(0.0, left))
        for child in working:
            if child.connection in ready:
                self._receive(child, batch)
            elif time.monotonic() >= child.deadline:
                if child.connection.poll():  # answered while others were dealt with, or while this process stood still
                    self._receive(child, batch)
                    continue
                limit = LOAD_SECONDS if child.loading else self._timeout
                self._lose(child, batch, said("took longer than {limit:g} s and was stopped", limit=limit), late=True)

    def _receive(self, child: _Child, batch: _Batch) -> None:
        try:
            message = child.connection.recv()
        except (EOFError, OSError, UnpicklingError):
            self._lose(child, batch, _ending(child))
            return
        if isinstance(message, RlctlError):
            raise message
        if isinstance(message, Ready):
            child.loading, child.pid, self._together = False, message.pid, message.together
            return
        batch.settle(child.pending.popleft(), message)
        child.deadline = time.monotonic() + self._timeout

    def _lose(self, child: _Child, batch: _Batch, reason: str, *, late: bool = False) -> None:
        """Kill a child; what it worked on fails, the calls behind it wait again. ``_fill`` starts another child."""
        self._children.remove(child)
        _kill(child)
        if child.loading:
            raise RunError(
                said("a scoring process was lost while it loaded the reward: it {reason}", reason=reason),
                hint=self._hint(),
            )
        for _ in range(len(child.pending) if self._together else 1):
            batch.settle(child.pending.popleft(), Failure(said("the call {reason}", reason=reason), late=late))
        batch.waiting.extendleft(reversed(child.pending))

    def _hint(self) -> str:
        return said("read {log}", log=self._log) if self._log else ""

    def _abandon(self) -> None:
        """Kill the children that still work on calls nobody waits for."""
        for child in [child for child in self._children if child.pending]:
            self._children.remove(child)
            _kill(child)


def _prompt_by_prompt(calls: Sequence[Call]) -> list[int]:
    """The calls in an order in which one of every prompt comes before the second of any."""
    seen: Counter[int] = Counter()
    turns = []
    for call in calls:
        turns.append(seen[call.group])
        seen[call.group] += 1
    return sorted(range(len(calls)), key=turns.__getitem__)


def _start(scorer: Scorer, log: Path | None) -> _Child:
    """Start a child. It imports from where this process does, and nothing else of this process."""
    ours, theirs = Pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    descriptor = theirs.fileno()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else os.dup(2)
    try:
        logged = ("--log", str(log), "--log-bytes", str(LOG_BYTES)) if log else ()
        reaper = own_python.bare(str(REAPER), "--keep", str(descriptor), *logged, "--")
        process = subprocess.Popen(
            [*reaper, *own_python.module("rlctl.runtime.rewards.child", str(descriptor))],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    finally:
        os.close(output)
        theirs.close()
    child = _Child(process, ours, time.monotonic() + LOAD_SECONDS)
    with suppress(OSError):  # a child that is gone already is found by the next wait
        ours.send(scorer)
    return child


def _ending(child: _Child) -> str:
    """How a child that is gone ended."""
    status = status_of(child.process, within=END_SECONDS)
    if status is None:
        return "closed its connection"
    if status < 0:
        return said("ended its process by signal {name}", name=signal.Signals(-status).name)
    return said("ended its process with status {status}", status=status)


def _kill(child: _Child) -> None:
    """Have a child killed by its reaper, with everything it started; kill what can be found if the reaper does not answer."""
    child.process.terminate()
    if status_of(child.process, within=END_SECONDS) is None:
        with suppress(psutil.Error):
            for process in psutil.Process(child.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
    end_group(child.process)
    child.connection.close()


def _kill_all(children: list[_Child]) -> None:
    for child in children:
        _kill(child)
