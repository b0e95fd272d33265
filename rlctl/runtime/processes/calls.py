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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.profiling.usage import Usage

FIRST_CAUSE_SECONDS = 3.0
"""How long others are listened to when a worker fails in a way that the end of another worker would explain."""
SILENCE_SECONDS = 60.0
"""A worker whose heartbeat is away for so long is taken for gone, or after half of what a call may take where that is less."""
OVERDUE_SECONDS = 10.0
"""A call that returns within a moment in a worker that is well is looked after when it has taken so long."""
POLL_SECONDS = 0.5
"""How often a wait for calls looks for failures, lost workers, and whether the run was asked to end."""
_CONSEQUENCE = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|gloo|nccl|broken pipe|DistBackendError|could not meet the others"
    r"|OwnerDiedError|ObjectLostError|ObjectReconstructionFailed",
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


@dataclass(frozen=True, slots=True)
class Sent:
    """A call of a worker that is under way."""

    call: Any
    """Ray's handle on its outcome."""
    worker: int
    """The place of the worker in ``Calls.names``."""
    name: str
    pulse: Heartbeat | None = None
    """None if nothing asks whether the worker is there."""


@dataclass(eq=False)
class Calls:
    """Calls under way in workers, of one role or of several."""

    names: Sequence[str]
    """Of the workers, one for each call."""
    sent: Sequence[Sent]
    stop_requested: Callable[[], bool]
    over: Callable[[Sequence[str], Sequence[Usage | None]], None] = lambda workers, usages: None
    """Receives the names of workers whose calls are over, and what each call took."""
    limit: float = math.inf
    """Seconds that a call may take."""
    overdue: str = "a call has not returned within {:g} s (runtime.ray.call_timeout)"
    """What is said of one that takes longer."""
    beside: Calls | None = None
    """Calls that these depend on: a failure among them is one of these, their values are not waited for."""
    begun: float = field(default_factory=time.monotonic)
    """When they were made."""
    again: Callable[[int, WorkerLost], Sent] | None = None
    """Replaces a worker that is lost and makes its call again; raises where it does not."""

    def wait(self) -> list[Any]:
        """The values of all calls, in order.

        It ends at the first call that fails, since the others may wait for that worker in a collective. Where that
        failure is one that the end of another worker explains, the others are listened to for a moment.

        Raises:
            WorkerFailed: a call failed; of several failures, the one that explains the others.
            StopRequested: the run was asked to end.
        """
        own, every = len(self.names), self if self.beside is None else together([self, self.beside])
        values: dict[int, Any] = {}
        pending = {each.call: each for each in every.sent}
        failed: WorkerFailed | None = None
        deadline, began = 0.0, dict.fromkeys(pending, time.monotonic())
        while any(each.worker < own for each in pending.values()):
            done = finished(list(pending), POLL_SECONDS if failed is None else max(0.0, deadline - time.monotonic()))
            if self.stop_requested():  # before what fails: the signal may have reached the workers too
                raise StopRequested
            found = [(pending[call], came) for call, came in zip(done, found_of(pending, done), strict=True)]
            self._note(found)
            if not done:
                found += every._silent(pending, began)
            for each, came in found:
                del pending[each.call]
                if isinstance(came, WorkerLost):
                    if self.again is None:
                        raise came
                    new = self.again(each.worker, came)
                    pending[new.call], began[new.call] = new, time.monotonic()
                elif isinstance(came, WorkerFailed):
                    if not _CONSEQUENCE.search(came.message):
                        raise came
                    failed, deadline = failed or came, deadline or time.monotonic() + FIRST_CAUSE_SECONDS
                else:
                    values[each.worker] = came.value
            if failed is not None and time.monotonic() >= deadline:
                break
        if failed is not None:
            # nobody told why the connection is gone: most likely a process or a machine is
            raise WorkerLost(failed.message, actor=failed.actor, trace=failed.trace, hint=failed.hint)
        return [values[place] for place in range(own)]

    def _note(self, found: Sequence[tuple[Sent, Outcome | WorkerFailed]]) -> None:
        """Note what calls took; those of ``beside`` are noted where these are waited for."""
        over = [
            (each.name, came.usage)
            for each, came in found
            if isinstance(came, Outcome) and each.worker < len(self.names)
        ]
        if over:
            self.over(*zip(*over, strict=True))

    def _silent(self, pending: dict[Any, Sent], began: dict[Any, float]) -> list[tuple[Sent, WorkerLost]]:
        """The calls whose workers do not answer, or that take too long."""
        now = time.monotonic()
        silent = [(each, self._silence_of(each, now - began[call])) for call, each in pending.items()]
        return [(each, lost) for each, lost in silent if lost is not None]

    def _silence_of(self, sent: Sent, seconds: float) -> WorkerLost | None:
        """Why a call that has taken ``seconds`` is given up; None if it is not."""
        name, hint = sent.name, said("see {name} under logs/ in the run folder", name=sent.name)
        if sent.pulse is not None and sent.pulse.is_away():
            why = said(
                "its process has been unresponsive for {limit:g} s: it hangs, or its machine is down",
                limit=sent.pulse.limit,
            )
            return WorkerLost(said("{name}: {why}", name=name, why=why), actor=name, hint=hint)
        if seconds > self.limit:
            why = self.overdue.format(self.limit)
            return WorkerLost(said("{name}: {format}", name=name, format=why), actor=name, hint=hint)
        return None


