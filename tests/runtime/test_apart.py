"""Exploring and training apart: one run fills a buffer, another trains on it, at once or later; both are interrupted and go on.

All runs are in this process or in a fork of it, without Ray (``local.launch_here``).
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rlctl.config import Config

from .local import launch_here

BUFFERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "sql": lambda folder: {"type": "sql", "url": f"sqlite:///{folder}/shared.db", "label": "sums", "read_timeout": 60},
    "memory": lambda folder: {"type": "memory", "log_path": f"sqlite:///{folder}/copy.db"},
    "file": lambda folder: {"type": "file", "path": str(folder / "shared.jsonl"), "read_timeout": 60},
}


def numbers(events: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Metrics of every step but those of time and memory; of a step that was done twice, the last."""
    left_out = ("time/", "throughput/", "memory/", "worker/", "buffer/")
    return {
        event["step"]: {name: value for name, value in event["metrics"].items() if not name.startswith(left_out)}
        for event in events
        if event["kind"] == "step"
    }


@pytest.fixture
def apart(task: Any, tmp_path: Path) -> Callable[..., Config]:
    """A run of one mode on a buffer in the test's folder."""

    def config(mode: str, kind: str, **changes: Any) -> Config:
        settings = {
            "run": {"name": mode, "folder": str(tmp_path), "mode": mode, **changes.pop("run", {})},
            "buffer": BUFFERS[kind](tmp_path) | changes.pop("buffer", {}),
            "schedule": {"total_steps": 3, "evaluate_at_start": False},
            "data": {"eval": []},
        }
        return task.config(tmp_path, **(settings | changes))

    return config


