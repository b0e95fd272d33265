"""Calls of many workers by way of some of them: the controller makes few calls, however many workers a role has.

    controller ──order──▶ worker 0   ── itself, and worker 1, worker 32, … in the same manner
               ──order──▶ worker 256 ── …            4 branches at most, here of 256 workers each

The first worker of a branch calls the others of it from a separate thread, and answers when all have: their values in order,
or joined to one. As soon as one fails, it answers with the values so far and with handles on the calls that are under way, so
the controller alone decides what follows from a failure (``calls.Calls``).

Workers get their calls in the order in which the controller makes them: every call of a worker takes the same path, also one
for a single worker, and each order names the one before it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, Protocol, runtime_checkable

from rlctl.runtime.processes.calls import (
    Heartbeat,
    Outcome,
    Reply,
    Sent,
    WorkerFailed,
    WorkerLost,
    finished,
    found_of,
    silence_of,
)
from rlctl.runtime.profiling.usage import Usages

FAN = 8
"""Calls that a worker makes for any number of others. The controller calls a role of no more workers directly."""
BRANCHES = 4
"""Calls that the controller makes for a role of more workers; each takes it about a millisecond."""
SLACK_SECONDS = 5.0
"""How much longer the caller of a relay waits than the relay itself waits for each worker."""
RELAY = "relay"
"""Name of a worker's threads that call others."""
ORDERS_AT_ONCE = 4
"""Orders that a worker can have under way: in a weight sync some end only when all buckets are sent."""
TURN_SECONDS = 60.0
"""How long an order waits for the one before it, which was sent earlier."""


@runtime_checkable
class Given(Protocol):
    """The arguments of a call, by worker."""

    @property
    def indices(self) -> Sequence[int]:
        """The workers, ascending."""
        ...

    def of(self, index: int) -> tuple[Any, ...]:
        """Those of a worker."""
        ...

    def cut(self, members: range) -> Given:
        """Those of some neighbours, to be sent to one of them."""
        ...


@runtime_checkable
class Stored(Protocol):
    """Arguments with arrays that stay in the object store until a relay fetches them."""

    def on_the_way(self) -> tuple[Filled, list[Any]]:
        """As they cross to a relay, and Ray's handles on the arrays, which are further arguments of the call."""
        ...


@runtime_checkable
class Filled(Protocol):
    """Such arguments, come to the relay."""

    def filled(self, given: Sequence[Any]) -> Given:
        """With their arrays."""
        ...


@dataclass(frozen=True, slots=True)
class Same:
    """Every worker gets the same."""

    indices: Sequence[int]
    arguments: tuple[Any, ...]

    def of(self, index: int) -> tuple[Any, ...]:
        return self.arguments

    def cut(self, members: range) -> Same:
        if isinstance(self.indices, range):
            return Same(
                range(max(self.indices[0], members.start), min(self.indices[-1] + 1, members.stop)), self.arguments
            )
        return Same([index for index in self.indices if index in members], self.arguments)


@dataclass(frozen=True, slots=True)
class Own:
    """Every worker gets its own."""

    by_index: Mapping[int, tuple[Any, ...]]

    @property
    def indices(self) -> Sequence[int]:
        return sorted(self.by_index)

    def of(self, index: int) -> tuple[Any, ...]:
        return self.by_index[index]

    def cut(self, members: range) -> Own:
        return Own({index: self.by_index[index] for index in members if index in self.by_index})


def given(arguments: Mapping[int, tuple[Any, ...]]) -> Given:
    """The arguments of workers by their index; those of all are sent once if they are one object."""
    first = next(iter(arguments.values()), ())
    if not arguments or any(own is not first for own in arguments.values()):
        return Own(arguments)
    ordered = sorted(arguments)
    whole = ordered[-1] - ordered[0] == len(ordered) - 1
    return Same(range(ordered[0], ordered[-1] + 1) if whole else ordered, first)