def together(parts: Sequence[Calls]) -> Calls:
    """Calls of several roles as one, so that the first failure of any of them is found."""
    starts = accumulate((len(part.names) for part in parts), initial=0)
    tightest = min(parts, key=lambda part: part.limit, default=Calls((), (), lambda: False))
    return Calls(
        [name for part in parts for name in part.names],
        [
            replace(each, worker=each.worker + start)
            for part, start in zip(parts, starts, strict=False)
            for each in part.sent
        ],
        parts[0].stop_requested if parts else lambda: False,
        limit=tightest.limit,
        overdue=tightest.overdue,
    )


def first_of(waiting: Sequence[Calls], seconds: float) -> list[int]:
    """Return which of some calls, each of one worker, can be waited for now, once any can; none after ``seconds``.

    A call that should have returned long ago is one of them: waiting for it finds out whether its worker is gone.

    Raises:
        StopRequested: the run was asked to end.
    """
    places = {each.sent[0].call: place for place, each in enumerate(waiting)}
    done = _first_finished(list(places), seconds)
    if waiting and waiting[0].stop_requested():
        raise StopRequested
    overdue = time.monotonic() - OVERDUE_SECONDS
    return sorted({places[call] for call in done} | {i for i, each in enumerate(waiting) if each.begun < overdue})


def finished(calls: list[Any], timeout: float) -> list[Any]:
    """Calls that are over: all of them, or those that are after ``timeout`` seconds.

    Waiting for the first of many would look at all of them each time that one ends.
    """
    import ray

    return ray.wait(calls, num_returns=len(calls), timeout=timeout)[0]


def _first_finished(calls: list[Any], timeout: float) -> list[Any]:
    """All calls that are over once one of them is."""
    import ray

    first, _ = ray.wait(calls, timeout=timeout)
    return first and finished(calls, 0)


def found_of(pending: Mapping[Any, Sent], over: Sequence[Any]) -> list[Outcome | WorkerFailed]:
    """What calls that are over came to."""
    import ray

    try:
        outcomes: list[Outcome] = ray.get(list(over))
    except ray.exceptions.RayError:
        return [_found(pending[call].name, call) for call in over]
    return [
        _failure(pending[call].name, came) if came.failed else came for call, came in zip(over, outcomes, strict=True)
    ]


def _found(name: str, call: Any) -> Outcome | WorkerFailed:
    import ray

    try:
        found: Outcome = ray.get(call)
    except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
        hint = said("read the log of {name} under logs/ in the run folder", name=name)
        return WorkerLost(_death(name, error), actor=name, hint=hint)
    except ray.exceptions.RayTaskError as error:
        return WorkerFailed(said("{name}: {cause}", name=name, cause=error.cause), actor=name, trace=str(error))
    except ray.exceptions.RayError as error:
        return WorkerFailed(
            said("{name}: {kind}: {error}", name=name, kind=type(error).__name__, error=error), actor=name
        )
    return _failure(name, found) if found.failed else found


def _failure(name: str, found: Outcome) -> WorkerFailed:
    message = said("{name}: {error}", name=name, error=found.error)
    return WorkerFailed(message, actor=name, trace=found.trace, hint=found.hint)


def _death(name: str, error: Exception) -> str:
    """Why a worker is gone, in one line, from Ray's long account of it."""
    import ray

    text = " ".join(str(error).split())
    if isinstance(error, ray.exceptions.OutOfMemoryError) or "running low on memory" in text:
        return said("{name}: its process was killed because its machine ran low on memory", name=name)
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return said("{name}: its process died or its machine is down: the connection to it closed", name=name)
    found = re.search(r"Worker exit detail: (.*?\.)( Some common causes| Ray| The actor|$)", text)
    if found is None:
        return said("{name}: its process died ({reason})", name=name, reason=text[:300])
    out_of_reach = "End of file" in found[1] or "connection error" in found[1]
    return said(
        "{name}: its process died ({reason})",
        name=name,
        reason="it was killed, or it crashed" if out_of_reach else found[1],
    )
