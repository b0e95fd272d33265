"""Calls to workers: what fails is told with the worker's name and trace, and the cause before its consequences."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from rlctl.common.errors import Location, RunError
from rlctl.runtime.processes.calls import Outcome, StopRequested, WorkerFailed, WorkerLost, _death, together
from rlctl.runtime.processes.group import Host, LocalGroup, RayGroup, RetryPolicy, spawn
from tests.waiting import has_ended, until


class Worker:
    """Does what a test tells it."""

    def __init__(self, number: int) -> None:
        self.number = number
        if number < 0:
            raise RunError(f"the number is {number}; expected one that is not negative", hint="choose another")

    def double(self, value: int) -> int:
        return 2 * value + self.number

    def lose_connection(self, after: float) -> None:
        time.sleep(after)
        raise RuntimeError("gloo: Connection closed by peer [127.0.0.1]:3000")

    def die(self, after: float) -> None:
        time.sleep(after)
        os._exit(3)

    def fail_or_die(self, dies: bool) -> None:
        if dies:
            self.die(0.5)
        self.lose_connection(0.0)

    def refuse(self) -> None:
        raise RunError("it does not fit", at=Location("train.yaml", 3), hint="make it smaller")

    def sleep(self, seconds: float = 60.0) -> int:
        time.sleep(seconds)
        return self.number

    def set_number(self, number: int) -> None:
        self.number = number

    def sleep_or_hang(self, hangs: bool) -> None:
        if hangs:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)

    def hang_unless(self, process: int) -> None:
        self.sleep_or_hang(os.getpid() != process)

    def note(self, value: int) -> list[int]:
        self.noted = [*getattr(self, "noted", []), value]
        return self.noted

    def close(self) -> None:
        self.number = 0


def hang_the_second_time(mark: str) -> Worker:
    if Path(mark).exists():
        os.kill(os.getpid(), signal.SIGSTOP)
    Path(mark).touch()
    return Worker(0)


def test_a_group_in_this_process_calls_and_closes_its_worker() -> None:
    worker = Worker(1)
    group = LocalGroup("policy-0", worker)
    assert len(group) == 1
    assert group.names == ["policy-0"]
    assert group.each(Worker.double, [(4,)]) == group.all(Worker.double, 4) == group.fetch(Worker.double, 4) == [9]
    with pytest.raises(RunError, match="it does not fit"):
        group.all(Worker.refuse)
    group.close()
    assert worker.number == 0


def host_hands_errors_over(log: str) -> bool:
    """Whether a host in this process does as it should; its output goes to ``log`` from now on."""
    host = Host({}, log)
    os.write(1, b"hello\n")
    refused = host.build(Worker, -1)
    good = refused.error.startswith("the number is -1") and refused.hint == "choose another" and refused.trace == ""
    host.build(Worker, 1)
    located = host.call("refuse")
    raised = host.call("double", "x", "y")
    good &= located == Outcome(error="train.yaml:3: it does not fit", hint="make it smaller")
    good &= raised.error.startswith("TypeError: ") and "Traceback" in raised.trace
    return good and host.call("double", 4).value == 9 and not host.drop().failed


def test_a_host_hands_errors_over_as_text(tmp_path: Path) -> None:
    """A host takes the output of its process, so it has one of its own."""
    done = subprocess.run([sys.executable, __file__, str(tmp_path / "log")], check=False)
    assert done.returncode == 0
    assert (tmp_path / "log").read_text() == "hello\n"


def test_a_failure_crosses_processes_whole() -> None:
    failure = WorkerFailed("policy-1: it died", actor="policy-1", trace="Traceback", hint="see its log")
    again = pickle.loads(pickle.dumps(failure))
    assert (again.message, again.actor, again.trace, again.hint) == (
        "policy-1: it died",
        "policy-1",
        "Traceback",
        "see its log",
    )


def ends_soon(process: int, seconds: float = 5.0) -> bool:
    """Whether a process ends within some seconds: its connections close a moment before it is gone."""
    deadline = time.monotonic() + seconds
    while not has_ended(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    return has_ended(process)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture
def workers(cluster: None, tmp_path: Path) -> Iterator[Callable[..., RayGroup]]:
    groups: list[RayGroup] = []

    def make(*names: str, stop: Callable[[], bool] = lambda: False, limit: float = 3600.0) -> RayGroup:
        def start(index: int) -> object:
            return spawn({}, str(tmp_path / f"{names[index]}.log"), num_cpus=0)

        groups.append(RayGroup(names, start, stop, limit=limit))
        return groups[-1]

    yield make
    for group in groups:
        group.close()


@pytest.mark.ray
def test_calls_give_their_values_in_order_and_handles_reach_other_groups(workers: Callable[..., RayGroup]) -> None:
    group = workers("a-0", "a-1")
    group.build(Worker, [(1,), (2,)]).wait()
    assert group.each(Worker.double, [(10,), (20,)]) == [21, 42]
    [handle, _] = group.fetch(Worker.double, 5)
    assert group.all(Worker.double, handle) == [23, 24]
    assert len(set(group.processes())) == 2
    group.drop()
    group.build(Worker, [(3,), (4,)]).wait()
    assert group.all(Worker.double, 0) == [3, 4]


@pytest.mark.ray
def test_the_first_failure_of_any_role_is_told_with_its_hint(workers: Callable[..., RayGroup]) -> None:
    fine, bad = workers("fine-0"), workers("bad-0", "bad-1")
    with pytest.raises(WorkerFailed, match=r"^bad-1: the number is -1") as failure:
        together([fine.build(Worker, [(1,)]), bad.build(Worker, [(1,), (-1,)])]).wait()
    assert (failure.value.actor, failure.value.hint, failure.value.trace) == ("bad-1", "choose another", "")


@pytest.mark.ray
def test_a_death_explains_a_lost_connection(workers: Callable[..., RayGroup]) -> None:
    group = workers("policy-0", "policy-1")
    group.build(Worker, [(0,), (1,)]).wait()
    with pytest.raises(WorkerFailed, match=r"^policy-1: its process died") as failure:
        group.each(Worker.fail_or_die, [(False,), (True,)])
    assert failure.value.actor == "policy-1"
    assert "policy-1 under logs/" in failure.value.hint


@pytest.mark.ray
def test_a_lost_connection_that_nothing_explains_is_told_itself(workers: Callable[..., RayGroup]) -> None:
    group = workers("policy-0", "policy-1")
    group.build(Worker, [(0,), (1,)]).wait()
    began = time.monotonic()
    with pytest.raises(WorkerFailed, match=r"^policy-[01]: RuntimeError: gloo") as failure:
        group.all(Worker.lose_connection, 0.0)  # either may be the first
    assert "Traceback" in failure.value.trace
    assert time.monotonic() - began < 8


@pytest.mark.ray
def test_waiting_ends_when_the_run_is_asked_to(workers: Callable[..., RayGroup]) -> None:
    asked = threading.Event()
    group = workers("policy-0", stop=asked.is_set)
    group.build(Worker, [(0,)]).wait()
    threading.Timer(1.0, asked.set).start()
    began = time.monotonic()
    with pytest.raises(StopRequested):
        group.all(Worker.sleep)
    assert time.monotonic() - began < 10


@pytest.mark.ray
def test_a_worker_that_ends_when_the_run_is_asked_to_is_not_lost(workers: Callable[..., RayGroup]) -> None:
    processes: list[int] = []
    group = workers("policy-0", "policy-1", stop=lambda: any(map(has_ended, processes)))
    group.build(Worker, [(0,), (1,)]).wait()
    processes += group.processes()
    with pytest.raises(StopRequested):
        group.each(Worker.die, [(0.0,), (60.0,)])


@pytest.mark.ray
def test_a_worker_that_is_killed_is_replaced_and_its_call_made_again(workers: Callable[..., RayGroup]) -> None:
    group = workers("rollout-0", "rollout-1")
    group.build(Worker, [(0,), (1,)]).wait()
    group.all(Worker.set_number, 5)
    before = group.processes()
    told: list[WorkerLost] = []
    room: list[bool] = []
    again = RetryPolicy(
        1,
        told.append,
        lambda index: group.begin(Worker.set_number, {index: (5,)}).wait(),
        lambda: room.append(ends_soon(before[1])),
    )
    threading.Timer(1.0, os.kill, (before[1], signal.SIGKILL)).start()
    assert group.each(Worker.sleep, [(3.0,), (3.0,)], again=again) == [5, 5]
    assert [lost.actor for lost in told] == ["rollout-1"]
    assert room == [True], "asked for once, between the end of the process and the start of the next"
    after = group.processes()
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)
    with pytest.raises(WorkerLost, match=r"^rollout-0: its process died"):
        group.each(Worker.die, [(0.0,), (60.0,)], again=again)


@pytest.mark.ray
def test_a_worker_that_hangs_is_told_from_one_that_is_busy(workers: Callable[..., RayGroup]) -> None:
    group = workers("policy-0", "policy-1", limit=20.0)
    group.build(Worker, [(0,), (1,)]).wait()
    stopped = group.processes()[1]
    began = time.monotonic()
    with pytest.raises(WorkerLost, match=r"^policy-1: its process has been unresponsive for 10 s"):
        group.each(Worker.sleep_or_hang, [(False,), (True,)])
    assert 10.0 <= time.monotonic() - began < 60.0, "the call itself takes that long"
    group.close()
    until(lambda: has_ended(stopped), "a process that is stopped is ended too")


@pytest.mark.ray
def test_workers_that_share_an_object_get_their_own_part(workers: Callable[..., RayGroup]) -> None:
    group = workers("a-0", "a-1")
    group.build(Worker, [(0,), (1,)]).wait()
    first, second = group.shares([[1, 2], "text"])
    assert first.handle == second.handle
    assert group.each(Worker.note, [(first,), (second,)]) == [[[1, 2]], ["text"]]
    last = group.log.take()[-1]
    assert (sorted(last.workers), last.method) == (["a-0", "a-1"], "note")


@pytest.mark.ray
def test_no_call_overtakes_one_for_a_single_worker(workers: Callable[..., RayGroup]) -> None:
    """Even if that one waits for its argument."""
    group, other = workers("a-0", "a-1"), workers("b-0")
    group.build(Worker, [(0,), (1,)]).wait()
    other.build(Worker, [(0,)]).wait()
    late = other.begin(Worker.sleep, {0: (1.0,)}).sent[0].call
    first = group.begin(Worker.note, {1: (late,)})
    assert [len(noted) for noted in group.all(Worker.note, 1)] == [1, 2]
    assert len(first.wait()[0]) == 1


@pytest.mark.soak
@pytest.mark.ray
def test_a_worker_in_the_place_of_a_lost_one_may_hang_too(workers: Callable[..., RayGroup], tmp_path: Path) -> None:
    """Whether it is called, or is being made."""
    group = workers("rollout-0", "rollout-1", limit=60.0)
    group.build(Worker, [(0,), (1,)]).wait()
    again = RetryPolicy(1, lambda lost: None, lambda index: None)
    first = group.processes()[1]
    threading.Timer(1.0, os.kill, (first, signal.SIGKILL)).start()
    hanging = group.begin(Worker.hang_unless, {1: (first,)}, again=again)
    with pytest.raises(WorkerLost, match=r"^rollout-1: its process has been unresponsive for 30 s"):
        hanging.wait()

    group = workers("rollout-0", limit=60.0)
    group.build(hang_the_second_time, [(str(tmp_path / "made"),)]).wait()
    with pytest.raises(WorkerLost, match=r"^rollout-0: its process has been unresponsive for 30 s"):
        group.replace(0)


@pytest.mark.soak
@pytest.mark.ray
def test_a_call_that_takes_too_long_is_given_up(workers: Callable[..., RayGroup]) -> None:
    group = workers("policy-0", limit=8.0)
    group.build(Worker, [(0,)]).wait()
    with pytest.raises(WorkerLost, match=r"^policy-0: a call has not returned within 8 s \(runtime.ray.call_timeout\)"):
        group.all(Worker.sleep)


if __name__ == "__main__":
    sys.exit(not host_hands_errors_over(sys.argv[1]))


def test_a_worker_that_is_out_of_reach_is_told_in_plain_words() -> None:
    """What Ray says first of the workers of a machine that is gone."""
    from ray.exceptions import ActorUnavailableError

    gone = ActorUnavailableError("RpcError: RPC error: Socket closed rpc_code: 14", b"0" * 16)
    assert _death("policy-1", gone) == "policy-1: its process died or its machine is down: the connection to it closed"
