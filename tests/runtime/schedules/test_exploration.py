"""Schedules on simulated engines: the versions that draw each step, what is lost or doubled, and how it ends."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config
from rlctl.planning.rollout_schedule import sync_schedule
from rlctl.runtime.buffers.memory import MemoryBuffer
from rlctl.runtime.experience.explore import StepRollouts
from rlctl.runtime.processes.calls import StopRequested
from rlctl.runtime.schedules.exploration import WAIT, Exploration
from tests.waiting import until

from .simulated import Engines, Simulation, configured

TOKENIZER: Any = None


class Trainer:
    """A training loop that trains nothing."""

    def __init__(
        self,
        config: Config,
        engines: Engines,
        *,
        total_steps: int = 8,
        train_seconds: float = 0.0,
        capacity: int | None = None,
    ) -> None:
        self.schedule, self.engines, self.train_seconds = sync_schedule(config), engines, train_seconds
        self.stop = threading.Event()
        self.buffer = MemoryBuffer(capacity=capacity, read_timeout=20.0, stopped=self.stop.is_set)
        simulation = Simulation(config, engines)
        simulation.scheduler._hand_on = lambda group: self.buffer.put([group])
        self.source = Exploration(
            self.schedule,
            simulation.scheduler,
            simulation.draws,
            self.buffer,
            simulation.scheduler._shaping,
            TOKENIZER,
            total_steps=total_steps,
            failed=self.stop.set,
            stopped=self.stop.is_set,
        )
        self.phases: list[str] = []
        self.rows: list[list[int]] = []
        self.staleness: list[list[int]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.phases.append(name)
        yield

    def sync(self, step: int) -> None:
        with self.source.new_weights(step, step, self.phase):
            self.engines.version = step

    def step(self, step: int) -> StepRollouts:
        """Take a step's groups, train, and send weights where that is due."""
        explored = self.source.take(step, self.phase)
        self.rows.append([group.prompt.index for group in explored.kept])
        oldest = [response.oldest_version for group in explored.kept for response in group.responses]
        self.staleness.append([step - 1 - version for version in oldest])
        time.sleep(self.train_seconds)
        self.source.trained(step)
        if self.source.sync_due(step):
            self.sync(step)
        return explored

    def run(self, steps: range) -> None:
        self.sync(steps.start - 1)
        try:
            for step in steps:
                self.step(step)
        finally:
            self.source.close()


def long_tail(row: int, place: int) -> float:
    """One response in five takes eight times as long."""
    return 8.0 if (row + place) % 5 == 0 else 1.0


def flat(rows: list[list[int]]) -> list[int]:
    return [row for step in rows for row in step]


SPLIT = {"placement": {"layout": "split"}}


@pytest.mark.parametrize(
    ("sync", "staleness"),
    [
        ({}, [0, 0, 0, 0]),
        ({"max_steps_ahead": 1}, [0, 1, 1, 1]),
        ({"max_steps_ahead": 2}, [0, 1, 2, 2]),
        ({"every": 2}, [0, 1, 0, 1]),
        ({"every": 2, "max_steps_ahead": 1}, [0, 1, 2, 1]),
        ({"max_steps_ahead": 3, "max_staleness_steps": 1, "on_stale": "wait"}, [0, 1, 1, 1]),
        ({"every": 2, "max_steps_ahead": 3, "max_staleness_steps": 2, "on_stale": "wait"}, [0, 1, 2, 1]),
    ],
)
def test_where_all_are_waited_for_every_step_is_drawn_by_the_weights_that_the_schedule_says(
    sync: dict[str, Any], staleness: list[int]
) -> None:
    config = configured(weight_sync=sync, reward_loop={"overlap_with_rollout": True}, **SPLIT)
    trainer = Trainer(config, Engines(long_tail))
    trainer.run(range(1, 5))
    assert [set(step) for step in trainer.staleness] == [{each} for each in staleness]
    assert flat(trainer.rows) == list(range(8)), "in the order of the data"


@pytest.mark.parametrize("layout", ["split", "colocated"])
@pytest.mark.parametrize("in_flight", ["continue", "abort"])
def test_nothing_is_staler_than_it_may_be_and_no_prompt_is_trained_on_twice(in_flight: str, layout: str) -> None:
    sync = {"max_steps_ahead": 2, "max_staleness_steps": 2, "in_flight_requests": in_flight}
    trainer = Trainer(
        configured(weight_sync=sync, placement={"layout": layout}), Engines(long_tail), train_seconds=0.01
    )
    trainer.run(range(1, 9))
    rows = flat(trainer.rows)
    assert len(set(rows)) == len(rows) == 16
    assert max(flat(trainer.staleness)) <= 2
    if in_flight == "continue":
        assert max(flat(trainer.staleness)) > 0
        dropped = trainer.buffer.statistics().dropped
        assert set(range(16)) - set(rows) == set() or dropped, "a group that is missing was too old"


