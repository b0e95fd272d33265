"""Runs with agents in this process: what they train on, that a single call is no change, and that lost workers cost nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlctl.common.errors import PlanError, RunError
from rlctl.config import Config
from rlctl.planning.plan import make_plan
from rlctl.runtime.processes.group import LocalGroup, RetryPolicy
from rlctl.runtime.roles import Policy
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.specs.served import agent_spec, rollout_spec
from rlctl.runtime.types import Response, Sample
from rlctl.runtime.workers.agent import AgentWorker
from rlctl.runtime.workers.rollout import RolloutWorker
from tests.runtime import local
from tests.runtime.conftest import Task
from tests.runtime.local import Seen, launch_here, run_here

AGENT = """
async def once(row, sampling, model):
    await model.chat(list(row.messages))

async def thrice(row, sampling, model, word="again"):
    messages = list(row.messages)
    for _ in range(3):
        messages += [await model.chat(messages, max_tokens=4), {"role": "user", "content": word}]
    return messages[1]["content"]

async def summarises(row, sampling, model):
    first = await model.chat(list(row.messages), max_tokens=4)
    await model.chat([{"role": "user", "content": "sum " + first["content"][:2]}], max_tokens=4)

async def fails(row, sampling, model):
    raise ValueError("the agent broke")

async def scores_itself(row, sampling, model):
    answer = await model.chat(list(row.messages))
    return {"reward": 0.25 * len(answer["content"]), "text": "never scored"}

async def returns_a_list(row, sampling, model):
    await model.chat(list(row.messages))
    return [1.0]

async def silent(row, sampling, model):
    return "1"
