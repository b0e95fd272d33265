"""Every call of a worker is timed and weighed, whoever hosts it."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from rlctl.runtime.processes.group import LocalGroup, Replicas, _attempt
from rlctl.runtime.profiling.usage import CallLog, Gpu, SameCalls, Usage, resident_bytes


class Worker:
    def sleep(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def fail(self) -> None:
        raise ValueError("no")


def test_memory_is_what_the_system_says() -> None:
    assert resident_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)


def test_an_outcome_says_what_the_call_took() -> None:
    before = time.time()
    usage = _attempt(lambda: time.sleep(0.05)).usage
    assert usage is not None
    assert 0.05 <= usage.seconds < 10
    assert before <= usage.began <= time.time()
    assert (usage.pid, usage.gpu) == (os.getpid(), None)
    assert usage.resident > 10 * 2**20


def test_the_calls_of_groups_are_in_one_log_and_taken_once() -> None:
    log, first, second = CallLog(), LocalGroup("policy-0", Worker()), Replicas(LocalGroup("rollout-0", Worker()), [[0]])
    first.log = second.log = log
    first.each(Worker.sleep, [(0.02,)])
    second.all(Worker.sleep, 0.0)
    with pytest.raises(ValueError, match="no"):
        first.all(Worker.fail)
    calls = [call for same in log.take() for call in same.apart()]
    assert [(call.worker, call.method) for call in calls] == [("policy-0", "sleep"), ("rollout-0", "sleep")]
    assert calls[0].usage.seconds >= 0.02
    assert log.take() == []


def test_fields_that_calls_have_are_read_of_all_of_them() -> None:
    used = [Usage(1.0, 2.0, 3, 4), None, Usage(5.0, 6.0, 7, 8, Gpu("H100", 1, 2, 3))]
    calls = SameCalls(["a-0", "a-1", "a-2"], "method", used)
    assert (calls.known("seconds"), calls.known("gpu")) == ([2.0, 6.0], [used[2].gpu])  # type: ignore[union-attr]
    assert [call.worker for call in calls.apart()] == ["a-0", "a-2"]
