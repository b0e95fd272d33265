"""Worker processes: spawn them, call all of them, replace those that are lost. What waiting for them comes to is in ``calls.py``.

    Group ── each(Trainer.train_step, shares) ──▶ Host (Ray actor) ── worker.train_step(share) ──▶ plain class

A worker is a plain class that knows nothing of Ray. ``RayGroup`` hosts one in each of several actors; ``LocalGroup`` holds one in
this process, for machines without Ray. Methods are passed as functions (``Trainer.train_step``), so an editor can follow a call.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

from rlctl.common.errors import RlctlError
from rlctl.runtime.processes.calls import (
    SILENCE_SECONDS,
    Calls,
    Heartbeat,
    Outcome,
    Sent,
    WorkerLost,
    first_of,
)
from rlctl.runtime.processes.environment import enter
from rlctl.runtime.processes.parcels import Parcel, parcels
from rlctl.runtime.processes.ray_access import address_of_this_machine
from rlctl.runtime.processes.vitals import of_worker
from rlctl.runtime.profiling.tools import Order, WorkerProfile
from rlctl.runtime.profiling.usage import CallLog, Watch


class Host:
    """Holds one worker in a process of its own; hosted by a Ray actor."""

    def __init__(self, environment: Mapping[str, str], log: str) -> None:
        """Take on the surroundings; output goes to ``log`` where its folder can be reached from here."""
        self._entered = _attempt(lambda: enter(environment, log))
        self._worker: Any = None
        self._profile = WorkerProfile()
        self._vitals = of_worker(log)

    def started(self) -> Outcome:
        """Whether the surroundings were taken on; answered as soon as the process runs."""
        return self._entered

    def address(self) -> Outcome:
        """This machine's address, and a port of this process that others can meet it at."""
        return _attempt(_address)

    def machine(self) -> Outcome:
        """This machine's address in the cluster."""
        return _attempt(address_of_this_machine)

    def build(self, factory: Callable[..., Any], *args: Any) -> Outcome:
        """Make the worker."""
        if self._entered.failed:
            return self._entered
        with self._vitals.doing("start"):
            outcome = _attempt(lambda: factory(*args))
        self._worker = outcome.value
        return Outcome(error=outcome.error, hint=outcome.hint, trace=outcome.trace)

    def call(self, method: str, *args: Any) -> Outcome:
        """Call a method of the worker."""
        return _attempt(lambda: self._run(method, *args))

    def side(self, method: str, *args: Any) -> Outcome:
        """Call a method of the worker beside its other calls, in another thread; the method is safe for that.

        The call may only wait. What it counts as is the ``busy_seconds`` of the worker, if it has them.
        """
        outcome = _attempt(lambda: getattr(self._worker, method)(*args))
        busy = getattr(self._worker, "busy_seconds", None)
        usage = outcome.usage._replace(seconds=busy()) if busy is not None and outcome.usage is not None else None
        return replace(outcome, usage=usage)

    def keep(self, method: str, *args: Any) -> Outcome:
        """Call a method and keep its value here: the outcome holds a handle that other workers can be given, or None for None."""
        return _attempt(lambda: _kept(self._run(method, *args)))

    def _run(self, method: str, *args: Any) -> Any:
        with self._vitals.doing(method), self._profile.around(method):
            own = [argument.fetch() if isinstance(argument, Parcel) else argument for argument in args]
            return getattr(self._worker, method)(*own)

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
        """The worker's process id; asked in another thread, whether the process answers at all."""
        return os.getpid()


def _kept(value: Any) -> Any:
    import ray

    return None if value is None else ray.put(value)


def spawn(environment: Mapping[str, str], log: str, **options: Any) -> Any:
    """A host in an actor of its own, which answers ``process`` while it computes. Returns its handle."""
    import ray

    threads = dict.fromkeys((HEARTBEAT, *LANES), 1)
    actor = ray.remote(concurrency_groups=threads, **options)(Host)
    return actor.remote(dict(environment), log)


CALLS_A_SECOND = 200
"""Calls that wait for workers which have nothing to return, of all workers of a role together: each costs the controller time."""
NOT_STARTED = "its process has not started within {:g} s (runtime.ray.startup_timeout)"
HEARTBEAT = "heartbeat"
"""The actor's threads that do not wait for its work."""
Lane = Literal["submit", "collect"]
"""A thread of a worker for calls that must not wait for its other calls; calls of one lane come one after another."""
LANES: tuple[Lane, ...] = get_args(Lane)


def _heartbeat(actor: Any) -> Callable[[], Any]:
    """What asks a host for a heartbeat."""
    ask: Callable[[], Any] = actor.process.options(concurrency_group=HEARTBEAT).remote
    return ask


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
    from rlctl.runtime.train.distributed import offer

    address = address_of_this_machine()
    return address, offer(address)


