"""Runs whose agents fail, or differ by row: what is trained on, what is counted, and when the run ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import PlanError, RunError
from rlctl.planning.plan import make_plan
from rlctl.runtime.agents.conversation import Renderer
from rlctl.runtime.agents.kinds import Function
from rlctl.runtime.types import Request, Response, Sample, Sampling
from tests.runtime.agents.made import (
    LONG,
    chat,
    config_of,
    generated,
    ids,
    looping,
    prompt,
    saying,
    tokenizer,
    trajectory,
)
from tests.runtime.agents.test_runs import short, steps, trained
from tests.runtime.conftest import Task
from tests.runtime.local import run_here

assert trained is not None, "a fixture"

AGENT = """
async def unsteady(row, sampling, model, share=2, calls=1):
    for _ in range(calls):
        await model.chat(list(row.messages), max_tokens=4)
    if (row.index + model.index) % share == 0:
        raise ValueError("a flaky service")

async def once(row, sampling, model):
    await model.chat(list(row.messages), max_tokens=4)
"""
WORLD = """
class Counter:
    def reset(self, seed=None):
        self.left, self.seed = 2, seed
        return "1+1=", {}
    def step(self, action):
        self.left -= 1
        return "1+1=", 0.25, not self.left, False, {"success": True, "seed": self.seed}
"""
EVALUATES_AT_END = {"total_steps": 1, "evaluate_at_start": False, "evaluate_at_end": False}


@pytest.fixture
def rollout(tmp_path: Path) -> Any:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "world.py").write_text(WORLD)

    def made(**options: Any) -> dict[str, Any]:
        args = {name: options.pop(name) for name in ("share", "calls") if name in options}
        flaky = {"type": "function", "name": "flaky", "path": str(tmp_path / "agent.py"), "function": "unsteady"}
        world = {"type": "python", "path": str(tmp_path / "world.py"), "name": "Counter", "isolation": "thread"}
        agents = [
            {**flaky, "args": args, "stop_run_above_failures": 0.6, **options},
            {"type": "environment", "name": "world", "environment": world, "max_turn_tokens": 3},
        ]
        return {"precision": "float32", "max_response_tokens": 32, "default_agent": "flaky", "agents": agents}

    return made


def run(task: Task, folder: Path, rollout: dict[str, Any], **changes: Any) -> dict[str, float]:
    changes = {"schedule": EVALUATES_AT_END, "data": {"eval": []}, **changes}
    return steps(run_here(short(task, folder, rollout, **changes), folder / "run"))[1]


@pytest.mark.parametrize(
    ("policy", "samples", "size"), [("drop_response", 8, 2.0), ("zero", 16, 4.0), ("drop_group", 16, 4.0)]
)
def test_what_becomes_of_trajectories_that_fail(
    task: Task, tmp_path: Path, rollout: Any, trained: list[Sample], policy: str, samples: int, size: float
) -> None:
    # half of each group fails; of drop_group every fifth response does, so that some groups have none
    made = rollout(on_failure=policy, share=2 if policy != "drop_group" else 9)
    metrics = run(task, tmp_path, made)
    assert (len(trained), metrics["group/size_mean"]) == (samples, size)
    assert metrics["agent/failed_share"] == metrics["agent/failed_ValueError"]
    if policy != "drop_group":
        assert metrics["agent/failed_share"] == 0.5


@pytest.mark.parametrize("streams", [False, True])
def test_a_run_ends_above_a_share_of_failures_and_says_what_failed(
    task: Task, tmp_path: Path, rollout: Any, streams: bool
) -> None:
    changes: dict[str, Any] = {"reward_loop": {"overlap_with_rollout": True}} if streams else {}
    made = rollout(on_failure="drop_response", stop_run_above_failures=0.25)
    with pytest.raises(RunError) as shown:
        run(task, tmp_path, made, **changes)
    said = str(shown.value)
    assert (
        "8 of 16 trajectories of the agent 'flaky' failed (ValueError 8), and stop_run_above_failures is 0.25" in said
    )
    assert "a flaky service" in said


def test_further_responses_replace_those_that_fail(
    task: Task, tmp_path: Path, rollout: Any, trained: list[Sample]
) -> None:
    made = rollout(on_failure="drop_group", share=4)
    made["oversampling"] = {"additional_responses": 2}
    assert run(task, tmp_path, made)["group/size_mean"] == 4
    assert len(trained) == 16


def test_sources_choose_agents_and_environments_give_rewards(
    task: Task, tmp_path: Path, rollout: Any, trained: list[Sample]
) -> None:
    made = rollout(on_failure="zero")
    lakes = {"format": "episodes", "name": "worlds", "max_samples": 64, "agent": "world"}
    metrics = run(task, tmp_path, made, data={"train": [lakes], "eval": []}, rewards=[])
    assert metrics["agent/turns"] == 2
    assert metrics["reward/mean"] == 0.5
    assert metrics["reward/agent"] == 0.5
    assert all(sample.trajectory is not None for sample in trained)


EXITING = """
import os