def go(config: Config) -> tuple[Any, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    result = launch_here(config, events.append)
    return result, events


def test_groups_that_a_person_wrote_need_no_more_than_what_is_trained_on(
    apart: Callable[..., Config], tmp_path: Path
) -> None:
    """Of a group tokens, log-probs and rewards; who scored them, and what with, is not known."""
    response = {"token_ids": [5, 6], "log_probs": [-1.0, -1.5], "finish_reason": "stop", "weight_version": 0}
    groups = [
        {
            "prompt": {"index": number, "source": "mine", "token_ids": [4, 3 + number], "text": "?"},
            "responses": [response] * 4,
            "rewards": [0.0, 1.0, 1.0, 0.5],
        }
        for number in range(4)
    ]
    (tmp_path / "shared.jsonl").write_text("".join(f"{json.dumps(group)}\n" for group in groups))
    result, trained = go(apart("train_only", "file", schedule={"evaluate_at_start": False, "total_steps": None}))
    assert result.status == "finished", result.cause
    assert numbers(trained)[1]["reward/mean"] == 0.625
    assert numbers(trained)[1]["reward/failed_share"] == 0
    assert numbers(trained)[1]["policy/grad_norm"] > 0


@pytest.mark.parametrize("kind", ["sql", "file"])
def test_a_run_explores_and_another_trains_on_what_it_left(
    apart: Callable[..., Config], kind: str, tmp_path: Path
) -> None:
    """Through a database; and through the file that gets a copy of a buffer in memory."""
    copied = {"log_path": str(tmp_path / "shared.jsonl")}
    result, explored = go(
        apart("rollout_only", "sql") if kind == "sql" else apart("rollout_only", "memory", buffer=copied)
    )
    assert result.status == "finished", result.cause
    assert list(numbers(explored)) == [1, 2, 3]
    assert not [event for event in explored if event["kind"] == "sync"], "there is no policy here"
    result, trained = go(apart("train_only", kind, schedule={"evaluate_at_start": False, "total_steps": None}))
    assert result.status == "finished", result.cause
    found = numbers(trained)
    assert list(found) == [1, 2, 3], "it ends with the buffer"
    told = {event["total_steps"] for event in trained if event["kind"] in ("stage_started", "step")}
    assert told == {None}, "nobody knows how many there will be"
    for step in found:
        assert found[step]["reward/mean"] == numbers(explored)[step]["reward/mean"]
    assert sum(metrics["policy/grad_norm"] for metrics in found.values()) > 0
    assert (result.folder / "checkpoints" / "main" / "hf" / "model.safetensors").exists()
    assert found[3]["staleness/max"] == 2, "all was drawn by the first weights"


def test_training_what_was_explored_is_training_in_one_run(apart: Callable[..., Config]) -> None:
    """The first step: the same responses, the same update."""
    go(apart("rollout_only", "sql"))
    _, trained = go(apart("train_only", "sql", schedule={"total_steps": 1, "evaluate_at_start": False}))
    together = apart("full", "sql", run={"name": "whole"}, schedule={"total_steps": 1}, buffer={"label": "other"})
    _, whole = go(together)
    (one,), (other,) = numbers(trained).values(), numbers(whole).values()
    same = {name for name in one if name.startswith(("policy/", "reward/", "response/"))} & set(other)
    assert len(same) > 5
    assert {name: one[name] for name in same} == pytest.approx({name: other[name] for name in same}, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", ["sql", pytest.param("file", marks=pytest.mark.soak)])
def test_both_are_interrupted_and_go_on_without_losing_or_repeating(
    apart: Callable[..., Config], kind: str, tmp_path: Path
) -> None:
    """Beside them two runs do the same in a buffer of their own and are not interrupted."""
    aside = {"label": "aside"} if kind == "sql" else {"path": str(tmp_path / "aside.jsonl")}
    for mode in ("rollout_only", "train_only"):
        steps = {"schedule": {"total_steps": 4, "evaluate_at_start": False}, "checkpoint": {"every": 3}}
        whole, expected = go(apart(mode, kind, **steps, run={"name": f"{mode}-whole"}, buffer=aside))
        assert whole.status == "finished", whole.cause

        class Lost(Exception):
            pass

        def die(event: dict[str, Any]) -> None:
            if event["kind"] == "phase" and event["name"] == "buffer" and event["step"] == 3:
                raise Lost

        config = apart(mode, kind, **steps)
        assert launch_here(config, die).status == "failed"
        again, events = go(config)
        assert again.status == "finished", again.cause
        assert list(numbers(events)) == [4], "from the checkpoint of step 3"
        assert numbers(events)[4] == numbers(expected)[4]


def test_weights_go_back_to_who_explores_at_the_same_time(apart: Callable[..., Config], tmp_path: Path) -> None:
    """Two processes at once: what is explored last was drawn by weights that the other has trained meanwhile."""
    held_back = {"capacity": 16}  # a step; the one that explores is not far ahead
    steps = {"schedule": {"total_steps": 5, "evaluate_at_start": False}}
    explore = apart("rollout_only", "sql", **steps, buffer=held_back)
    other = multiprocessing.get_context("fork").Process(target=_tell, args=(explore, tmp_path / "explored.json"))
    other.start()
    result, trained = go(apart("train_only", "sql", **steps))
    other.join(120)
    assert result.status == "finished", result.cause
    explored = json.loads((tmp_path / "explored.json").read_text())
    assert explored["status"] == "finished", explored["cause"]
    assert list(numbers(trained)) == [1, 2, 3, 4, 5]
    versions = explored["versions"]
    assert versions == sorted(versions)
    assert versions[-1] >= 1, "the last prompts were answered by trained weights"
    assert numbers(trained)[5]["staleness/max"] < 4, "else all had been drawn by the first weights"


def _tell(config: Config, to: Path) -> None:
    result, events = go(config)
    versions = [event["metrics"]["buffer/weight_version"] for event in events if event["kind"] == "step"]
    to.write_text(json.dumps({"status": result.status, "cause": result.cause, "versions": versions}))


def test_responses_that_are_too_old_are_not_trained_on(apart: Callable[..., Config]) -> None:
    go(apart("rollout_only", "sql"))
    stale = {"objective": "rl", "sample_strategy": "staleness_control", "sample_strategy_args": {"max_staleness": 1}}
    result, trained = go(apart("train_only", "sql", algorithm=stale, schedule={"evaluate_at_start": False}))
    assert result.status == "finished", result.cause
    assert list(numbers(trained)) == [1, 2], "before the third step the weights are two versions ahead"


def test_groups_that_fill_no_step_are_told_of_as_such(apart: Callable[..., Config]) -> None:
    steps = {"total_steps": 1, "evaluate_at_start": False}
    go(apart("rollout_only", "sql", schedule=steps))
    batch = {"prompts_per_step": 3, "responses_per_prompt": 4}
    result, trained = go(apart("train_only", "sql", schedule={"evaluate_at_start": False}, batch=batch))
    assert result.status == "finished", result.cause
    (told,) = (event for event in trained if event["kind"] == "advisory" and "unused group" in event["message"])
    assert told["message"] == "the buffer ends with 1 unused group, but a step needs 3"
    assert told["hint"] == "", "what is said of rewards that fail is said of them"


def test_a_buffer_that_nobody_fills_is_waited_for_only_so_long(apart: Callable[..., Config]) -> None:
    result, _ = go(apart("train_only", "sql", buffer={"read_timeout": 0.2}))
    assert result.status == "failed"
    assert "waited 0.2 s for 4 groups" in result.cause
    assert "no run has written to it" in result.cause


def test_an_online_run_replays_and_keeps_a_copy(apart: Callable[..., Config], tmp_path: Path) -> None:
    """With a decay below 0 what was used comes first: the first step's responses are trained on three times."""
    replay = {"enabled": True, "cooldown": 0.0, "priority_args": {"decay": -3.0}}
    result, events = go(apart("full", "memory", buffer={"replay": replay, "capacity": 64}))
    assert result.status == "finished", result.cause
    [*_, last] = (event["metrics"] for event in events if event["kind"] == "step")
    assert last["buffer/groups_reused"] == 8
    assert last["staleness/max"] == last["staleness/mean"] == 2
    with sa.create_engine(f"sqlite:///{tmp_path}/copy.db").connect() as connection:
        assert connection.scalar(sa.text("select count(*) from rlctl_groups")) == 12, "three steps of four groups"
