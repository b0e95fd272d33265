"""The thread that steps a rollout engine.

    submit ──▶ requests ──▶ thread: abort, submit, poll, poll, ... ──▶ finished ──▶ collect
                                 ▲
                                 └── held while another call uses the engine, resting while it sleeps or loads weights

An engine isn't safe for threads. The thread uses it in slices of ``SLICE_SECONDS``, and a caller that needs the engine waits
for one slice at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from rlctl.runtime.rollout.interface import Finished, RolloutEngine
from rlctl.runtime.types import Request

SLICE_SECONDS = 0.01
"""Longest time between two looks at new requests; a decoding step that takes longer is not interrupted."""
Rest = Literal["asleep", "loading"]


class Stepper:
    """Steps one engine in its own thread as long as a submitted request is unfinished. All methods are safe for threads."""

    def __init__(self, engine: RolloutEngine, *, wake: Callable[[], None] = lambda: None) -> None:
        """``wake`` is called before the engine is used; a no-op for an engine that is awake."""
        self._engine, self._wake = engine, wake
        self._changed = threading.Condition()
        self._holders = 0
        """Calls that use the engine, or wait for it."""
        self._stepping = False
        self._rests: set[Rest] = set()
        self._requests: dict[int, Request] = {}
        """Not yet given to the engine."""
        self._aborted: set[int] = set()
        self._missing: dict[int, int] = {}
        """Responses still to come, by ticket."""
        self._finished: list[Finished] = []
        self._failure: Exception | None = None
        self._busy = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, requests: Mapping[int, Request], aborted: Collection[int] = ()) -> None:
        """Give up some requests, then take others, each under a ticket; returns immediately. Ends a sleep.

        An engine that refuses a request fails the next ``collect``.
        """
        with self._changed:
            self._rests.discard("asleep")
            self._abort(aborted)
            self._requests |= requests
            self._missing |= {ticket: request.n for ticket, request in requests.items()}
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _abort(self, tickets: Collection[int]) -> None:
        for ticket in tickets:
            self._missing.pop(ticket, None)
            if self._requests.pop(ticket, None) is None:
                self._aborted.add(ticket)
        self._finished = [each for each in self._finished if each.ticket not in tickets]

    def abort_all(self) -> None:
        """Give up every request; a later one may have the same ticket."""
        with self.held():
            with self._changed:
                self._abort(list(self._missing))
                aborted, self._aborted = self._aborted, set()
                self._failure = None
                self._finished.clear()
            self._engine.abort(aborted)

    def collect(self, seconds: float) -> list[Finished]:
        """Return responses as soon as there are any, and none after ``seconds``.

        Raises:
            Exception: what the engine raised since the last call.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._finished or self._failure is not None, seconds)
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            finished, self._finished = self._finished, []
            return finished

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within, the thread leaves the engine alone."""
        with self._changed:
            self._holders += 1
            self._changed.wait_for(lambda: not self._stepping)
        try:
            yield
        finally:
            with self._changed:
                self._holders -= 1
                self._changed.notify_all()

    def rest(self, why: Rest) -> None:
        """Stop stepping: until the next ``submit`` if it sleeps, until ``resume`` if it loads weights."""
        with self._changed:
            self._rests.add(why)

    def resume(self, why: Rest) -> None:
        """End a rest."""
        with self._changed:
            self._rests.discard(why)
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def busy_seconds(self) -> float:
        """How long the thread has used the engine since the last call of this."""
        with self._changed:
            busy, self._busy = self._busy, 0.0
            return busy

    def _has_work(self) -> bool:
        if self._closed:
            return True
        return not self._holders and not self._rests and bool(self._missing or self._aborted)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._closed:
                    return
                requests, self._requests = self._requests, {}
                aborted, self._aborted = self._aborted, set()
                self._stepping = True
            found: list[Finished] = []
            failure: Exception | None = None
            began = time.perf_counter()
            try:
                self._wake()
                if aborted:
                    self._engine.abort(aborted)
                if requests:
                    self._engine.submit(requests)
                found = self._engine.poll(SLICE_SECONDS)
            except Exception as error:  # noqa: BLE001 - it is raised where responses are collected
                failure = error
            with self._changed:
                self._stepping = False
                self._busy += time.perf_counter() - began
                self._note(found, failure)
                self._changed.notify_all()

    def _note(self, found: list[Finished], failure: Exception | None) -> None:
        for each in found:
            if each.ticket not in self._missing:
                continue  # it was aborted while this slice finished it
            self._finished.append(each)
            self._missing[each.ticket] -= 1
            if not self._missing[each.ticket]:
                del self._missing[each.ticket]
        if failure is not None:
            self._failure = failure
            self._missing.clear()
