"""Waiting for workers: values in order, the first error that matters, and a limit for whoever does not answer.

a worker raises            WorkerFailed, with its traceback
its process is gone        WorkerLost: another worker in its place may do what it could not
its process is silent      WorkerLost: stopped or stuck as a whole, so that even its heartbeat fails; a busy one has one
a call takes too long      WorkerLost: it waits for something that does not come
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlctl.common.errors import RunError
from rlctl.runtime.profiling.usage import Usage

FIRST_CAUSE_SECONDS = 3.0
"""How long others are listened to when a worker fails in a way that the end of another worker would explain."""
SILENCE_SECONDS = 60.0
"""A worker whose heartbeat is away for so long is taken for gone, or after half of what a call may take where that is less."""
OVERDUE_SECONDS = 10.0
"""A call that returns within a moment in a worker that is well is looked after when it has taken so long."""
_CONSEQUENCE = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|gloo|nccl|broken pipe|DistBackendError|could not meet the others"
    r"|OwnerDiedError|ObjectLostError",
    re.IGNORECASE,
)


class StopRequested(Exception):
    """The user asked the run to end while workers were busy."""


class WorkerFailed(RunError):
    """A worker raised or died. ``actor`` names it, ``trace`` is its traceback, empty for the user's own errors."""

    def __init__(self, message: str, *, actor: str = "", trace: str = "", at: Any = None, hint: str = "") -> None:
        super().__init__(message, at=at, hint=hint)
        self.actor = actor
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.actor, self.trace, self.hint))


class WorkerLost(WorkerFailed):
    """A worker's process is gone, or does not answer. It is no error of what it computed: it can be computed again."""


def _rebuild(kind: type[WorkerFailed], message: str, actor: str, trace: str, hint: str) -> WorkerFailed:
    return kind(message, actor=actor, trace=trace, hint=hint)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call in a worker came to: a value, or an error as text that needs no class of the worker's to be read."""

    value: Any = None
    error: str = ""
    hint: str = ""
    trace: str = ""
    usage: Usage | None = field(default=None, compare=False)
    """What the call took."""

    @property
    def failed(self) -> bool:
        return bool(self.error)


class Heartbeat:
    """Tells a worker that is busy from one that does not answer: its process is asked for a heartbeat every now and then."""

    def __init__(self, ask: Callable[[], Any], limit: float) -> None:
        """Ask for heartbeats.

        Args:
            ask: for one; it comes from another thread of the worker than its calls are computed in.
            limit: seconds of silence after which the worker is taken for gone.
        """
        self.limit = limit
        self.begin(ask)

    def begin(self, ask: Callable[[], Any]) -> None:
        """Begin anew, with the worker in the place of one that is gone."""
        self._ask = ask
        self._waiting: Any = None
        self._since = time.monotonic()

    def is_away(self) -> bool:
        """Whether the last heartbeat that was asked for is missing for longer than the limit."""
        import ray

        now = time.monotonic()
        if self._waiting is not None and _is_there(self._waiting):
            self._waiting = None
        if self._waiting is None:
            if now - self._since >= self.limit / 4:
                self._waiting, self._since = self._ask(), now
            return False
        if now - self._since <= self.limit:
            return False
        # this process may have been away itself: an answer that is under way gets a moment to come in
        return not ray.wait([self._waiting], timeout=min(2.0, self.limit))[0]


def _is_there(call: Any) -> bool:
    import ray

    return bool(ray.wait([call], timeout=0)[0])


