"""Worker processes: spawn them, call all of them, and tell the first error that matters with the worker it came from.

    Group ── each(Trainer.train_step, shares) ──▶ Host (Ray actor) ── worker.train_step(share) ──▶ plain class

A worker is a plain class that knows nothing of Ray. ``RayGroup`` hosts one in each of several actors; ``LocalGroup`` holds one in
this process, for machines without Ray. Methods are passed as functions (``Trainer.train_step``), so an editor can follow a call.
"""

from __future__ import annotations

import gc
import os
import re
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlctl.errors import RlctlError, RunError
from rlctl.runtime.profiling.tools import Order, WorkerProfile
from rlctl.runtime.profiling.usage import CallLog, Usage, Watch

FIRST_CAUSE_SECONDS = 3.0
"""How long others are listened to when a worker fails in a way that the end of another worker would explain."""
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
        return (_rebuild, (self.message, self.actor, self.trace, self.hint))


def _rebuild(message: str, actor: str, trace: str, hint: str) -> WorkerFailed:
    return WorkerFailed(message, actor=actor, trace=trace, hint=hint)


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


class Host:
    """Holds one worker in a process of its own; hosted by a Ray actor."""

    def __init__(self, environment: Mapping[str, str], log: str) -> None:
        """Take the environment, and write output to ``log`` where its folder can be reached from here."""
        os.environ.update(environment)
        _write_output_to(log)
        self._worker: Any = None
        self._profile = WorkerProfile()

    def address(self) -> Outcome:
        """This machine's address, and a port that is free on it."""
        return _attempt(_address)

    def build(self, factory: Callable[..., Any], *args: Any) -> Outcome:
        """Make the worker."""
        outcome = _attempt(lambda: factory(*args))
        self._worker = outcome.value
        return Outcome(error=outcome.error, hint=outcome.hint, trace=outcome.trace)

    def call(self, method: str, *args: Any) -> Outcome:
        """Call a method of the worker."""
        return _attempt(lambda: self._run(method, *args))

    def keep(self, method: str, *args: Any) -> Outcome:
        """Call a method and keep its value here: the outcome holds a handle that other workers can be given."""
        import ray

        return _attempt(lambda: ray.put(self._run(method, *args)))

    def _run(self, method: str, *args: Any) -> Any:
        with self._profile.around(method):
            return getattr(self._worker, method)(*args)

    def start_profile(self, order: Order) -> Outcome:
        """Record what the worker does."""
        return _attempt(lambda: self._profile.begin(order))

    def end_profile(self, label: str) -> Outcome:
        """Write what was recorded."""
        return _attempt(lambda: self._profile.end(label))

    def drop(self) -> Outcome:
        """End the worker, and keep the process."""
        outcome = _attempt(lambda: getattr(self._worker, "close", lambda: None)())
        self._worker = None
        gc.collect()
        return outcome

    def process(self) -> int:
        """The worker's process id."""
        return os.getpid()