"""


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    file = tmp_path / "agent.py"
    file.write_text(AGENT)

    def rollout(function: str, **args: Any) -> dict[str, Any]:
        made = {"type": "function", "name": "mine", "path": str(file), "function": function, "args": args}
        return {"precision": "float32", "max_response_tokens": 32, "default_agent": "mine", "agents": [made]}

    return rollout


def steps(seen: Seen) -> dict[int, dict[str, float]]:
    return {event["step"]: event["metrics"] for event in seen if event["kind"] == "step"}


def differing(seen: Seen, other: Seen) -> set[str]:
    """Metrics that differ; log-probs of an engine may do so in the last bit, by what else is in a batch."""
    assert steps(seen).keys() == steps(other).keys()
    unlike = set()
    for step, metrics in steps(seen).items():
        for name in metrics.keys() | steps(other)[step].keys():
            one, two = metrics.get(name), steps(other)[step].get(name)
            rounded = name.startswith("policy/mismatch_") and one == pytest.approx(two, abs=1e-5)
            if one != two and not rounded and not name.startswith(("time/", "throughput/", "memory/", "worker/")):
                unlike.add(name)
    return unlike


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Sample]:
    """Every sample that the policy is trained on."""
    found: list[Sample] = []
    train = Policy.train

    def noted(self: Policy, samples: Sequence[Sample], **how: Any) -> Any:
        found.extend(samples)
        return train(self, samples, **how)

    monkeypatch.setattr(Policy, "train", noted)
    return found


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], Response]]:
    """Every prompt and completion of the engine."""
    found: list[tuple[tuple[int, ...], Response]] = []
    prompts: dict[int, tuple[int, ...]] = {}
    submit, poll = TransformersEngine.submit, TransformersEngine.poll

    def submitted(self: Any, requests: Any) -> None:
        prompts.update({ticket: request.token_ids for ticket, request in requests.items()})
        submit(self, requests)

    def polled(self: Any, seconds: float) -> Any:
        finished = poll(self, seconds)
        found.extend((prompts[each.ticket], each.response) for each in finished)
        return finished

    monkeypatch.setattr(TransformersEngine, "submit", submitted)
    monkeypatch.setattr(TransformersEngine, "poll", polled)
    return found


def short(task: Task, folder: Path, rollout: dict[str, Any], **changes: Any) -> Config:
    changes = {"schedule": {"total_steps": 2, "evaluate_every": 2}, **changes}
    return task.config(folder, rollout=rollout, **changes)


def test_an_agent_that_calls_the_model_once_changes_no_result(task: Task, tmp_path: Path, agent: Any) -> None:
    """Bit for bit against the same schedule without an agent, whose responses come from the same random streams."""
    streamed = {
        "reward_loop": {"overlap_with_rollout": True},
        "schedule": {"total_steps": 2, "evaluate_at_start": False},
    }
    rollout = agent("once")
    plain = {name: value for name, value in rollout.items() if name not in ("default_agent", "agents")}
    without = run_here(short(task, tmp_path, plain, **streamed), tmp_path / "plain")
    with_agent = run_here(short(task, tmp_path, rollout, **streamed), tmp_path / "agent")
    assert all(name.startswith("agent/") for name in differing(with_agent, without))
    assert steps(with_agent)[1]["agent/turns"] == 1


@pytest.mark.parametrize("function", ["thrice", "summarises"])
def test_trained_tokens_are_those_that_were_generated(
    task: Task, tmp_path: Path, agent: Any, trained: list[Sample], drawn: list[Any], function: str
) -> None:
    config = short(
        task,
        tmp_path,
        agent(function),
        schedule={"total_steps": 2, "evaluate_at_start": False, "evaluate_at_end": False},
        data={"eval": []},
    )
    seen = run_here(config, tmp_path / "run")
    generated = sorted((prompt, tuple(response.token_ids)) for prompt, response in drawn)
    found = []
    for sample in trained:
        ids, mask = sample.token_ids.tolist(), sample.mask.tolist()
        place = 0
        while place < len(ids):
            if not mask[place]:
                place += 1
                continue
            end = place
            while end < len(ids) and mask[end]:
                end += 1
            found.append((tuple(ids[:place]), tuple(ids[place:end])))
            place = end
    assert sorted(found) == generated
    calls = 3 if function == "thrice" else 2
    assert len(generated) == 2 * 16 * calls
    assert len(trained) == 2 * 16 * (1 if function == "thrice" else 2)
    log_probs = {(prompt, tuple(r.token_ids)): r.log_probs for prompt, r in drawn}
    sample = trained[0]
    first = int(sample.mask.int().argmax())
    end = first + sample.mask[first:].int().argmin().item() if not sample.mask[first:].all() else len(sample)
    key = tuple(sample.token_ids[:first].tolist()), tuple(sample.token_ids[first:end].tolist())
    assert sample.columns["rollout_log_probs"][first:end].tolist() == pytest.approx(list(log_probs[key]), abs=1e-6)
    assert steps(seen)[2]["agent/turns"] == calls


@pytest.mark.parametrize("function", ["thrice", "summarises"])
def test_samples_of_a_run_are_enough_to_replay_a_trajectory_token_by_token(
    task: Task, tmp_path: Path, agent: Any, function: str
) -> None:
    """Transformers computes the log-probs that the engine recorded, from the ids in the sample file and the run's first weights."""
    schedule = {"total_steps": 1, "evaluate_at_start": False, "evaluate_at_end": False}
    run_here(short(task, tmp_path, agent(function), schedule=schedule, data={"eval": []}), tmp_path / "run")
    [file] = (tmp_path / "run").glob("samples/**/step-000001.jsonl")
    model = AutoModelForCausalLM.from_pretrained(task.folder / "model", dtype=torch.float32).eval()
    trajectories = [one for line in file.read_text().splitlines()[1:] for one in json.loads(line)["details"]]
    assert len(trajectories) == 16
    for detail in trajectories:
        assert set(detail["versions"]) == {0}
        rows: list[list[tuple[bool, int]]] = []
        for (_, _, starts), inserted, own in zip(
            detail["turns"], detail["token_ids"][::2], detail["token_ids"][1::2], strict=True
        ):
            rows = [*rows, []] if starts else rows
            rows[-1] += [(False, token) for token in inserted] + [(True, token) for token in own]
        assert len(rows) == (1 if function == "thrice" else 2)
        found: list[float] = []
        for row in rows:
            with torch.no_grad():
                logits = model(torch.tensor([[token for _, token in row]])).logits[0].log_softmax(-1)
            found += [float(logits[place - 1, token]) for place, (own, token) in enumerate(row) if own]
        assert found == pytest.approx(detail["rollout_log_probs"], abs=1e-3), "they are written with three digits"