@dataclass
class Calls:
    """Calls under way in workers, of one role or of several."""

    names: Sequence[str]
    calls: Sequence[Any]
    stop_requested: Callable[[], bool]
    over: Callable[[str, Usage | None], None] = lambda worker, usage: None
    """Told of each call that has given its value, with the worker's name and what it took."""
    pulses: Sequence[Heartbeat] = ()
    """Of the workers; without, they are not asked whether they are there."""
    limit: float = math.inf
    """Seconds that a call may take."""
    overdue: str = "a call has not returned within {:g} s (runtime.ray.call_timeout)"
    """What is said of one that takes longer."""
    beside: Calls | None = None
    """Calls that these depend on: a failure among them is one of these, their values are not waited for."""
    begun: float = field(default_factory=time.monotonic)
    """When they were made."""
    again: Callable[[int, WorkerLost], Any] | None = None
    """Replaces a worker that is lost and makes its call again; raises where it does not. None ends the wait."""

    def wait(self) -> list[Any]:
        """The values of all calls, in order.

        It ends at the first call that fails, since the others may wait for that worker in a collective. Where that
        failure is one that the end of another worker explains, the others are listened to for a moment.

        Raises:
            WorkerFailed: a call failed; of several failures, the one that explains the others.
            StopRequested: the run was asked to end.
        """
        own, every = len(self.calls), self if self.beside is None else together([self, self.beside])
        values: list[Any] = [None] * len(every.calls)
        pending = {call: index for index, call in enumerate(every.calls)}
        failed: WorkerFailed | None = None
        deadline, began = 0.0, dict.fromkeys(every.calls, time.monotonic())
        while any(index < own for index in pending.values()):
            done = _next(list(pending), 0.5 if failed is None else max(0.0, deadline - time.monotonic()))
            if self.stop_requested():  # before what fails: the signal may have reached the workers too
                raise StopRequested
            lost: dict[Any, WorkerLost] = {} if done else every._silent(pending, began)
            for call in done:
                try:
                    index = pending[call]
                    values[index] = _value(every.names[index], call, self.over if index < own else _noted_later)
                    del pending[call]
                except WorkerLost as error:
                    lost[call] = error
                except WorkerFailed as error:
                    del pending[call]
                    if not _CONSEQUENCE.search(error.message):
                        raise
                    failed, deadline = failed or error, deadline or time.monotonic() + FIRST_CAUSE_SECONDS
            for call, gone in lost.items():
                if self.again is None:
                    raise gone
                index = pending.pop(call)
                again = self.again(index, gone)
                pending[again], began[again] = index, time.monotonic()
            if failed is not None and time.monotonic() >= deadline:
                break
        if failed is not None:
            # nobody told why the connection is gone: most likely a process or a machine is
            raise WorkerLost(failed.message, actor=failed.actor, trace=failed.trace, hint=failed.hint)
        return values[:own]

    def _silent(self, pending: dict[Any, int], began: dict[Any, float]) -> dict[Any, WorkerLost]:
        """The calls whose workers do not answer, or that take too long."""
        lost = {}
        for call, index in pending.items():
            name, hint = self.names[index], f"see {self.names[index]} under logs/ in the run folder"
            if self.pulses and self.pulses[index].is_away():
                why = f"its process has been unresponsive for {self.pulses[index].limit:g} s: it hangs, or its machine is down"
                lost[call] = WorkerLost(f"{name}: {why}", actor=name, hint=hint)
            elif time.monotonic() - began[call] > self.limit:
                lost[call] = WorkerLost(f"{name}: {self.overdue.format(self.limit)}", actor=name, hint=hint)
        return lost


def together(parts: Sequence[Calls]) -> Calls:
    """Calls of several roles as one, so that the first failure of any of them is found."""
    names = [name for part in parts for name in part.names]
    calls = [call for part in parts for call in part.calls]
    pulses = [pulse for part in parts for pulse in part.pulses]
    tightest = min(parts, key=lambda part: part.limit, default=Calls((), (), lambda: False))
    return Calls(
        names,
        calls,
        parts[0].stop_requested if parts else lambda: False,
        pulses=pulses if len(pulses) == len(calls) else (),
        limit=tightest.limit,
        overdue=tightest.overdue,
    )


def first_of(waiting: Sequence[Calls], seconds: float) -> list[int]:
    """Return which of some calls, each of one worker, can be waited for now, once any can; none after ``seconds``.

    A call that should have returned long ago is one of them: waiting for it finds out whether its worker is gone.

    Raises:
        StopRequested: the run was asked to end.
    """
    places = {each.calls[0]: place for place, each in enumerate(waiting)}
    done = _next(list(places), seconds)
    if waiting and waiting[0].stop_requested():
        raise StopRequested
    overdue = time.monotonic() - OVERDUE_SECONDS
    return sorted({places[call] for call in done} | {i for i, each in enumerate(waiting) if each.begun < overdue})


def _next(calls: list[Any], timeout: float) -> list[Any]:
    """All calls that are over once one of them is: asking for each anew would look at all of them each time."""
    import ray

    first, _ = ray.wait(calls, timeout=timeout)
    return first and ray.wait(calls, num_returns=len(calls), timeout=0)[0]


def _noted_later(worker: str, usage: Usage | None) -> None:
    """Whoever waits for the call itself notes it."""


def _value(name: str, call: Any, over: Callable[[str, Usage | None], None]) -> Any:
    import ray

    try:
        outcome: Outcome = ray.get(call)
    except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
        raise WorkerLost(
            _death(name, error), actor=name, hint=f"read the log of {name} under logs/ in the run folder"
        ) from None
    except ray.exceptions.RayTaskError as error:
        raise WorkerFailed(f"{name}: {error.cause}", actor=name, trace=str(error)) from None
    except ray.exceptions.RayError as error:
        raise WorkerFailed(f"{name}: {type(error).__name__}: {error}", actor=name) from None
    if outcome.failed:
        raise WorkerFailed(f"{name}: {outcome.error}", actor=name, trace=outcome.trace, hint=outcome.hint)
    over(name, outcome.usage)
    return outcome.value


def _death(name: str, error: Exception) -> str:
    """Why a worker is gone, in one line, from Ray's long account of it."""
    import ray

    text = " ".join(str(error).split())
    if isinstance(error, ray.exceptions.OutOfMemoryError) or "running low on memory" in text:
        return f"{name}: its process was killed because its machine ran low on memory"
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return f"{name}: its process died or its machine is down: the connection to it closed"
    found = re.search(r"Worker exit detail: (.*?\.)( Some common causes| Ray| The actor|$)", text)
    if found is None:
        return f"{name}: its process died ({text[:300]})"
    out_of_reach = "End of file" in found[1] or "connection error" in found[1]
    return f"{name}: its process died ({'it was killed, or it crashed' if out_of_reach else found[1]})"