def _write_output_to(log: str) -> None:
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return  # on a machine that does not share the run folder, Ray keeps the output in its own logs
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _attempt(action: Callable[[], Any]) -> Outcome:
    watch = Watch()
    try:
        with watch.around():
            value = action()
        return Outcome(value, usage=watch.usage)
    except RlctlError as error:
        return Outcome(error=error.account or type(error).__name__, hint=error.hint)
    except Exception as error:  # noqa: BLE001 - whatever a worker raises must reach the controller as data
        return Outcome(error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def _address() -> tuple[str, int]:
    import ray.util

    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(ray.util.get_node_ip_address()), int(probe.getsockname()[1])


class Calls:
    """Calls under way in workers, of one role or of several."""

    def __init__(
        self,
        names: Sequence[str],
        calls: Sequence[Any],
        stop_requested: Callable[[], bool],
        over: Callable[[str, Usage | None], None] = lambda worker, usage: None,
    ) -> None:
        """``over`` is told of each call that has given its value, with the worker's name and what it took."""
        self.names = list(names)
        self.calls = list(calls)
        self.stop_requested = stop_requested
        self.over = over

    def wait(self) -> list[Any]:
        """The values of all calls, in order.

        It ends at the first call that fails, since the others may wait for that worker in a collective. Where that
        failure is one that the end of another worker explains, the others are listened to for a moment.

        Raises:
            WorkerFailed: a call failed; of several failures, the one that explains the others.
            StopRequested: the run was asked to end.
        """
        import ray

        values: list[Any] = [None] * len(self.calls)
        pending = {call: index for index, call in enumerate(self.calls)}
        failed: WorkerFailed | None = None
        deadline = 0.0
        while pending:
            done, _ = ray.wait(list(pending), timeout=0.5 if failed is None else max(0.0, deadline - time.monotonic()))
            for call in done:
                index = pending.pop(call)
                try:
                    values[index] = _value(self.names[index], call, self.over)
                except WorkerFailed as error:
                    if not _CONSEQUENCE.search(error.message):
                        raise
                    failed, deadline = failed or error, deadline or time.monotonic() + FIRST_CAUSE_SECONDS
            if failed is not None and time.monotonic() >= deadline:
                break
            if self.stop_requested():
                raise StopRequested
        if failed is not None:
            raise failed
        return values


def together(parts: Sequence[Calls]) -> Calls:
    """Calls of several roles as one, so that the first failure of any of them is found."""
    names = [name for part in parts for name in part.names]
    calls = [call for part in parts for call in part.calls]
    return Calls(names, calls, parts[0].stop_requested if parts else lambda: False)


def _value(name: str, call: Any, over: Callable[[str, Usage | None], None]) -> Any:
    import ray

    try:
        outcome: Outcome = ray.get(call)
    except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
        raise WorkerFailed(_death(name, error), actor=name, hint=f"see {name} under logs/ in the run folder") from None
    except ray.exceptions.RayTaskError as error:
        raise WorkerFailed(f"{name}: {error.cause}", actor=name, trace=str(error)) from None
    except ray.exceptions.RayError as error:
        raise WorkerFailed(f"{name}: {type(error).__name__}: {error}", actor=name) from None
    if outcome.failed:
        raise WorkerFailed(f"{name}: {outcome.error}", actor=name, trace=outcome.trace, hint=outcome.hint)
    over(name, outcome.usage)
    return outcome.value


class Group(Protocol):
    """Workers of one role."""

    names: Sequence[str]
    log: CallLog
    """Gets every call of a method."""

    def __len__(self) -> int: ...

    def each(self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call ``method`` on worker i with ``arguments[i]``; all values, in order."""

    def all(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``method`` on every worker with the same arguments."""

    def fetch(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """As ``all``, giving handles that can be passed as arguments to workers of any group."""

    def start_profiles(self, orders: Mapping[int, Order]) -> None:
        """Let some workers, by rank, record what they do."""

    def end_profiles(self, ranks: Sequence[int], label: str) -> None:
        """Let them write what they recorded; ``label`` is part of the names of the files."""

    def close(self) -> None:
        """End the processes."""


class LocalGroup:
    """One worker in this process."""

    def __init__(self, name: str, worker: Any) -> None:
        self.names: Sequence[str] = [name]
        self.log = CallLog()
        self._worker = worker
        self._profile = WorkerProfile()

    def __len__(self) -> int:
        return 1

    def each(self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        watch = Watch()
        with watch.around(), self._profile.around(method.__name__):
            value = method(self._worker, *arguments[0])
        self.log.add(self.names[0], method.__name__, watch.usage)
        return [value]

    def all(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        return self.each(method, [args])

    fetch = all

    def start_profiles(self, orders: Mapping[int, Order]) -> None:
        for order in orders.values():
            self._profile.begin(order)

    def end_profiles(self, ranks: Sequence[int], label: str) -> None:
        if ranks:
            self._profile.end(label)

    def close(self) -> None:
        closing = getattr(self._worker, "close", None)
        if closing is not None:
            closing()


class Replicas:
    """A group of which every ``size`` neighbours work on the same: they share sequences, and are one to the controller."""

    def __init__(self, group: Group, size: int) -> None:
        self.names: Sequence[str] = group.names[::size]
        self._group, self._size = group, size

    @property
    def log(self) -> CallLog:
        return self._group.log

    @log.setter
    def log(self, log: CallLog) -> None:
        self._group.log = log

    def __len__(self) -> int:
        return len(self._group) // self._size

    def each(self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self._group.each(method, [each for each in arguments for _ in range(self._size)])[:: self._size]

    def all(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        return self._group.all(method, *args)[:: self._size]

    def fetch(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        return self._group.fetch(method, *args)[:: self._size]

    def start_profiles(self, orders: Mapping[int, Order]) -> None:
        self._group.start_profiles({rank * self._size: order for rank, order in orders.items()})

    def end_profiles(self, ranks: Sequence[int], label: str) -> None:
        self._group.end_profiles([rank * self._size for rank in ranks], label)

    def close(self) -> None:
        self._group.close()


class RayGroup:
    """Workers in Ray actors."""

    def __init__(self, names: Sequence[str], actors: Sequence[Any], stop_requested: Callable[[], bool]) -> None:
        self.names: Sequence[str] = list(names)
        self.log = CallLog()
        self._actors = list(actors)
        self._stop_requested = stop_requested

    def __len__(self) -> int:
        return len(self._actors)

    def build(self, factory: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Calls:
        """Make every worker at the same time: those of one role meet in a process group."""
        return self._calls(
            [actor.build.remote(factory, *args) for actor, args in zip(self._actors, arguments, strict=True)]
        )

    def address(self) -> Calls:
        """Where the first worker can be met: its machine, and a port that is free there."""
        return Calls(self.names[:1], [self._actors[0].address.remote()], self._stop_requested)

    def each(self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        calls = [actor.call.remote(method.__name__, *args) for actor, args in zip(self._actors, arguments, strict=True)]
        return self._calls(calls, method.__name__).wait()

    def all(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        return self.each(method, [args] * len(self._actors))

    def fetch(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        calls = [actor.keep.remote(method.__name__, *args) for actor in self._actors]
        return self._calls(calls, method.__name__).wait()

    def start_profiles(self, orders: Mapping[int, Order]) -> None:
        calls = [self._actors[rank].start_profile.remote(order) for rank, order in orders.items()]
        Calls([self.names[rank] for rank in orders], calls, self._stop_requested).wait()

    def end_profiles(self, ranks: Sequence[int], label: str) -> None:
        calls = [self._actors[rank].end_profile.remote(label) for rank in ranks]
        Calls([self.names[rank] for rank in ranks], calls, self._stop_requested).wait()

    def drop(self) -> None:
        """End the workers, and keep their processes."""
        Calls(self.names, [actor.drop.remote() for actor in self._actors], lambda: False).wait()

    def processes(self) -> list[int]:
        """Process ids, in order."""
        import ray

        return [int(pid) for pid in ray.get([actor.process.remote() for actor in self._actors])]

    def _calls(self, calls: list[Any], method: str = "build") -> Calls:
        return Calls(self.names, calls, self._stop_requested, lambda worker, usage: self.log.add(worker, method, usage))

    def close(self) -> None:
        import ray

        for actor in self._actors:
            ray.kill(actor, no_restart=True)


def _death(name: str, error: Exception) -> str:
    """Why a worker is gone, in one line, from Ray's long account of it."""
    import ray

    text = " ".join(str(error).split())
    if isinstance(error, ray.exceptions.OutOfMemoryError) or "running low on memory" in text:
        return f"{name}: its process was ended because its machine ran low on memory"
    found = re.search(r"Worker exit detail: (.*?\.)( Some common causes| Ray| The actor|$)", text)
    if found is None:
        return f"{name}: its process died ({text[:300]})"
    out_of_reach = "End of file" in found[1] or "connection error" in found[1]
    return f"{name}: its process died ({'it was killed, or it crashed' if out_of_reach else found[1]})"
