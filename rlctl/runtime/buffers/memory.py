"""The buffer in the controller's memory: first in, first out, or by priority where responses are replayed.

A checkpoint holds its contents. Where it replays and is full, the group of the lowest priority gives way and writers never
wait; the end of writing ends replay too, as the writer is the run itself.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Any

import numpy as np

from rlctl.common.messages.reasons import said
from rlctl.runtime.buffers.interface import POLL_SECONDS, BufferTimeout, Statistics, never, responses_in, version_of
from rlctl.runtime.buffers.record import group_of, plain_of
from rlctl.runtime.buffers.replay import Reuse
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.processes.calls import StopRequested


@dataclass(slots=True)
class _Entry:
    """A group that waits."""

    group: RolloutGroup
    number: int
    """In the order of arrival; a group that comes back arrives anew."""
    uses: int = 0
    priority: float = 0.0

    @property
    def place(self) -> tuple[float, int]:
        """The lowest is taken first."""
        return (-self.priority, self.number)


class MemoryBuffer:
    """Groups in memory.

    Args:
        capacity: responses that may wait; None is any number.
        read_timeout: seconds that a reader waits at most.
        reuse: order and replay; None is first in, first out, each once.
        seed: of the rules that draw lots.
        stopped: tells that the run is asked to end.
        clock: seconds, of cool-downs.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        read_timeout: float = 1800.0,
        reuse: Reuse | None = None,
        seed: int = 0,
        stopped: Callable[[], bool] = never,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = capacity
        self._timeout = read_timeout
        self._reuse = reuse
        self._random = np.random.default_rng(seed)
        self._stopped = stopped
        self._clock = clock
        self._changed = Condition()
        self._waiting: list[_Entry] = []
        """In the order in which they are taken."""
        self._cooling: list[tuple[float, _Entry]] = []
        """With the time at which each comes back."""
        self._responses = 0
        self._wanted = 0
        """Groups that a reader waits for."""
        self._ended = False
        self._put = self._taken = self._dropped = self._reused = self._arrived = 0

    def put(self, groups: Sequence[RolloutGroup]) -> None:
        for group in groups:
            with self._changed:
                while self._reuse is None and not self._has_room(group):
                    self._wait()
                self._insert(_Entry(group, 0))
                self._put += 1
                self._changed.notify_all()

    def _has_room(self, group: RolloutGroup) -> bool:
        if self._capacity is None or len(self._waiting) < self._wanted:
            return True
        return not self._waiting or self._responses + responses_in(group) <= self._capacity

    def _insert(self, entry: _Entry) -> None:
        """Put a group in its place; where it replays and there is no room, those of lower priority give way, or it does."""
        if self._reuse is not None:
            noise = float(self._random.standard_normal())
            entry.priority, kept = self._reuse.priority(version_of(entry.group), entry.uses, noise)
            if not kept or not self._made_room(entry):
                self._dropped += 1
                return
        entry.number = self._arrived
        self._arrived += 1
        bisect.insort(self._waiting, entry, key=lambda each: each.place)
        self._responses += responses_in(entry.group)

    def _made_room(self, entry: _Entry) -> bool:
        """Let groups of lower or equal priority give way if that makes room for a group; whether it does."""
        if self._capacity is None:
            return True
        missing, giving = self._responses + responses_in(entry.group) - self._capacity, []
        for place in self._from_the_lowest():
            if missing <= 0:
                break
            if self._waiting[place].priority > entry.priority:
                return False
            missing -= responses_in(self._waiting[place].group)
            giving.append(place)
        for place in sorted(giving, reverse=True):
            self._responses -= responses_in(self._waiting.pop(place).group)
            self._dropped += 1
        return True

    def _from_the_lowest(self) -> Iterator[int]:
        """The places of the groups that wait: the lowest priority first, and of equals the oldest."""
        end = len(self._waiting)
        while end:
            lowest = self._waiting[end - 1].priority
            first = bisect.bisect_left(self._waiting, (-lowest, -1), key=lambda each: each.place)
            yield from range(first, end)
            end = first

    def take(self, count: int, *, oldest_version: int = 0) -> list[RolloutGroup]:
        began = time.monotonic()
        with self._changed:
            self._wanted = count
            try:
                while not self._enough(count, oldest_version):
                    self._changed.notify_all()
                    if time.monotonic() - began > self._timeout:
                        raise self._overdue(count)
                    self._wait()
            finally:
                self._wanted = 0
            taken = [self._taken_out(entry) for entry in self._waiting[:count]]
            del self._waiting[:count]
            self._changed.notify_all()
        return taken

    def _enough(self, count: int, oldest_version: int) -> bool:
        """Whether a reader need not wait."""
        self._warm()
        self._drop_older(oldest_version)
        return len(self._waiting) >= count or self._ended

    def _warm(self) -> None:
        """Bring back what has cooled down."""
        now = self._clock()
        back = [entry for at, entry in self._cooling if at <= now]
        self._cooling = [(at, entry) for at, entry in self._cooling if at > now]
        for entry in back:
            self._insert(entry)

    def _drop_older(self, oldest_version: int) -> None:
        kept = [entry for entry in self._waiting if version_of(entry.group) >= oldest_version]
        self._dropped += len(self._waiting) - len(kept)
        self._waiting = kept
        self._responses = sum(responses_in(entry.group) for entry in kept)

    def _taken_out(self, entry: _Entry) -> RolloutGroup:
        self._responses -= responses_in(entry.group)
        self._taken += 1
        self._reused += entry.uses > 0
        entry.uses += 1
        if self._reuse is not None and self._reuse.cooldown is not None and not self._ended:
            self._cooling.append((self._clock() + self._reuse.cooldown, entry))
        return entry.group

    def _overdue(self, count: int) -> BufferTimeout:
        return BufferTimeout(
            said(
                "waited {seconds:g} s for {count} groups of responses; the buffer has {waiting}, of {put} put in and {taken} "
                "taken so far",
                seconds=self._timeout,
                count=count,
                waiting=len(self._waiting),
                put=self._put,
                taken=self._taken,
            ),
            hint="check why rollout is slow, or raise buffer.read_timeout",
        )

    def _wait(self) -> None:
        if self._stopped():
            raise StopRequested
        self._changed.wait(POLL_SECONDS)

    def end_writing(self) -> None:
        with self._changed:
            self._ended = True
            self._cooling.clear()
            self._changed.notify_all()

    def statistics(self) -> Statistics:
        with self._changed:
            return Statistics(self._responses, self._put, self._taken, self._dropped, self._reused)

    def state(self) -> dict[str, Any]:
        with self._changed:
            now = self._clock()
            waiting = [[entry.uses, entry.number, entry.priority, plain_of(entry.group)] for entry in self._waiting]
            cooling = [[at - now, entry.uses, plain_of(entry.group)] for at, entry in self._cooling]
            counts = [self._put, self._taken, self._dropped, self._reused, self._arrived]
            lots = self._random.bit_generator.state
            return {"waiting": waiting, "cooling": cooling, "counts": counts, "lots": lots}

    def restore(self, state: dict[str, Any]) -> None:
        if not state:
            return
        with self._changed:
            now = self._clock()
            self._waiting = [
                _Entry(group_of(plain), number, uses, priority) for uses, number, priority, plain in state["waiting"]
            ]
            self._cooling = [(now + left, _Entry(group_of(plain), 0, uses)) for left, uses, plain in state["cooling"]]
            self._put, self._taken, self._dropped, self._reused, self._arrived = state["counts"]
            self._random.bit_generator.state = state["lots"]
            self._responses = sum(responses_in(entry.group) for entry in self._waiting)

    def acknowledge(self, state: dict[str, Any]) -> None:
        """The checkpoint itself holds the contents."""

    def close(self) -> None:
        """Memory is left with the process."""
