"""Schedules as whole stages: real workers of each role in this process, rollout in its thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import Config
from rlctl.runtime.schedules.exploration import Exploration

from .conftest import Task, numbers_of
from .local import Seen, run_here

SPLIT = {"layout": "split", "devices_per_node": 2, "device": "cpu"}


def steps(seen: Seen) -> dict[int, dict[str, float]]:
    """Metrics of every step, without those of time."""
    return {step: found for (kind, step), found in numbers_of(stamped(seen)).items() if kind.endswith("step")}


def unlike(one: dict[int, dict[str, float]], other: dict[int, dict[str, float]]) -> dict[tuple[int, str], Any]:
    """Metrics of steps that differ, but for memory and times."""
    names = {(step, name) for found in (one, other) for step in found for name in found[step]}
    pairs = {(step, name): (one.get(step, {}).get(name), other.get(step, {}).get(name)) for step, name in names}
    timed = ("memory/", "buffer/responses_waiting")
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1] and not key[1].startswith(timed)}


def stamped(seen: Seen) -> Seen:
    return [{"stage": "main", **event} for event in seen]


def versions(seen: Seen) -> list[set[int]]:
    """The versions that drew the groups shown of each step."""
    return [{group["weight_version"] for group in e["samples"]} for e in seen if e["kind"] == "samples"]


def until(step: int, folder: Path) -> Callable[[dict[str, Any]], None]:
    """Asks the run to end after a step."""

    def watch(event: dict[str, Any]) -> None:
        if (event["kind"], event.get("step")) == ("step", step):
            (folder / "stop").touch()

    return watch


def config_of(task: Task, folder: Path, **changes: Any) -> Config:
    more: dict[str, Any] = {
        "schedule": {"total_steps": 4},
        "placement": SPLIT,
        "checkpoint": {"at_end": False, "export": "never"},
    }
    return task.config(folder, **{**more, **changes})


def test_one_step_off_draws_by_the_weights_before_and_resumes_exactly(task: Task, tmp_path: Path) -> None:
    config = config_of(task, tmp_path, weight_sync={"max_steps_ahead": 1}, checkpoint={"every": 2, "export": "never"})
    whole = run_here(config, tmp_path / "whole")
    assert versions(whole) == [{0}, {0}, {1}, {2}], "those of step s are drawn by the weights after step s - 2"
    part = tmp_path / "part"
    first = run_here(config, part, watch=until(2, part))
    (part / "stop").unlink()
    second = run_here(config, part)
    assert unlike(steps(first) | steps(second), steps(whole)) == {}


def test_streaming_a_synchronous_run_draws_what_a_round_draws(task: Task, tmp_path: Path) -> None:
    """Scoring beside rollout changes when things happen, and no response."""
    rounds = run_here(config_of(task, tmp_path, schedule={"total_steps": 2}), tmp_path / "rounds")
    beside = config_of(task, tmp_path, schedule={"total_steps": 2}, reward_loop={"overlap_with_rollout": True})
    streamed = run_here(beside, tmp_path / "streamed")
    found = [[group for e in seen if e["kind"] == "samples" for group in e["samples"]] for seen in (rounds, streamed)]
    assert found[0] == found[1]
    losses = [[metrics["policy/loss"] for metrics in steps(seen).values()] for seen in (rounds, streamed)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.parametrize("in_flight", ["continue", pytest.param("abort", marks=pytest.mark.soak)])
def test_responses_under_way_at_new_weights(task: Task, tmp_path: Path, in_flight: str) -> None:
    config = config_of(
        task,
        tmp_path,
        weight_sync={"max_steps_ahead": 2, "max_staleness_steps": 2, "in_flight_requests": in_flight},
        rollout={"max_response_tokens": 4, "precision": "float32", "max_running_prompts": 3},
    )
    seen = run_here(config, tmp_path / "run")
    assert [e["step"] for e in seen if e["kind"] == "step"] == [1, 2, 3, 4]
    assert all(metrics["staleness/max"] <= 2 for metrics in steps(seen).values())


@pytest.mark.soak
@pytest.mark.parametrize(
    "sync",
    [
        {"max_steps_ahead": 1},
        {"max_steps_ahead": 2, "max_staleness_steps": 3, "in_flight_requests": "continue"},
        {"max_steps_ahead": 1, "every": 2, "in_flight_requests": "abort"},
        {"style": "trainer_driven", "every": 2, "in_flight_requests": "continue"},
        {"style": "explorer_driven", "every": 2},
        {"style": "fully_async"},
    ],
    ids=["one-step-off", "asynchronous", "abort", "trainer_driven", "explorer_driven", "fully_async"],
)
def test_a_policy_learns_whatever_the_schedule(task: Task, tmp_path: Path, sync: dict[str, Any]) -> None:
    """To begin a response with 1: by chance one in ten does; after 24 steps, most."""
    config = config_of(
        task,
        tmp_path,
        weight_sync=sync,
        batch={
            "prompts_per_step": 16,
            "responses_per_prompt": 8,
            "mini_batch_responses": 64,
            "micro_batch": {"unit": "responses", "size": 64},
        },
        schedule={"total_steps": 24, "evaluate_every": 100},
    )
    rewards = [metrics["reward/mean"] for _, metrics in sorted(steps(run_here(config, tmp_path / "run")).items())]
    assert len(rewards) == 24
    assert sum(rewards[-4:]) / 4 > max(0.5, 3 * sum(rewards[:2]) / 2), rewards


class Killed(Exception):
    """The end of a process, as far as its files are concerned."""


@pytest.mark.parametrize(
    "sync", [{"max_steps_ahead": 2, "in_flight_requests": "continue", "max_staleness_steps": 3}], ids=["asynchronous"]
)
def test_a_run_that_ends_anywhere_and_goes_on_trains_on_every_prompt_once(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: dict[str, Any]
) -> None:
    trained: dict[int, list[int]] = {}
    take = Exploration.take

    def recorded(self: Exploration, step: int, phase: Any) -> Any:
        explored = take(self, step, phase)
        trained[step] = [group.prompt.index for group in explored.kept]
        return explored

    def ends_at(step: int) -> Callable[[dict[str, Any]], None]:
        def watch(event: dict[str, Any]) -> None:
            if (event["kind"], event.get("name"), event.get("step")) == ("phase", "train", step):
                raise Killed

        return watch

    monkeypatch.setattr(Exploration, "take", recorded)
    config = config_of(
        task, tmp_path, weight_sync=sync, schedule={"total_steps": 6}, checkpoint={"every": 2, "export": "never"}
    )
    for step in (1, 3, 5):  # in the training of the step after
        with pytest.raises(Killed):
            run_here(config, tmp_path / "run", watch=ends_at(step))
    run_here(config, tmp_path / "run")
    assert sorted(trained) == [1, 2, 3, 4, 5, 6]
    assert sorted(index for each in trained.values() for index in each) == sorted(
        {index for each in trained.values() for index in each}
    )
    assert sum(map(len, trained.values())) == 24
