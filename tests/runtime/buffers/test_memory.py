"""The buffer in memory: order, room, waiting, the end of writing, replay by priority, and a state that goes on."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlctl.runtime.buffers.interface import BufferTimeout, responses_in
from rlctl.runtime.buffers.memory import MemoryBuffer
from rlctl.runtime.buffers.record import group_of, plain_of, text_of
from rlctl.runtime.buffers.replay import RULES, Reuse
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.processes.calls import StopRequested
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Prompt, Response
from tests.waiting import until

from .made import group, indices


def test_groups_come_out_whole_and_in_order() -> None:
    buffer = MemoryBuffer()
    groups = [group(index, n=index + 1) for index in range(4)]
    buffer.put(groups[:3])
    assert buffer.take(2) == groups[:2]
    buffer.put(groups[3:])
    assert buffer.take(2) == groups[2:]
    assert buffer.statistics().waiting == 0


def test_a_writer_waits_while_there_is_no_room_and_a_reader_that_wants_more_makes_some() -> None:
    buffer = MemoryBuffer(capacity=4)
    writer = threading.Thread(target=buffer.put, args=([group(index, n=2) for index in range(5)],), daemon=True)
    writer.start()
    until(lambda: buffer.statistics().waiting == 4, "two groups of two responses fill it")
    time.sleep(0.05)
    assert buffer.statistics().waiting == 4
    assert indices(buffer.take(1)) == [0]
    assert indices(buffer.take(4)) == [1, 2, 3, 4], "more than the capacity holds"
    writer.join(5)
    assert not writer.is_alive()


def test_a_group_larger_than_the_capacity_goes_in_alone() -> None:
    buffer = MemoryBuffer(capacity=2)
    buffer.put([group(0, n=5)])
    assert indices(buffer.take(1)) == [0]


def test_a_reader_is_told_what_it_waited_for() -> None:
    buffer = MemoryBuffer(read_timeout=0.05)
    buffer.put([group(0)])
    with pytest.raises(BufferTimeout, match=r"waited 0.05 s for 3 groups of responses; the buffer has 1"):
        buffer.take(3)
    assert indices(buffer.take(1)) == [0], "nothing is lost by waiting in vain"


def test_after_the_end_of_writing_nobody_waits() -> None:
    buffer = MemoryBuffer()
    buffer.put([group(0)])
    threading.Timer(0.05, buffer.end_writing).start()
    assert indices(buffer.take(3)) == [0]
    assert buffer.take(3) == []


@pytest.mark.parametrize("wait", [lambda buffer: buffer.take(2), lambda buffer: buffer.put([group(1, n=9)])])
def test_who_waits_ends_when_the_run_is_asked_to(wait: Callable[[MemoryBuffer], object]) -> None:
    asked = threading.Event()
    buffer = MemoryBuffer(capacity=4, stopped=asked.is_set)
    buffer.put([group(0)])
    threading.Timer(0.05, asked.set).start()
    with pytest.raises(StopRequested):
        wait(buffer)


def test_old_groups_are_left_out_and_counted() -> None:
    buffer = MemoryBuffer()
    buffer.put([group(0, version=1), group(1, version=3), group(2, version=2)])
    assert indices(buffer.take(2, oldest_version=2)) == [1, 2]
    assert buffer.statistics().dropped == 1


def test_many_writers_and_readers_lose_and_double_nothing() -> None:
    buffer = MemoryBuffer(capacity=6)
    found: list[int] = []

    def read() -> None:
        while taken := buffer.take(3):
            found.extend(indices(taken))

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [
        threading.Thread(target=lambda start=start: [buffer.put([group(start + i)]) for i in range(50)])
        for start in (0, 100, 200)
    ]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join(20)
    buffer.end_writing()
    for thread in readers:
        thread.join(20)
    assert sorted(found) == [start + i for start in (0, 100, 200) for i in range(50)]


def test_trinitys_rules() -> None:
    """Worked by hand from ``LinearDecayPriority`` and ``LinearDecayUseCountControlPriority``."""
    decay, limited = RULES["linear_decay"], RULES["decay_limit_randomization"]
    assert decay(5, 0, 9.9) == (5.0, True)
    assert decay(5, 3, 9.9, decay=1.5) == (0.5, True)
    assert limited(5, 2, 0.5) == (1.0, True)
    assert limited(5, 3, 0.5) == (-1.0, False), "three uses are the limit"
    assert limited(5, 30, 0.5, use_count_limit=0, decay=0.1, sigma=2.0) == (3.0, True), "0 is no limit"


def replaying(rule: str = "linear_decay", **settings: float) -> tuple[MemoryBuffer, list[float]]:
    now = [0.0]
    cooldown = settings.pop("cooldown", None)
    capacity = settings.pop("capacity", None)
    reuse = Reuse(RULES[rule], settings, cooldown)
    return MemoryBuffer(
        capacity=None if capacity is None else int(capacity), read_timeout=0.05, reuse=reuse, clock=lambda: now[0]
    ), now


def test_the_newest_weights_come_first_and_uses_count_as_age() -> None:
    """Two uses of decay 2: version 5 comes back as 3, behind version 4 and before version 2."""
    buffer, now = replaying(decay=2.0, cooldown=10)
    buffer.put([group(0, version=2), group(1, version=5), group(2, version=4)])
    assert indices(buffer.take(1)) == [1]
    now[0] = 9.0
    assert indices(buffer.take(1)) == [2], "the first is still cooling down"
    now[0] = 10.0
    assert indices(buffer.take(1)) == [1]
    assert buffer.statistics().reused == 1


def test_without_a_cooldown_nothing_comes_back() -> None:
    buffer, _ = replaying()
    buffer.put([group(0)])
    assert indices(buffer.take(1)) == [0]
    with pytest.raises(BufferTimeout):
        buffer.take(1)


def test_a_full_replay_gives_up_its_lowest_and_its_oldest_of_equals() -> None:
    buffer, _ = replaying(capacity=4)
    buffer.put([group(0, version=3), group(1, version=1), group(2, version=1)])
    assert buffer.statistics().waiting == 4, "two groups of two responses"
    buffer.put([group(3, version=0)])
    assert indices(buffer.take(2)) == [0, 2]
    assert buffer.statistics().dropped == 2


def test_no_group_gives_way_to_one_that_does_not_fit_even_then() -> None:
    buffer, _ = replaying(capacity=6)
    buffer.put([group(0, version=5), group(1, version=1), group(2, version=1)])
    buffer.put([group(3, version=2, n=5)])
    assert buffer.statistics().waiting == 6
    assert buffer.statistics().dropped == 1, "the new one"
    buffer.put([group(4, version=2, n=4)])
    assert indices(buffer.take(2)) == [0, 4]


def test_a_group_is_used_as_often_as_the_rule_allows() -> None:
    buffer, now = replaying("decay_limit_randomization", use_count_limit=2, cooldown=1)
    buffer.put([group(0)])
    for _ in range(2):
        assert indices(buffer.take(1)) == [0]
        now[0] += 1
    with pytest.raises(BufferTimeout):
        buffer.take(1)


def test_the_end_of_writing_ends_replay() -> None:
    buffer, now = replaying(cooldown=1)
    buffer.put([group(0), group(1)])
    buffer.take(1)
    buffer.end_writing()
    now[0] = 5.0
    assert indices(buffer.take(5)) == [1]


def test_a_buffer_goes_on_from_its_state_as_if_nothing_had_been() -> None:
    def buffers() -> Iterator[tuple[MemoryBuffer, list[float]]]:
        for _ in range(2):
            buffer, now = replaying("decay_limit_randomization", sigma=3.0, cooldown=5, use_count_limit=0)
            yield buffer, now

    (first, now), (second, later) = buffers()
    first.put([group(index, version=index) for index in range(6)])
    first.take(2)
    now[0] = 3.0
    second.restore(json.loads(json.dumps(first.state())))
    later[0] = 100.0
    second.restore(json.loads(json.dumps(first.state())))
    for _ in range(4):
        assert first.take(2) == second.take(2)
        now[0] += 2.0
        later[0] += 2.0
    assert first.statistics() == second.statistics()


def test_images_of_a_prompt_come_back_as_they_were() -> None:
    inputs = {
        "pixels": torch.randn(3, 2).to(torch.bfloat16),
        "grid": torch.tensor([[1, 2, 2]]),
        "none": torch.empty(0, 4),
    }
    given = group(0)
    whole = dataclasses.replace(given, prompt=dataclasses.replace(given.prompt, inputs=inputs))
    back = group_of(json.loads(text_of(whole))).prompt.inputs
    assert all(torch.equal(back[name], each) and back[name].dtype == each.dtype for name, each in inputs.items())


FLOATS = st.floats(allow_nan=False)


@given(
    tokens=st.lists(st.integers(0, 200_000), min_size=1, max_size=5),
    log_probs=st.lists(FLOATS, min_size=1, max_size=5),
    reward=FLOATS,
    answer=st.one_of(st.none(), st.text(), st.integers(), st.lists(st.text())),
    greedy=st.booleans(),
)
def test_a_group_is_written_down_and_read_back_bit_for_bit(
    tokens: list[int], log_probs: list[float], reward: float, answer: object, greedy: bool
) -> None:
    response = Response(tuple(tokens), tuple(log_probs), "length", 3)
    score = Score(reward, {"math": reward}, True, None, "4")
    whole = RolloutGroup(
        Prompt(1, "s", (1, 2), "é\n", answer, {"tag": "x"}, ({"role": "user", "content": "é"},)),
        [response],
        [reward],
        [score],
        (response, score) if greedy else None,
    )
    assert group_of(json.loads(text_of(whole))) == whole
    assert group_of(plain_of(whole)) == whole
    assert responses_in(whole) == 1
