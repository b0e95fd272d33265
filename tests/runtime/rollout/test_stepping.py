"""The thread that steps an engine: with a scripted engine whose steps the test releases, and through worker and controller."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.processes.group import LocalGroup
from rlctl.runtime.roles import RolloutEngines
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.rollout.stepping import Stepper
from rlctl.runtime.types import Request, Response, Sampling
from rlctl.runtime.workers.rollout import RolloutWorker

LONG = 20.0


class Engine:
    """Finishes a request once it was polled as often as its seed says; notes if two threads use it at the same time."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        self.polls = 0
        self.overlaps = 0
        self.submitted: list[int] = []
        self.woken = 0
        self._using = threading.Lock()

    def submit(self, requests: Mapping[int, Request]) -> None:
        if any(request.sampling.max_tokens > 99 for request in requests.values()):
            raise RunError("max_tokens is too large")
        self.submitted += requests
        self.left |= {ticket: request.seed for ticket, request in requests.items()}

    def abort(self, tickets: Collection[int]) -> None:
        for ticket in tickets:
            self.left.pop(ticket, None)

    def poll(self, seconds: float) -> list[Finished]:
        if not self._using.acquire(blocking=False):
            self.overlaps += 1
        else:
            time.sleep(0.0005)
            self._using.release()
        self.polls += 1
        for ticket in self.left:
            self.left[ticket] -= 1
        done = [ticket for ticket, left in self.left.items() if left <= 0]
        for ticket in done:
            del self.left[ticket]
        return [Finished(ticket, 0, Response((1,), (0.0,), "stop", 0, text="")) for ticket in done]

    def used(self) -> None:
        """As another call uses it."""
        with self._using:
            time.sleep(0.002)

    def sleep(self) -> None: ...

    def begin_weights(self, version: int) -> None: ...

    def commit_weights(self) -> None: ...

    def close(self) -> None: ...


def asked(steps: int, max_tokens: int = 4) -> Request:
    return Request((1,), Sampling(max_tokens), 1, seed=steps)


def collected(stepper: Stepper, count: int) -> list[int]:
    tickets: list[int] = []
    until = time.monotonic() + LONG
    while len(tickets) < count and time.monotonic() < until:
        tickets += [each.ticket for each in stepper.collect(LONG)]
    return tickets


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def stepper(engine: Engine) -> Any:
    made = Stepper(engine, wake=lambda: setattr(engine, "woken", engine.woken + 1))  # type: ignore[arg-type]
    yield made
    made.close()


def test_a_short_request_is_collected_while_a_long_one_goes_on(engine: Engine, stepper: Stepper) -> None:
    stepper.submit({1: asked(10_000_000), 2: asked(2)})
    assert collected(stepper, 1) == [2]
    stepper.submit({3: asked(1)})
    assert collected(stepper, 1) == [3]
    assert list(engine.left) == [1]
    assert engine.woken


def test_an_aborted_request_is_never_collected(engine: Engine, stepper: Stepper) -> None:
    stepper.submit({1: asked(10_000_000)})
    stepper.submit({2: asked(3)}, aborted=[1])
    assert collected(stepper, 1) == [2]
    stepper.submit({}, aborted=[2])
    assert not engine.left


def test_a_call_that_holds_the_engine_uses_it_alone(engine: Engine, stepper: Stepper) -> None:
    stepper.submit({1: asked(10_000_000)})
    for _ in range(20):
        with stepper.held():
            engine.used()
    polls = engine.polls
    until = time.monotonic() + LONG
    while engine.polls < polls + 5 and time.monotonic() < until:
        time.sleep(0.001)
    assert engine.polls >= polls + 5, "the thread continues afterwards"
    assert not engine.overlaps


@pytest.mark.parametrize("why", ["asleep", "loading"])
def test_a_resting_engine_is_not_stepped(engine: Engine, stepper: Stepper, why: Any) -> None:
    stepper.submit({1: asked(10_000_000)})
    stepper.rest(why)
    with stepper.held():
        polls = engine.polls
    assert stepper.collect(0.02) == []
    assert engine.polls == polls
    if why == "loading":
        stepper.resume(why)
    stepper.submit({2: asked(1)})
    assert collected(stepper, 1) == [2]


def test_new_requests_do_not_wake_an_engine_that_loads_weights(engine: Engine, stepper: Stepper) -> None:
    stepper.rest("loading")
    stepper.submit({1: asked(1)})
    assert stepper.collect(0.02) == []
    assert not engine.polls
    stepper.resume("loading")
    assert collected(stepper, 1) == [1]


def test_an_error_of_the_engine_is_raised_where_responses_are_collected(stepper: Stepper) -> None:
    stepper.submit({1: asked(1, max_tokens=100)})
    with pytest.raises(RunError, match="too large"):
        stepper.collect(LONG)
    stepper.submit({2: asked(1)})
    assert collected(stepper, 1) == [2]


def worker_of(engine: Engine) -> RolloutWorker:
    worker = RolloutWorker.__new__(RolloutWorker)
    worker._engine, worker._sleeps, worker._session = engine, False, None  # type: ignore[assignment]
    worker._stepper = Stepper(engine)  # type: ignore[arg-type]
    worker._with_texts = list  # type: ignore[assignment,method-assign]
    return worker


def test_a_worker_that_replaced_a_lost_one_says_so(engine: Engine) -> None:
    """It has none of the requests: its caller has to submit all of them again, in a session that it opens."""
    worker = worker_of(engine)
    assert worker.submit(5, False, {7: asked(1)}, ()) is False
    assert worker.collect(5, 0.0) is None
    assert engine.submitted == []
    assert worker.submit(5, True, {7: asked(1)}, ()) is True
    found = worker.collect(5, LONG)
    assert found is not None
    assert [each.ticket for each in found] == [7]
    worker.close()


def test_the_controller_gets_what_is_finished_and_hears_of_a_lost_engine(engine: Engine) -> None:
    group = LocalGroup("rollout-0", worker_of(engine))
    engines = RolloutEngines(group)
    found = engines.stream([{1: asked(2), 2: asked(10_000_000)}], [], LONG)[0] or []
    until = time.monotonic() + LONG
    while not found and time.monotonic() < until:
        found = engines.stream([{}], [], LONG)[0] or []
    assert [each.ticket for each in found] == [1]
    group._worker.close()
    replacing = Engine()
    group._worker = worker_of(replacing)
    assert engines.stream([{3: asked(1)}], [], LONG) == [None]
    assert replacing.submitted == [], "requests of the same call are lost, too"
    (again,) = engines.stream([{2: asked(1), 3: asked(1)}], [], LONG)
    assert {each.ticket for each in again or []} <= {2, 3}
    assert engines.stream([{}], [2, 3], 0.0) == [[]]
    group.close()


def test_engines_that_were_put_to_sleep_go_on_with_the_next_call(engine: Engine) -> None:
    group = LocalGroup("rollout-0", worker_of(engine))
    engines = RolloutEngines(group)
    assert engines.stream([{1: asked(10_000_000)}], [], 0.0) == [[]]
    engines.sleep()
    with group._worker._stepper.held():
        polls, engine.left[1] = engine.polls, 2
    assert group._worker.collect(engines._sessions._session, 0.02) == []
    assert engine.polls == polls
    until, found = time.monotonic() + LONG, []
    while not found and time.monotonic() < until:
        found += engines.stream([{}], [], LONG)[0] or []
    assert [each.ticket for each in found] == [1]
    group.close()