def branches(members: range, fan: int) -> list[range]:
    """Up to ``fan`` branches of neighbours, of about equal size; of no more workers, one each."""
    count = min(fan, len(members))
    ends = [members.start + len(members) * number // count for number in range(count + 1)] if count else []
    return [range(start, end) for start, end in pairwise(ends)]


def levels(count: int, fan: int) -> int:
    """Calls in sequence from the first worker of a branch to the farthest; ``count`` is the size of the branch."""
    return 0 if count <= 1 else 1 + levels(-(-(count - 1) // fan), fan)


@dataclass(frozen=True, slots=True)
class Errand:
    """Calls of some workers, as their caller makes them."""

    asked: str
    """The host's method: ``call`` or ``keep``."""
    method: str
    arguments: Any
    """``Given``; ``Filled`` if arrays of them are further arguments of the call."""
    join: Callable[[list[Any]], Any] | None
    """Makes one value of those of neighbours, in order."""
    limit: float
    """Seconds that a call of a worker may take."""
    overdue: str
    leave: Callable[[Any], tuple[Any, Any] | None] | None = None
    """Makes of the value what the controller gets and arrays that stay in the object store; None leaves nothing there."""


@dataclass(frozen=True, slots=True)
class RelayOrder:
    """What the first worker of a branch receives."""

    ticket: int
    after: int
    """The ticket of the order before, to the same worker."""
    errand: Errand


class Links:
    """Calls from this process to workers that are neighbours, by way of some of them."""

    def __init__(
        self,
        members: range,
        names: Sequence[str],
        actors: Sequence[Any],
        beat: Callable[[Any], Callable[[], Any]],
        silence: float,
        fan: int,
        calls: int | None = None,
    ) -> None:
        """
        Args:
            members: the workers.
            names: theirs.
            actors: of the workers, in order; may change.
            beat: makes of an actor what asks it for a heartbeat.
            silence: seconds without a heartbeat after which a worker is lost.
            fan: calls that each worker makes that relays.
            calls: calls that are made here for all of them; ``fan`` by default.
        """
        self._start, self._names, self._actors = members.start, names, actors
        self._beat, self._silence, self._fan = beat, silence, fan
        self._branches = branches(members, calls or fan)
        self._last: dict[int, int] = {}
        """Ticket of the last order to each branch, by the branch's number; none if its first worker has not adopted it."""
        self._before: dict[int, int] = {}
        """As ``_last``, of branches that were adopted and must be again, by the same first worker."""
        self._pulses: dict[int, tuple[Any, Heartbeat]] = {}
        """Heartbeat of each branch's first worker, by the branch's number, with its actor."""

    def send(self, errand: Errand) -> list[Sent]:
        """Make the calls."""
        sent = []
        for number, branch in enumerate(self._branches):
            part = errand.arguments.cut(branch)
            if not part.indices:
                continue
            actor, name = self._actors[branch.start - self._start], self._names[branch.start - self._start]
            if len(branch) == 1:
                call = getattr(actor, errand.asked).remote(errand.method, *part.of(branch.start))
                sent.append(Sent(call, [branch.start], name, self._pulse(number, actor)))
            else:
                indices, way, handles = part.indices, part, list[Any]()
                if isinstance(part, Stored):
                    way, handles = part.on_the_way()
                order = RelayOrder(random.getrandbits(62), self._ticket(number, branch), replace(errand, arguments=way))
                self._last[number] = order.ticket
                slack = SLACK_SECONDS * levels(len(branch), self._fan)
                forward = actor.forward.options(concurrency_group=RELAY, num_returns=1 if errand.leave is None else 2)
                made = forward.remote(order, *handles)
                call, left = (made, None) if errand.leave is None else made
                sent.append(Sent(call, indices, name, self._pulse(number, actor), relays=True, slack=slack, left=left))
        return sent

    def forget(self, index: int) -> None:
        """A worker has been replaced: its branch must be adopted again, with the new actor."""
        number, branch = next((number, branch) for number, branch in enumerate(self._branches) if index in branch)
        last = self._last.pop(number, None)
        if index == branch.start:
            self._before.pop(number, None)
        elif last is not None:
            self._before[number] = last

    def follow(self, earlier: Links) -> None:
        """Make orders after those that were made by way of earlier links to the same workers."""
        for number, branch in enumerate(self._branches):
            place = branch.start - self._start
            if earlier._branches == self._branches and earlier._actors[place] == self._actors[place]:
                last = earlier._last.get(number, earlier._before.get(number))
                if last is not None:
                    self._before[number] = last

    def _ticket(self, number: int, branch: range) -> int:
        """Ticket of the last order to a branch, or of its adoption."""
        if number not in self._last:
            ticket = self._last[number] = random.getrandbits(62)
            own = slice(branch.start - self._start, branch.stop - self._start)
            adopt = self._actors[own.start].adopt.options(concurrency_group=RELAY)
            members = list(self._names[own]), list(self._actors[own])
            adopt.remote(ticket, self._before.pop(number, None), branch.start, *members, self._silence, self._fan)
        return self._last[number]

    def _pulse(self, number: int, actor: Any) -> Heartbeat:
        known = self._pulses.get(number)
        if known is None or known[0] is not actor:
            known = self._pulses[number] = actor, Heartbeat(self._beat(actor), self._silence)
        return known[1]


class Relay:
    """The part of a worker's process that calls others of its branch."""

    def __init__(self, beat: Callable[[Any], Callable[[], Any]]) -> None:
        """``beat``: see ``Links``."""
        self._beat = beat
        self._turn = threading.Condition()
        self._next = set[int]()
        """Tickets whose next order, or adoption, may be made."""
        self._own: tuple[int, str, Any] = (0, "", None)
        self._links: Links | None = None

    def adopt(
        self,
        ticket: int,
        after: int | None,
        start: int,
        names: Sequence[str],
        actors: Sequence[Any],
        silence: float,
        fan: int,
    ) -> None:
        """Take on a branch, whose workers are numbered from ``start`` on; the first is this one.

        ``after`` is the ticket of the last order to the branch as it was: workers that were not replaced get that order first.
        """
        with self._turn:
            if after is not None:
                self._turn.wait_for(lambda: after in self._next, TURN_SECONDS)
                self._next.discard(after)
            earlier, self._own = self._links, (start, names[0], actors[0])
            self._links = Links(range(start + 1, start + len(actors)), names[1:], actors[1:], self._beat, silence, fan)
            if earlier is not None:
                self._links.follow(earlier)
            self._next.add(ticket)
            self._turn.notify_all()

    def forward(self, order: RelayOrder, *arrays: Any) -> Any:
        """Make the calls; answer when all are over or one has failed.

        Returns:
            A ``Reply``; with ``Errand.leave`` also the arrays that stay in the object store, None if there are none.
        """
        errand = replace(filled(order.errand, arrays), leave=None)
        with self._turn:
            if not self._turn.wait_for(lambda: order.after in self._next, TURN_SECONDS):
                raise RuntimeError(f"an earlier call to this worker did not arrive within {TURN_SECONDS:g} s")
            assert self._links is not None, "a ticket is given by an adoption"
            number, name, actor = self._own
            sent = []
            if number in errand.arguments.indices:
                own = getattr(actor, errand.asked).remote(errand.method, *errand.arguments.of(number))
                sent.append(Sent(own, [number], name))
            sent += self._links.send(errand)
            self._next.remove(order.after)
            self._next.add(order.ticket)
            self._turn.notify_all()
        reply = _answer(errand, sent)
        return reply if order.errand.leave is None else left_of(reply, order.errand.leave)


def filled(errand: Errand, arrays: Sequence[Any]) -> Errand:
    """The errand with the arrays that came with it."""
    given = errand.arguments
    return replace(errand, arguments=given.filled(arrays)) if isinstance(given, Filled) else errand


def left_of(reply: Reply, leave: Callable[[Any], tuple[Any, Any] | None]) -> tuple[Reply, Any]:
    """What the controller gets of a reply, and the arrays that stay."""
    found = leave(reply.values) if reply.parts is None else None
    if found is None:
        return reply, None
    places, arrays = found
    return replace(reply, values=places, stored=True), arrays


def _answer(errand: Errand, sent: Sequence[Sent]) -> Reply:
    pending = {each.call: each for each in sent}
    found: dict[Any, Any] = {}
    began = time.monotonic()
    while pending:
        over = {call: found_of(pending[call].name, call) for call in finished(list(pending), 0.5)}
        found |= over or _late(errand, pending.values(), time.monotonic() - began)
        if any(isinstance(each, WorkerFailed) or (isinstance(each, Reply) and each.parts) for each in found.values()):
            return Reply(parts=[(each.told(), found.get(each.call)) for each in sent])
        for call in over:
            del pending[call]
    return _whole(errand, [found[each.call] for each in sent])


def _late(errand: Errand, pending: Iterable[Sent], seconds: float) -> dict[Any, WorkerLost]:
    """Calls whose workers do not answer, or that take too long."""
    silent = {each.call: silence_of(each, seconds, errand.limit, errand.overdue) for each in pending}
    return {call: lost for call, lost in silent.items() if lost is not None}


def _whole(errand: Errand, found: Sequence[Outcome | Reply]) -> Reply:
    usages = Usages.joined([Usages.of(each.usages if isinstance(each, Reply) else [each.usage]) for each in found])
    if errand.join is not None:
        values = errand.join([each.values if isinstance(each, Reply) else each.value for each in found])
    else:
        each_values = [each.values if isinstance(each, Reply) else [each.value] for each in found]
        values = list(chain.from_iterable(each_values))
    return Reply(values, usages)
