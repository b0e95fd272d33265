"""When weights are sent and how far rollout may be ahead, against the schedules of the three frameworks."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.config import Config, config_from
from rlctl.planning import rollout_schedule
from rlctl.planning.rollout_schedule import sync_schedule


def config(sync: dict[str, Any], **sections: Any) -> Config:
    return config_from({"weight_sync": sync, "batch": {"prompts_per_step": 8, "responses_per_prompt": 2}, **sections})


def horizons(sync: dict[str, Any], steps: int = 4, **sections: Any) -> list[int]:
    """Prompts that may be begun in total while each step is waited for."""
    schedule = sync_schedule(config(sync, **sections))
    synced = [schedule.last_due(step) for step in range(steps)]
    return [schedule.horizon(synced=step, total_steps=100).groups for step in synced]


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        ({}, [8, 16, 24, 32]),
        ({"max_steps_ahead": 1}, [16, 24, 32, 40]),  # verl's one step off; ROLL's async_generation_ratio 1
        ({"max_steps_ahead": 1.5}, [20, 28, 36, 44]),  # ROLL: ceil(P x ratio) + P x step
        ({"every": 2}, [16, 16, 32, 32]),  # Trinity's sync_interval: the explorer stops for each synchronisation
        ({"every": 2, "max_steps_ahead": 1}, [24, 24, 40, 40]),  # ... and its sync_offset
        ({"max_steps_ahead": 3, "max_staleness_steps": 1, "on_stale": "wait"}, [16, 24, 32, 40]),
        ({"every": 2, "max_staleness_steps": 1, "on_stale": "wait", "max_steps_ahead": 9}, [16, 16, 32, 32]),
        ({"every": 2, "max_staleness_steps": 2, "on_stale": "wait", "max_steps_ahead": 9}, [24, 24, 40, 40]),
    ],
)
def test_how_far_rollout_may_be(sync: dict[str, Any], expected: list[int]) -> None:
    assert horizons(sync) == expected


def test_the_stage_has_an_end() -> None:
    assert sync_schedule(config({"max_steps_ahead": 5})).horizon(synced=0, total_steps=3).groups == 24


def test_weights_are_sent_by_steps_or_optimizer_steps() -> None:
    by_steps = sync_schedule(config({"every": 3}))
    assert [step for step in range(1, 10) if by_steps.due(step)] == [3, 6, 9]
    # 2 optimizer steps a step: 3 are over within step 2, 6 at the end of step 3
    batch = {"prompts_per_step": 8, "responses_per_prompt": 2, "mini_batch_responses": 8}
    by_optimizer = sync_schedule(config({"every_optimizer_steps": 3}, batch=batch))
    assert [step for step in range(1, 7) if by_optimizer.due(step)] == [2, 3, 5, 6]


def test_staleness_counts_steps_however_often_weights_are_sent() -> None:
    def oldest(sync: dict[str, Any]) -> list[int]:
        schedule = sync_schedule(config(sync))
        return [schedule.oldest_version(version) for version in range(6)]

    assert oldest({}) == [0] * 6
    assert oldest({"max_staleness_steps": 1}) == [0, 0, 1, 2, 3, 4]
    assert oldest({"max_staleness_steps": 1, "every": 2}) == [0, 0, 1, 2, 3, 4]
    assert oldest({"max_staleness_steps": 3, "every": 2}) == [0, 0, 0, 0, 1, 2]
    assert oldest({"max_staleness_steps": 1, "on_stale": "keep"}) == [0] * 6
    made = {
        every: [rollout_schedule.staleness(config({"every": every, "max_steps_ahead": n})) for n in (0, 0.5, 1, 2.5)]
        for every in (1, 3)
    }
    assert made == {1: [0, 1, 1, 3], 3: [2, 3, 3, 5]}


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_limit_of_whole_syncs_is_one_of_steps(every: int) -> None:
    """Frameworks that count syncs keep at most ``syncs`` of them: with every k-th step one, (syncs + 1) k - 1 steps."""
    for syncs in (0, 1, 2):
        limit = sync_schedule(config({"every": every, "max_staleness_steps": (syncs + 1) * every - 1}))
        for version in range(12):
            by_syncs = {sent for sent in range(0, version + 1, every) if version // every - sent // every <= syncs}
            oldest = limit.oldest_version(version)
            assert {sent for sent in range(0, version + 1, every) if sent >= oldest} == by_syncs


def test_styles_that_wait_for_nobody_are_bounded_by_the_buffer() -> None:
    trainer = sync_schedule(config({"style": "trainer_driven", "max_steps_ahead": 2}))
    assert trainer.horizon(synced=0, total_steps=100) == rollout_schedule.Horizon(800, 24)
    small = sync_schedule(config({"style": "fully_async"}, buffer={"type": "memory", "capacity": 20}))
    assert small.horizon(synced=0, total_steps=100).waiting == 10
    assert small.in_flight == "continue"
    explorer = sync_schedule(config({"style": "explorer_driven", "every": 2}))
    found = [explorer.horizon(synced=step, total_steps=100, explored=24) for step in (0, 3)]
    assert found == [rollout_schedule.Horizon(40, 16)] * 2, "else it would be further ahead with every step"


def test_order_is_kept_where_all_are_waited_for() -> None:
    assert rollout_schedule.in_order(config({}))
    assert not rollout_schedule.in_order(config({"in_flight_requests": "continue"}))
    assert rollout_schedule.in_order(config({"in_flight_requests": "continue", "on_stale": "wait"}))
    assert not rollout_schedule.in_order(config({}, rollout={"oversampling": {"additional_prompts": 4}}))


def test_staleness_control_is_trinitys() -> None:
    """``min_model_version = max(step - max_staleness - 1, 0)``, at the steps after 0, 1, 2, ... have been trained."""

    def oldest(most: float, **sync: Any) -> list[int]:
        controlled = {"sample_strategy": "staleness_control", "sample_strategy_args": {"max_staleness": most}}
        schedule = sync_schedule(config(sync, algorithm=controlled))
        return [schedule.oldest_version(version) for version in range(5)]

    assert oldest(1) == [max(step - 1 - 1, 0) for step in (1, 2, 3, 4, 5)]
    assert oldest(float("inf")) == [0] * 5
    assert oldest(3, max_staleness_steps=1) == [0, 0, 1, 2, 3], "the stricter of the two"
