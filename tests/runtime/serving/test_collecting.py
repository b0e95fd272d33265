"""Trinity-RFT's serve mode: outside agents use a served policy, give feedback, and another run trains on it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.runs import serving
from rlctl.runtime.buffers.sql import SqlBuffer
from rlctl.runtime.serving.serve import Service, serve
from rlctl.runtime.specs.served import rollout_spec
from tests.runtime.agents import made
from tests.runtime.local import launch_here

TOKEN = "t0ken"


def settings(model: Path, folder: Path, mode: str, **more: Any) -> dict[str, Any]:
    return {
        "rlctl": 1,
        "run": {"name": mode, "folder": str(folder), "mode": mode, "seed": 3},
        "model": {"path": str(model)},
        "batch": {"prompts_per_step": 2, "responses_per_prompt": 2},
        "schedule": {"total_steps": 2, "evaluate_at_start": False},
        "algorithm": {"advantage": {"type": "grpo"}},
        "rollout": {"precision": "float32", "max_response_tokens": 8, "sampling": {"temperature": 0.5}},
        "train": {"precision": {"compute": "float32"}, "memory": {"recompute_activations": False}},
        "buffer": {"type": "sql", "url": f"sqlite:///{folder}/shared.db", "label": "served", "read_timeout": 60},
        "placement": {"device": "cpu", "nodes": 1, "devices_per_node": 1},
        **more,
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    made.task().make_model(folder, seed=1)
    return folder


def told(url: str, path: str, body: Any = None) -> Any:
    """The answer of one of the routes that OpenAI's API has not."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    root = url.removesuffix("/v1")
    answer = httpx.request("GET" if body is None else "POST", f"{root}/{path}", json=body, headers=headers, timeout=60)
    return answer.json()


def episode(client: openai.OpenAI, url: str, question: str, task: str, reward: float) -> tuple[list[str], list[int]]:
    """An agent that asks twice, and is rewarded once: the ids of the answers and their lengths in tokens."""
    messages: list[Any] = [{"role": "user", "content": question}]
    (served,) = client.models.list()
    ids = []
    lengths = []
    for _ in range(2):
        answer = client.chat.completions.create(model=served.id, messages=messages, temperature=0.01, max_tokens=4)
        ids.append(answer.id)
        lengths.append(answer.usage.completion_tokens)
        messages += [
            {"role": "assistant", "content": answer.choices[0].message.content},
            {"role": "user", "content": "2*"},
        ]
    assert told(url, "feedback", {"msg_ids": ids, "reward": reward, "task_id": task})["calls"] == 2
    return ids, lengths


def use(url: str) -> list[list[int]]:
    """Two tasks with two episodes each: the lengths of the answers, for each episode."""
    lengths = []
    client = openai.OpenAI(base_url=url, api_key=TOKEN, max_retries=0)
    for task in ("a", "b"):
        for reward in (1.0, 0.0):
            ids, tokens = episode(client, url, f"{task}*", task, reward)
            lengths.append(tokens)
    assert told(url, "feedback", {"msg_ids": ids, "reward": 5, "task_id": "b"})["calls"] == 0, "given once"
    assert told(url, "commit", {}) == {"status": "success", "groups": 2, "trajectories": 4}
    return lengths


def test_feedback_makes_groups_of_trajectories_that_a_run_trains_on(model: Path, tmp_path: Path) -> None:
    config = config_from(settings(model, tmp_path, "rollout_only"))
    buffer = serving._buffer_of(config, tmp_path / "writer")
    service = Service(
        rollout_spec(config, "transformers", str(model), "cpu"), "tiny", TOKEN, "127.0.0.1", 0, buffer=buffer
    )
    seen: dict[str, Any] = {}

    def work(port: int) -> None:
        url = f"http://127.0.0.1:{port}/v1"
        try:
            seen["lengths"] = use(url)
            seen["metrics"] = told(url, "metrics")
            seen["wrong"] = told(url, "feedback", {"msg_ids": [], "reward": 1.0})
            seen["nan"] = told(url, "v1/feedback", {"msg_ids": ["x"], "reward": "good"})
            several = {"prompt": "1*", "n": 2, "model": "tiny"}
            seen["several"] = told(url, "v1/completions", several)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    async def both() -> None:
        asked: list[Any] = []
        await serve(service, ready=lambda port: asked.append(asyncio.create_task(asyncio.to_thread(work, port))))
        await asked[0]

    asyncio.run(both())
    assert seen["metrics"]["serve/trajectories_committed"] == 4
    assert seen["metrics"]["serve/calls"] == 8
    assert "msg_ids must be a list" in seen["wrong"]["error"]["message"]
    assert "reward is 'good'" in seen["nan"]["error"]["message"]
    assert "feedback on one answer needs n 1" in seen["several"]["error"]["message"]

    reader = SqlBuffer(f"sqlite:///{tmp_path}/shared.db", "served", "looking", read_timeout=5)
    groups = reader.take(2)
    reader.close()
    assert [group.rewards for group in groups] == [[1.0, 0.0], [1.0, 0.0]]
    assert [dict(each) for each in groups[0].prompt.messages] == [{"role": "user", "content": "a*"}]
    responses = [response for group in groups for response in group.responses]
    assert [[turn.tokens for turn in response.turns] for response in responses] == seen["lengths"]
    assert all(len(response.log_probs) == len(response.token_ids) for response in responses)
    cut = [response for response in responses if response.turns[0].tokens == 4]
    assert cut, "no first answer came to its limit of 4 tokens"
    assert not any(response.turns[1].starts_row for response in cut), "the second call continues the first's tokens"

    events: list[dict[str, Any]] = []
    assert launch_here(trainer(model, tmp_path, total_steps=1), events.append).status == "finished"
    (step,) = [event["metrics"] for event in events if event["kind"] == "step"]
    assert step["reward/mean"] == 0.5
    assert abs(step["policy/mismatch_kl"]) < 1e-5, "log-probs are of the run's temperature, whatever a client asks"


def trainer(model: Path, folder: Path, **more: Any) -> Config:
    made_of = settings(model, folder, "train_only")
    made_of["schedule"]["total_steps"] = more["total_steps"]
    made_of["weight_sync"] = {"method": "checkpoint"}
    return config_from(made_of)


def test_collecting_needs_a_buffer_that_others_can_read(model: Path, tmp_path: Path) -> None:
    config = config_from(settings(model, tmp_path, "full", buffer={"type": "memory"}))
    with pytest.raises(RunError, match="the config's buffer has no address"):
        serving._buffer_of(config, tmp_path)


@pytest.mark.soak
def test_a_served_policy_follows_the_run_that_trains_on_its_feedback(model: Path, tmp_path: Path) -> None:
    """Two processes: the server, as users start it, and a run that trains; the server then has the newer weights."""
    file = tmp_path / "serve.yaml"
    file.write_text(json.dumps(settings(model, tmp_path, "rollout_only")))
    command = [sys.executable, "-m", "rlctl", "serve", str(file), "--collect", "--port", "0", "--json"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "RLCTL_SERVE_TOKEN": TOKEN}
    )
    try:
        assert server.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = server.stdout.readline()
            assert line, "the server ended"
            text += line
        url = json.loads(text)["base_url"]
        use(url)
        use(url)
        assert launch_here(trainer(model, tmp_path, total_steps=2)).status == "finished"
        until = time.monotonic() + 60
        while not told(url, "metrics")["serve/weight_version"] and time.monotonic() < until:
            time.sleep(0.5)
        assert told(url, "metrics")["serve/weight_version"] > 0
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