@pytest.mark.parametrize("style", ["trainer_driven", "explorer_driven", "fully_async"])
def test_who_waits_for_nobody_is_not_further_ahead_with_every_step(style: str) -> None:
    """However fast rollout is: where nothing else bounds the staleness, the room in the buffer does."""
    trainer = Trainer(
        configured(weight_sync={"style": style, "every": 2}, **SPLIT), Engines(), total_steps=16, train_seconds=0.05
    )
    trainer.run(range(1, 17))
    assert len(flat(trainer.rows)) == 32
    assert max(flat(trainer.staleness)) <= 4


def test_a_run_that_is_resumed_loses_and_repeats_no_prompt() -> None:
    config = configured(
        weight_sync={"max_steps_ahead": 2, "in_flight_requests": "continue", "on_stale": "keep"}, **SPLIT
    )
    first = Trainer(config, Engines(lambda row, place: 1e9 if row in (2, 5) else 1.0))
    first.sync(0)
    for step in range(1, 4):
        first.step(step)
    state = json.loads(json.dumps(first.source.state()))
    first.source.close()
    assert {2, 5} <= set(state["draws"]["open"]), "they were under way"
    second = Trainer(config, Engines(long_tail))
    second.source.restore(state)
    second.run(range(4, 9))
    assert sorted(flat(first.rows + second.rows)) == list(range(16))


@pytest.mark.parametrize("layout", ["split", "colocated"])
def test_rollout_goes_on_while_the_policy_is_trained_and_only_then_where_devices_are_shared(layout: str) -> None:
    config = configured(
        weight_sync={"max_steps_ahead": 4, "in_flight_requests": "continue"}, placement={"layout": layout}
    )
    trainer = Trainer(config, Engines(lambda row, place: 4.0 * row, wall_seconds=0.01))
    trainer.sync(0)
    trainer.source.take(1, trainer.phase)
    before = trainer.engines.now
    if layout == "split":
        until(lambda: trainer.engines.now > before, "rollout waits for training")
    else:
        time.sleep(0.3)
        assert trainer.engines.now == before
    assert trainer.engines.slept == int(layout == "colocated"), "shared devices are left to training"
    trainer.source.close()


@pytest.mark.parametrize("style", ["trainer_driven", "explorer_driven", "fully_async"])
def test_styles_train_on_every_prompt_once_and_are_bounded(style: str) -> None:
    config = configured(weight_sync={"style": style, "every": 2}, **SPLIT)
    trainer = Trainer(config, Engines(long_tail), total_steps=6, train_seconds=0.01)
    trainer.run(range(1, 7))
    assert sorted(flat(trainer.rows)) == list(range(12))
    assert len(trainer.engines.begun) == 12, "no prompt is drawn that the stage does not train on"


@pytest.mark.parametrize("style", ["fixed", "explorer_driven"])
def test_staleness_counts_steps_where_weights_are_sent_less_often(style: str) -> None:
    """No more than the schedule makes is allowed, and nothing starves between two weight syncs."""
    sync = {"style": style, "every": 3, "max_staleness_steps": 2, "in_flight_requests": "abort"}
    config = configured(weight_sync=sync, reward_loop={"overlap_with_rollout": True}, **SPLIT)
    trainer = Trainer(config, Engines(long_tail), total_steps=7)
    trainer.run(range(1, 8))
    assert len(set(flat(trainer.rows))) == len(flat(trainer.rows)) == 14
    assert max(flat(trainer.staleness)) <= 2
    if style == "fixed":  # an explorer that decides may send them early, or late
        assert max(flat(trainer.staleness)) == 2, "two steps are trained after the one before which they were sent"
        assert trainer.buffer.statistics().dropped == 0


