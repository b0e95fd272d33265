"""Workers that take work with ``submit`` and give results with ``collect``, each on its own, as the controller sees them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlctl.runtime.processes.group import Group, RetryPolicy, Waiting


class Sessions:
    """A session with every worker of a group; a worker that replaced another does not know it, and has none of its work.

    ``submit(session, opens, ...)`` of a worker returns whether it took the work, ``collect(session, seconds)`` None if it
    does not know the session.
    """

    def __init__(
        self, group: Group, submit: Callable[..., Any], collect: Callable[..., Any], again: RetryPolicy | None
    ) -> None:
        """
        Args:
            group: of the workers.
            submit: their method.
            collect: their method.
            again: how a worker that is lost is replaced.
        """
        self._group, self._submit, self._collect, self._again = group, submit, collect, again
        self._session = secrets.randbits(63)
        self._opens = [True] * len(group)
        self._collecting: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._opens)

    def submit(self, work: Mapping[int, tuple[Any, ...]]) -> list[int]:
        """Hand over the further arguments of ``submit`` by worker; the workers that have lost earlier work and took none."""
        if not work:
            return []
        arguments = {worker: (self._session, self._opens[worker], *own) for worker, own in work.items()}
        for worker in work:
            self._opens[worker] = False
        taken = self._group.begin(self._submit, arguments, again=self._again, lane="submit").wait()
        lost = [worker for worker, took in zip(work, taken, strict=True) if not took]
        for worker in lost:
            self._lose(worker)
        return lost

    def collecting(self, workers: Iterable[int]) -> list[Waiting]:
        """A ``collect`` call of each of these workers, under way or begun now."""
        workers = list(workers)
        for worker in workers:
            if worker not in self._collecting:
                call = {worker: (self._session, self._group.hold_seconds)}
                self._collecting[worker] = self._group.begin(self._collect, call, again=self._again, lane="collect")
        return [self._collecting[worker] for worker in workers]

    def first(self, waiting: list[Waiting], seconds: float) -> list[int]:
        """See ``Group.first``; the calls may be those of several groups."""
        return self._group.first(waiting, seconds)

    def take(self, worker: int) -> Any:
        """The result of a worker's ``collect`` call, waited for; None if it has lost its work."""
        found = self._collecting.pop(worker).wait()[0]
        if found is None:
            self._lose(worker)
        return found

    def _lose(self, worker: int) -> None:
        self._opens[worker] = True
        self._collecting.pop(worker, None)