@pytest.mark.soak  # test_killed.py resumes a run with an environment
def test_a_resumed_run_is_the_one_that_was_not_interrupted(task: Task, tmp_path: Path, agent: Any) -> None:
    changes: dict[str, Any] = {"schedule": {"total_steps": 3, "evaluate_every": 3}}
    whole: Seen = []
    launch_here(short(task, tmp_path / "whole", agent("thrice"), **changes), whole.append)
    again: Seen = []
    config = short(task, tmp_path / "again", agent("thrice"), **changes)
    stopped = replace(config, run=replace(config.run, max_steps_this_session=1))
    launch_here(stopped, again.append)
    launch_here(config, again.append)
    assert not differing(again, whole)
    assert len(steps(whole)) == 3


class Mortal(LocalGroup):
    """A worker that dies at some of its calls, with all that is under way in it."""

    def __init__(self, name: str, make: Any, method: Any, deaths: Sequence[int]) -> None:
        super().__init__(name, make())
        self._make, self._method, self._deaths, self.calls = make, method, deaths, 0

    def each(self, method: Any, arguments: Any, *, again: RetryPolicy | None = None) -> list[Any]:
        if method is self._method:
            self.calls += 1
            if self.calls in self._deaths:
                self._worker.close()
                self._worker = self._make()
                assert again is not None
                again.renew(0)
        return super().each(method, arguments, again=again)


@pytest.mark.parametrize("role", ["agent", "rollout"])
def test_a_lost_worker_changes_no_result(
    task: Task, tmp_path: Path, agent: Any, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    config = short(task, tmp_path, agent("thrice"))
    whole = run_here(config, tmp_path / "whole")
    made: list[Mortal] = []
    makers: dict[str, Any] = {
        "agent": (lambda: AgentWorker(agent_spec(config)), AgentWorker.collect),
        "rollout": (
            lambda: RolloutWorker(rollout_spec(config, "transformers", config.model.path, "cpu")),
            RolloutWorker.collect,
        ),
    }

    def group(name: str, member: Any) -> LocalGroup:
        if name != role:
            return LocalGroup(name, member)
        make, method = makers[role]
        made.append(Mortal(name, make, method, (2, 30)))
        return made[-1]

    monkeypatch.setattr(local, "LocalGroup", group)
    assert not differing(run_here(config, tmp_path / "lost"), whole)
    assert made[0].calls > 30


def test_an_agent_that_returns_rewards_needs_no_others(task: Task, tmp_path: Path, agent: Any) -> None:
    seen = run_here(short(task, tmp_path, agent("scores_itself"), rewards=[]), tmp_path / "run")
    metrics = steps(seen)[2]
    assert metrics["reward/agent"] == metrics["reward/mean"] > 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("fails", "the agent broke"),
        ("silent", "ended without a call of the model"),
        ("returns_a_list", "expected a reward, a string, or an object"),
    ],
)
def test_an_agent_that_fails_ends_the_run(task: Task, tmp_path: Path, agent: Any, function: str, message: str) -> None:
    with pytest.raises((RunError, ValueError), match=message):
        run_here(short(task, tmp_path, agent(function)), tmp_path / "run")


def test_rollout_ahead_of_training_works_with_agents(task: Task, tmp_path: Path, agent: Any) -> None:
    config = short(
        task,
        tmp_path,
        agent("thrice"),
        schedule={"total_steps": 4, "evaluate_every": 2},
        weight_sync={"max_steps_ahead": 2, "max_staleness_steps": 3, "in_flight_requests": "continue"},
    )
    seen = run_here(config, tmp_path / "run")
    assert [*steps(seen)] == [1, 2, 3, 4]
    assert all(metrics["staleness/max"] <= 3 for metrics in steps(seen).values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollout": {"default_agent": "other"}}, "rollout.default_agent is 'other', but rollout.agents has none"),
        ({"algorithm": {"policy_filtration": {}, "advantage": "gae"}}, "algorithm.policy_filtration is not supported"),
        ({"run": {"skip": {"rollout": "dump"}}}, "run.skip.rollout is not supported with agents"),
    ],
)
def test_what_agents_do_not_support_is_refused_by_the_plan(
    task: Task, tmp_path: Path, agent: Any, changes: dict[str, Any], message: str
) -> None:
    rollout = changes.pop("rollout", agent("once"))
    with pytest.raises(PlanError, match=message):
        make_plan(short(task, tmp_path, rollout, **changes))