def test_an_explorer_gets_weights_before_all_that_it_makes_is_too_old() -> None:
    """Groups that wait at a sync put the explorer's next one off; training must not go on until it can use none of the rest."""
    sync = {"style": "explorer_driven", "every": 3, "max_staleness_steps": 2, "in_flight_requests": "abort"}
    config = configured(weight_sync=sync, reward_loop={"overlap_with_rollout": True}, **SPLIT)
    trainer = Trainer(config, Engines(lambda row, place: 1.0 if row < 6 else 1e9))
    trainer.sync(0)
    until(lambda: trainer.source._there() == 4, "four groups")
    trainer.sync(0)
    due = []
    for step in (1, 2, 3):
        trainer.source.take(step, trainer.phase)
        trainer.source.trained(step)
        due.append(trainer.source.sync_due(step))
    trainer.source.close()
    assert due == [False, False, True], "responses of version 0 are too old for version 3"


def test_left_out_groups_are_made_up_for_while_rollout_is_ahead() -> None:
    config = configured(weight_sync={"max_steps_ahead": 1}, algorithm={"filters": ["zero_variance_groups"]}, **SPLIT)
    trainer = Trainer(config, Engines(long_tail), total_steps=4)
    trainer.run(range(1, 5))
    assert flat(trainer.rows) == [1, 2, 4, 5, 7, 8, 10, 11]
    assert [set(step) for step in trainer.staleness] == [{0}, {1}, {1}, {1}]


def test_without_refilling_a_place_stays_empty() -> None:
    filters = [{"type": "zero_variance_groups", "refill": False}]
    config = configured(weight_sync={"max_steps_ahead": 1}, algorithm={"filters": filters}, **SPLIT)
    trainer = Trainer(config, Engines(long_tail), total_steps=3)
    trainer.run(range(1, 4))
    assert trainer.rows == [[1], [2], [4, 5]]


def test_a_failure_in_the_thread_is_the_cause_of_the_end_at_once() -> None:
    trainer = Trainer(configured(weight_sync={"max_steps_ahead": 1}, **SPLIT), Engines(long_tail))

    def broken(*arguments: Any) -> Any:
        raise RunError("the engine is on fire")

    trainer.sync(0)
    trainer.step(1)
    trainer.engines.stream = broken  # type: ignore[method-assign]
    began = time.monotonic()
    with pytest.raises(RunError, match="on fire"):
        any(trainer.step(step) is None for step in range(2, 9))
    assert time.monotonic() - began < 5
    assert trainer.stop.is_set(), "whoever waits for training is told too"
    trainer.source.close()


def test_a_request_to_stop_ends_waiting_and_the_thread() -> None:
    trainer = Trainer(configured(weight_sync={"max_steps_ahead": 1}, **SPLIT), Engines(lambda row, place: 1e9))
    trainer.sync(0)
    threading.Timer(0.2, trainer.stop.set).start()
    with pytest.raises(StopRequested):
        trainer.step(1)
    thread = trainer.source._thread
    trainer.source.close()
    assert thread is not None
    assert not thread.is_alive()
    with pytest.raises(StopRequested):
        trainer.sync(1)


def test_training_says_when_it_waits_and_rollout_how_long_it_was_idle() -> None:
    trainer = Trainer(configured(weight_sync={"max_steps_ahead": 0.5}, **SPLIT), Engines(), train_seconds=0.2)
    trainer.sync(0)
    trainer.step(1)
    metrics = trainer.step(2).metrics
    trainer.source.close()
    assert WAIT in trainer.phases
    assert metrics["time/rollout_idle"] > 0.1
    assert trainer.schedule.in_background


def test_further_prompts_beside_a_step_do_not_run_ahead_while_it_is_trained_on() -> None:
    """They take the places of groups that filters leave out; when a step's groups are there, none is missing."""
    config = configured(
        rollout={"oversampling": {"additional_prompts": 3}}, weight_sync={"in_flight_requests": "continue"}, **SPLIT
    )
    trainer = Trainer(config, Engines(wall_seconds=0.001), total_steps=20, train_seconds=0.2)
    trainer.run(range(1, 5))
    assert len(trainer.engines.begun) <= 4 * 2 + 3
    assert max(flat(trainer.staleness)) <= 1


def test_further_prompts_beside_a_step_take_no_more_room_than_the_buffer_has() -> None:
    """Else the groups of the next step wait for room, and training, which would make it, waits for the engines."""
    memory, over = {"type": "memory", "capacity": 4}, {"additional_prompts": 5}
    config = configured(rollout={"oversampling": over}, weight_sync={"max_steps_ahead": 1}, buffer=memory, **SPLIT)
    trainer = Trainer(config, Engines(), total_steps=8, train_seconds=0.05, capacity=4)
    threading.Timer(20.0, trainer.stop.set).start()
    trainer.run(range(1, 9))
    assert len(flat(trainer.rows)) == 16