class World:
    def reset(self, seed):
        self.exits = seed % 3 == 0
        return "1+1=", {}
    def step(self, action):
        if self.exits:
            os.write(os.open(MARKS, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b"x")
            os._exit(3)
        return "1+1=", 0.5, True, False, {}
"""


def test_environments_that_end_their_process_fail_no_others_in_a_run(
    task: Task, tmp_path: Path, rollout: Any, trained: list[Sample]
) -> None:
    marks = tmp_path / "marks"
    (tmp_path / "exiting.py").write_text(f"MARKS = {str(marks)!r}\n{EXITING}")
    world = {"type": "python", "path": str(tmp_path / "exiting.py"), "name": "World"}
    made = rollout()
    made["agents"] = [{"type": "environment", "name": "world", "environment": world, "max_turn_tokens": 3}]
    made["agents"][0] |= {"on_failure": "zero", "stop_run_above_failures": 1.0}
    made["default_agent"] = "world"
    lakes = {"format": "episodes", "name": "worlds", "max_samples": 64}
    metrics = run(task, tmp_path, made, data={"train": [lakes], "eval": []}, rewards=[])
    exits = len(marks.read_text()) if marks.exists() else 0
    assert 0 < exits < 16, "the seeds of groups differ"
    assert metrics["agent/failed_share"] == metrics["agent/failed_environment_lost"] == exits / 16
    assert metrics["reward/mean"] == 0.5 * (16 - exits) / 16
    assert len(trained) == 16


def test_a_functions_turns_are_limited(task: Task, tmp_path: Path, rollout: Any) -> None:
    made = rollout(calls=5, share=99, max_turns=2, max_turn_tokens=3)
    metrics = run(task, tmp_path, made)
    assert metrics["agent/turns"] == 2
    assert metrics["agent/stop_turns"] == 1
    assert metrics["response/length_max"] <= 6


HANGING = """
import asyncio

async def hangs(row, sampling, model, calls):
    for _ in range(calls):
        await model.chat(list(row.messages))
    try:
        await asyncio.sleep(600)
    finally:
        row.extra["released"] = True
"""


@pytest.mark.parametrize("calls", [2, 0])
def test_a_function_that_hangs_ends_at_its_time_limit(tmp_path: Path, calls: int) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    function = {"type": "function", "path": str(tmp_path / "hanging.py"), "function": "hangs", "args": {"calls": calls}}
    config = config_of({**function, "time_limit": 0.5, "on_turn_limit": "mask", "on_failure": "drop_response"})
    row = prompt()
    response, asked = trajectory(config, saying("1<end>", "2<end>"), row)
    assert len(asked) == calls
    assert row.extra["released"], "what it holds is given back"
    if calls:
        assert (response.stop, response.treatment, len(response.turns)) == ("time", "mask", 2)
    else:
        assert response.failure == "timeout: it made no call of the model within time_limit of the agent"


ESCAPES = """
import asyncio, os, sys

async def escapes(row, sampling, model, how):
    answer = await model.generate(row.token_ids)
    if how == "exit":
        sys.exit(3)
    if how == "exit in a task":
        await asyncio.gather(asyncio.create_task(escapes(row, sampling, model, "exit")))
    if how == "cancel":
        raise asyncio.CancelledError
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "discard":
        model.discard()
    if how == "discard a second time":
        model.discard(answer)
        model.discard(answer)
    return {"nan": float("nan"), "list": [], "surrogate": "1\\ud800", "object": {"score": 1}}.get(how)
"""


@pytest.mark.parametrize(
    ("how", "failure"),
    [
        ("exit", "SystemExit: "),
        ("exit in a task", "SystemExit: "),
        ("cancel", "CancelledError: "),
        ("interrupt", "KeyboardInterrupt: "),
        ("nan", "wrong_result: the agent 'solver' returned a float: reward is nan"),
        ("list", "wrong_result: the agent 'solver' returned a list: "),
        ("object", "wrong_result: the agent 'solver' returned a dict: "),
        ("discard", "discarded: the agent discarded all its 1 calls"),
        ("discard a second time", "ValueError: "),
        ("surrogate", ""),
    ],
)
def test_whatever_a_function_does_fails_its_own_trajectory_only(tmp_path: Path, how: str, failure: str) -> None:
    (tmp_path / "escapes.py").write_text(ESCAPES)

    async def waits(row: Any, sampling: Any, model: Any, how: str) -> None:
        await model.generate(row.token_ids)
        await asyncio.sleep(1.0)
        await model.generate(row.token_ids)

    function = {"type": "function", "path": str(tmp_path / "escapes.py"), "function": "escapes", "args": {"how": how}}
    config = config_of({**function, "on_failure": "drop_response"})
    (chosen,) = config.rollout.agents
    with looping(config) as loop:
        beside = Function(chosen, waits, Renderer(chat(), None, agent="beside"))  # type: ignore[arg-type]
        loop._agents = {**loop._agents, "beside": beside}
        row = prompt()
        rows = {1: replace(row, extra={"agent": "beside"}), 2: row, 3: replace(row, extra={"agent": "beside"})}
        sampling = Sampling(50, stop_token_ids=(tokenizer().eos_token_id,))
        loop.submit({ticket: Request(row.token_ids, sampling, 1, seed=9, row=row) for ticket, row in rows.items()}, {})
        found: dict[int, Response] = {}
        while len(found) < 3:
            progress = loop.collect(LONG)
            assert progress, "the loop has ended"
            found |= {each.ticket: each.response for each in progress.finished}
            loop.submit({}, {each.number: generated(f"{each.trajectory[0]}<end>") for each in progress.calls})
    assert found[2].failure.startswith(failure), found[2].failure
    if not failure:
        assert found[2].text == "1?"
    for ticket in (1, 3):
        assert not found[ticket].failure
        assert tuple(found[ticket].token_ids) == ids(f"{ticket}<end>") * 2


BOTH = """
import asyncio

async def both(row, sampling, model):
    await asyncio.gather(*(model.generate(row.token_ids) for _ in range(2)))
    await model.generate(row.token_ids)
"""


def test_calls_at_the_same_time_have_streams_of_their_own_and_count_as_turns(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(BOTH)
    function = {"type": "function", "path": str(tmp_path / "both.py"), "function": "both"}
    response, asked = trajectory(config_of({**function, "max_turns": 2}), saying("1<end>", "2<end>"))
    assert len({request.seed for request in asked}) == len(asked) == 2
    assert (response.stop, len(response.turns)) == ("turns", 2)


def test_rows_name_their_agent_and_unknown_ones_are_refused(task: Task, tmp_path: Path, rollout: Any) -> None:
    made = rollout(share=1)
    single = run(
        task,
        tmp_path,
        made,
        data={"train": [{"path": str(task.folder / "train.parquet"), "agent": "single_turn"}], "eval": []},
    )
    assert single["agent/turns"] == 1
    with pytest.raises(PlanError, match=r"data.train\[0\].agent is 'walker', but rollout.agents has flaky, world"):
        make_plan(
            short(
                task,
                tmp_path,
                made,
                data={"train": [{"path": str(task.folder / "train.parquet"), "agent": "walker"}], "eval": []},
            )
        )