@dataclass(frozen=True)
class RetryPolicy:
    """How a call is made again by a worker in the place of one that was lost."""

    times: int
    """At most, for one call."""
    tell: Callable[[WorkerLost], None]
    """Told of each lost worker."""
    renew: Callable[[int], None] = lambda index: None
    """Brings a new worker to where the others are."""
    make_room: Callable[[], None] | None = None
    """Has others leave the device before a new worker starts there; None if none share it."""


@dataclass(frozen=True)
class Limit:
    """How long a call may take."""

    seconds: float = math.inf
    told: str = ""
    """What is said of one that takes longer."""


class Waiting(Protocol):
    """Calls that were begun."""

    def wait(self) -> list[Any]:
        """Their values, in order."""


class Group(ABC):
    """Workers of one role. Calls of several threads come one after another, so that all workers get them in one order."""

    names: Sequence[str]
    log: CallLog
    """Gets every call of a method."""
    turn: AbstractContextManager[Any]
    """Within, no other thread calls these workers."""

    @property
    @abstractmethod
    def hold_seconds(self) -> float:
        """How long a worker may hold a call until there is something to return."""

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def each(
        self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, again: RetryPolicy | None = None
    ) -> list[Any]:
        """Call ``method`` on worker i with ``arguments[i]``; all values, in order.

        With ``again`` a worker that is lost is replaced, and called again; only for what does not depend on earlier calls.
        """

    @abstractmethod
    def begin(
        self,
        method: Callable[..., Any],
        arguments: Mapping[int, tuple[Any, ...]],
        *,
        keep: bool = False,
        again: RetryPolicy | None = None,
        limit: Limit = Limit(),
        beside: Waiting | None = None,
        lane: Lane | None = None,
    ) -> Waiting:
        """Call ``method`` on workers by their index, and do not wait; with ``keep`` values are handles, as of ``fetch``.

        ``beside`` are calls of this group that these depend on: a failure among them is one of these. Calls of a ``lane``
        run beside the worker's other calls.
        """

    @abstractmethod
    def first(self, waiting: Sequence[Waiting], seconds: float) -> list[int]:
        """Which of some calls, each of one worker, can be waited for now, once any can; none after ``seconds``."""

    @abstractmethod
    def processes_of(self) -> range:
        """Indices for ``begin``: of all processes, also of those that are one to ``each``."""

    @abstractmethod
    def share(self, value: Any) -> Any:
        """A handle on a value, which can be passed to many workers and crosses to each machine once."""

    @abstractmethod
    def shares(self, values: Sequence[Any]) -> Sequence[Any]:
        """Large values as arguments of calls, each for other workers, which get the values."""

    def all(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``method`` on every worker with the same arguments."""
        return self.each(method, [args] * len(self))

    def fetch(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """As ``all``, giving handles that can be passed as arguments to workers of any group."""
        with self.turn:
            return self.begin(method, dict.fromkeys(self.processes_of(), args), keep=True).wait()

    @abstractmethod
    def start_profiles(self, orders: Mapping[int, Order]) -> None:
        """Let some workers, by rank, record what they do."""

    @abstractmethod
    def end_profiles(self, ranks: Sequence[int], label: str) -> None:
        """Let them write what they recorded; ``label`` is part of the names of the files."""

    @abstractmethod
    def close(self) -> None:
        """End the processes."""


@dataclass(frozen=True)
class _Later:
    """A call in this process: it is made when it is waited for."""

    call: Callable[[], list[Any]]

    def wait(self) -> list[Any]:
        return self.call()


class LocalGroup(Group):
    """One worker in this process."""

    hold_seconds = 0.1

    def __init__(self, name: str, worker: Any) -> None:
        self.names: Sequence[str] = [name]
        self.log = CallLog()
        self.turn = threading.RLock()
        self._worker = worker
        self._profile = WorkerProfile()

    def each(
        self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, again: RetryPolicy | None = None
    ) -> list[Any]:
        watch = Watch()
        with self.turn, watch.around(), self._profile.around(method.__name__):
            value = method(self._worker, *arguments[0])
        self.log.add(self.names[0], method.__name__, watch.usage)
        return [value]

    def begin(
        self,
        method: Callable[..., Any],
        arguments: Mapping[int, tuple[Any, ...]],
        *,
        again: RetryPolicy | None = None,
        **options: Any,
    ) -> Waiting:
        return _Later(lambda: self.each(method, list(arguments.values()), again=again) if arguments else [])

    def first(self, waiting: Sequence[Waiting], seconds: float) -> list[int]:
        return list(range(len(waiting)))

    def processes_of(self) -> range:
        return range(1)

    def share(self, value: Any) -> Any:
        return value

    def shares(self, values: Sequence[Any]) -> Sequence[Any]:
        return values

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


class Replicas(Group):
    """A group of which several workers work on the same: they share a model or sequences, and are one to the controller."""

    def __init__(self, group: Group, members: Sequence[Sequence[int]]) -> None:
        """``members``: the workers of each replica, by their number in ``group``; all of it. The first answers for all."""
        self._group, self._members = group, members
        self._first = [each[0] for each in members]
        self.names: Sequence[str] = [group.names[first] for first in self._first]
        self.turn = group.turn

    @property
    def log(self) -> CallLog:
        return self._group.log

    @log.setter
    def log(self, log: CallLog) -> None:
        self._group.log = log

    @property
    def hold_seconds(self) -> float:
        return self._group.hold_seconds

    def each(
        self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, again: RetryPolicy | None = None
    ) -> list[Any]:
        assert again is None, "workers that share sequences fail together"
        own = {member: each for members, each in zip(self._members, arguments, strict=True) for member in members}
        return self._of_first(self._group.each(method, [own[member] for member in range(len(self._group))]))

    def _of_first(self, answers: Sequence[Any]) -> list[Any]:
        return [answers[first] for first in self._first]

    def begin(self, method: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]], **options: Any) -> Waiting:
        return self._group.begin(method, arguments, **options)

    def first(self, waiting: Sequence[Waiting], seconds: float) -> list[int]:
        return self._group.first(waiting, seconds)

    def processes_of(self) -> range:
        return self._group.processes_of()

    def share(self, value: Any) -> Any:
        return self._group.share(value)

    def shares(self, values: Sequence[Any]) -> Sequence[Any]:
        return self._group.shares(values)

    def fetch(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        return self._of_first(self._group.fetch(method, *args))

    def start_profiles(self, orders: Mapping[int, Order]) -> None:
        self._group.start_profiles({self._first[rank]: order for rank, order in orders.items()})

    def end_profiles(self, ranks: Sequence[int], label: str) -> None:
        self._group.end_profiles([self._first[rank] for rank in ranks], label)

    def close(self) -> None:
        self._group.close()


class RayGroup(Group):
    """Workers in Ray actors."""

    def __init__(
        self,
        names: Sequence[str],
        spawn: Callable[[int], Any],
        stop_requested: Callable[[], bool],
        *,
        limit: float = math.inf,
    ) -> None:
        """Start their processes.

        Args:
            names: of the workers.
            spawn: starts the process of one.
            stop_requested: whether the run was asked to end, which ends every wait.
            limit: seconds that a call may take.
        """
        self.names: Sequence[str] = list(names)
        self.log = CallLog()
        self._spawn = spawn
        self._stop_requested = stop_requested
        self._limit = limit
        self.turn = threading.RLock()
        self._actors = [spawn(index) for index in range(len(names))]
        silence = min(SILENCE_SECONDS, limit / 2)
        self._pulses = [Heartbeat(_heartbeat(actor), silence) for actor in self._actors]
        self._made: tuple[Callable[..., Any], Sequence[tuple[Any, ...]]] | None = None
        """What the workers were made by and of."""

    @property
    def hold_seconds(self) -> float:
        return min(5.0, max(0.1, len(self) / CALLS_A_SECOND))

    def build(self, factory: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Calls:
        """Make every worker at the same time: those of one role meet in a process group."""
        self._made = factory, arguments
        return self._ask(range(len(self)), self._build, noted="build", beats=False)

    def _build(self, index: int) -> Any:
        assert self._made is not None, "a worker is made again as it was made"
        factory, arguments = self._made
        return self._actors[index].build.remote(factory, *arguments[index])

    def made_again_with(self, arguments: Sequence[tuple[Any, ...]]) -> None:
        """Let workers in the place of lost ones be made with other arguments."""
        assert self._made is not None, "the workers were started before"
        self._made = self._made[0], arguments

    def replace(self, index: int) -> None:
        """Put a new worker, made as it was, in the place of one that is lost.

        Raises:
            WorkerFailed: it cannot be made.
            WorkerLost: nothing is heard of it, as where no machine has room for it.
        """
        import ray

        ray.kill(self._actors[index], no_restart=True)
        actor = self._actors[index] = self._spawn(index)
        self._pulses[index].begin(_heartbeat(actor))
        self._ask([index], self._build).wait()

    def begin(
        self,
        method: Callable[..., Any],
        arguments: Mapping[int, tuple[Any, ...]],
        *,
        keep: bool = False,
        again: RetryPolicy | None = None,
        limit: Limit = Limit(),
        beside: Waiting | None = None,
        lane: Lane | None = None,
    ) -> Calls:
        asked = "keep" if keep else "side" if lane else "call"
        indices = sorted(arguments)
        called: dict[int, Any] = {}
        """The actor that the call of each worker went to."""

        def call(index: int) -> Any:
            actor = called[index] = self._actors[index]
            method_of = getattr(actor, asked)
            to_lane = method_of.options(concurrency_group=lane) if lane else method_of
            return to_lane.remote(method.__name__, *arguments[index])

        with self.turn:
            waiting = self._ask(indices, call, noted=method.__name__)
        if limit.seconds < self._limit:
            waiting.limit, waiting.overdue = limit.seconds, limit.told
        if isinstance(beside, Calls):
            waiting.beside = beside
        if again is not None:
            waiting.again = self._maker_again(again, waiting.sent, indices, called, call)
        return waiting

    def first(self, waiting: Sequence[Waiting], seconds: float) -> list[int]:
        return first_of([each for each in waiting if isinstance(each, Calls)], seconds)

    def processes_of(self) -> range:
        return range(len(self))

    def share(self, value: Any) -> Any:
        import ray

        return ray.put(value)

    def shares(self, values: Sequence[Any]) -> Sequence[Any]:
        return parcels(values)

    def started(self, seconds: float) -> Calls:
        """Wait for the processes: Ray starts one again and again where it ends at once."""
        calls = self._ask(range(len(self)), lambda index: self._actors[index].started.remote(), beats=False)
        calls.limit, calls.overdue = seconds, NOT_STARTED
        return calls

    def address(self) -> Calls:
        """Where the first worker can be met: its machine, and a port that is free there."""
        return self._ask([0], lambda index: self._actors[index].address.remote(), beats=False)

    def machines(self) -> list[str]:
        """The address of the machine of each worker in the cluster."""
        calls = self._ask(range(len(self)), lambda index: self._actors[index].machine.remote(), beats=False)
        found: list[str] = calls.wait()
        return found

    def each(
        self, method: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, again: RetryPolicy | None = None
    ) -> list[Any]:
        with self.turn:
            return self.begin(method, dict(enumerate(arguments)), again=again).wait()

    def _maker_again(
        self,
        again: RetryPolicy,
        sent: Sequence[Sent],
        indices: Sequence[int],
        called: Mapping[int, Any],
        call: Callable[[int], Any],
    ) -> Callable[[int, WorkerLost], Sent]:
        left = [again.times] * len(indices)

        def replaced(place: int, lost: WorkerLost) -> Sent:
            index = indices[place]
            if called[index] is self._actors[index]:  # else another call found it lost, and replaced it
                if not left[place]:
                    raise lost
                left[place] -= 1
                again.tell(lost)
                if again.make_room is not None:
                    again.make_room()
                self.replace(index)
                again.renew(index)
            return replace(sent[place], call=call(index))

        return replaced

    def start_profiles(self, orders: Mapping[int, Order]) -> None:
        self._ask(list(orders), lambda rank: self._actors[rank].start_profile.remote(orders[rank])).wait()

    def end_profiles(self, ranks: Sequence[int], label: str) -> None:
        self._ask(ranks, lambda rank: self._actors[rank].end_profile.remote(label)).wait()

    def drop(self) -> None:
        """End the workers, and keep their processes."""
        ending = self._ask(range(len(self)), lambda index: self._actors[index].drop.remote())
        ending.stop_requested = lambda: False
        ending.wait()

    def processes(self) -> list[int]:
        """Process ids, in order."""
        import ray

        return [int(pid) for pid in ray.get([actor.process.remote() for actor in self._actors])]

    def _ask(self, indices: Sequence[int], ask: Callable[[int], Any], *, noted: str = "", beats: bool = True) -> Calls:
        """Call some workers.

        Args:
            indices: of the workers.
            ask: makes the call of one.
            noted: the method that the calls are noted as; empty for what is no part of a step.
            beats: whether the workers have a heartbeat already; those that have not started yet have none.
        """
        pulses = [self._pulses[index] if beats else None for index in indices]
        sent = [Sent(ask(index), place, self.names[index], pulses[place]) for place, index in enumerate(indices)]
        waiting = Calls([each.name for each in sent], sent, self._stop_requested, limit=self._limit)
        if noted:
            waiting.over = lambda workers, usages: self.log.add_all(workers, noted, usages)
        return waiting

    def close(self) -> None:
        import ray

        for actor in self._actors:
            ray.kill(actor, no_restart=True)
