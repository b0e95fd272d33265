"""Auxiliary models: served by engines of a run or at an endpoint, and called by judges, agents and programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rlctl.checks import check
from rlctl.common.errors import PlanError, RunError
from rlctl.config import Config, config_from
from rlctl.planning import arithmetic
from rlctl.planning.plan import make_plan
from rlctl.runtime.auxiliary import Auxiliary, Called, Clients, outside
from rlctl.runtime.serving.serve import Service
from rlctl.runtime.specs.served import auxiliary_config, auxiliary_spec, check_served
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.auxiliary import AuxiliaryWorker
from rlctl.runtime.workers.reward import RewardItem, RewardWorker
from tests.runtime.conftest import Ran, Task
from tests.runtime.local import Seen, run_here
from tests.runtime.workers.speaking import save_speaker

TOKEN = "t0ken"
AGENT = """
async def asks(row, sampling, model):
    answer = await model.chat(list(row.messages), max_tokens=4)
    said = await model.auxiliary("grader").chat([{"role": "user", "content": "is it right?+"}], max_tokens=8)
    return {"reward": float(said["content"] == "YES"), "text": answer["content"]}
"""
PROGRAM = """
import json, os, sys
from urllib.request import Request, urlopen

def ask(path, body=None):
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return urlopen(Request(f"{os.environ['OPENAI_BASE_URL']}/{path}", data, headers)).read().decode()

row = json.load(sys.stdin)
names = [each["id"] for each in json.loads(ask("models"))["data"]]
ask("chat/completions", {"model": "policy", "messages": row["messages"], "max_tokens": 4})
right = {"model": "grader", "messages": [{"role": "user", "content": "right?-"}], "max_tokens": 8}
graded = json.loads(ask("chat/completions", right))["choices"][0]["message"]["content"]
lines = ask("completions", {"model": "grader", "prompt": "right?+", "max_tokens": 8, "stream": True}).splitlines()
parts = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
text = "".join(choice["text"] for part in parts for choice in part["choices"])
print(json.dumps({"reward": float((names, graded, text) == (["policy", "grader"], "NO", "YES"))}))
"""


@pytest.fixture(scope="module")
def grader(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Says YES after a ``+`` and NO after a ``-``."""
    return save_speaker(tmp_path_factory.mktemp("grader"), "+YES", "-NO", "?YES")


def config(grader: str, **more: Any) -> Config:
    rollout = {"auxiliary_models": [{"path": grader, "name": "grader"}], "max_response_tokens": 8}
    return config_from(
        {
            "model": {"path": "m"},
            "schedule": {"total_steps": 1},
            "train": {"precision": {"compute": "float32"}},
            "placement": {"device": "cpu", "devices_per_node": 2},
            "rollout": rollout | more.pop("rollout", {}),
            **more,
        }
    )


@contextmanager
def served(config: Config, port: int = 0) -> Iterator[tuple[AuxiliaryWorker, Auxiliary]]:
    worker = AuxiliaryWorker(
        Service(auxiliary_spec(config, "grader", "transformers", "cpu"), "grader", TOKEN, "127.0.0.1", port)
    )
    try:
        url = f"http://127.0.0.1:{worker.port()}/v1"
        yield worker, Auxiliary("grader", "grader", (url,), TOKEN, served=True)
    finally:
        worker.close()


JUDGE = {"type": "judge", "auxiliary_model": "grader", "prompt": "{response}", "scoring": "yes_no"}
GREEDY = {"sampling": {"temperature": 0.0, "max_tokens": 16}}


def test_a_judge_asks_the_model_by_its_name(grader: str) -> None:
    made = config(grader, rewards=[JUDGE | GREEDY])
    items = [RewardItem(Prompt(0, "s", (), "q"), text, 1) for text in ("a+", "b-")]
    with served(made) as (_, model), RewardWorker(made.rewards, models={"grader": model}) as scoring:
        assert [score.total for score in scoring.score(items)] == [1.0, 0.0]


def test_requests_need_the_token_and_sample_as_the_policy_does(grader: str) -> None:
    made = config(grader, rollout={"sampling": {"temperature": 0.0}, "max_response_tokens": 2})
    with served(made) as (worker, model):
        url = f"{model.urls[0]}/chat/completions"
        asked = {"messages": [{"role": "user", "content": "right?+"}], "model": "grader"}
        assert httpx.post(url, json=asked).status_code == 401
        said = httpx.post(url, json=asked, headers={"Authorization": f"Bearer {TOKEN}"}).json()
        assert said["choices"][0]["message"]["content"] == "YE", "the policy's limit"
        port = worker.port()
    with served(made, port) as (again, _):
        assert again.port() == port, "one that replaces another is found where the other was"


class Endpoint(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint elsewhere, which is busy at first."""

    seen: list[tuple[str | None, dict[str, Any]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.headers["Authorization"], body))
        self.send_response(200 if len(self.seen) > 1 else 503)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"role": "assistant", "content": "YES"}}]}).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_a_model_at_an_endpoint_is_called_with_its_own_name_and_key(grader: str) -> None:
    handler = type("Handler", (Endpoint,), {"seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1/"
    model = {"path": "org/big", "name": "grader", "base_url": url, "api_key": "s3cret"}
    made = config(grader, rollout={"auxiliary_models": [model]}, rewards=[JUDGE])
    assert make_plan(made).stages[0].role("auxiliary") is None, "nothing is served"

    async def asked() -> dict[str, Any]:
        clients = Clients(outside(arithmetic.auxiliary_models(made)))
        called = Called(clients.models["grader"], clients, seed=3)
        try:
            return await called.chat([{"role": "user", "content": "hi"}], temperature=0.5)
        finally:
            await clients.close()

    try:
        assert asyncio.run(asked()) == {"role": "assistant", "content": "YES"}
    finally:
        server.shutdown()
    assert handler.seen[-1] == (  # type: ignore[attr-defined]
        "Bearer s3cret",
        {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "model": "org/big"},
    )


def test_equal_questions_go_to_the_same_engine_and_others_spread() -> None:
    model = Auxiliary("a", "a", ("one", "two", "three"))
    assert model.url("x") == model.url("x")
    assert {model.url(str(number)) for number in range(50)} == {"one", "two", "three"}


@pytest.fixture
def ran(task: Task, tmp_path: Path, grader: str) -> Any:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "program.py").write_text(PROGRAM)
    agents: dict[str, Any] = {
        "function": {"type": "function", "path": str(tmp_path / "agent.py"), "function": "asks"},
        "program": {
            "type": "program",
            "program": {"type": "command", "command": [sys.executable, str(tmp_path / "program.py")]},
        },
    }

    def made_run(agent: str | None, **changes: Any) -> Seen:
        rollout: dict[str, Any] = {
            "precision": "float32",
            "max_response_tokens": 8,
            "auxiliary_models": [{"path": grader, "name": "grader"}],
        }
        if agent is not None:
            rollout |= {"default_agent": "mine", "agents": [{"name": "mine", **agents[agent]}]}
        return run_here(task.config(tmp_path, rollout=rollout, **changes), tmp_path / "run")

    return made_run


@pytest.mark.parametrize("agent", ["function", "program"])
def test_agents_call_it_by_its_name_and_are_not_trained_on_its_answers(ran: Any, agent: str) -> None:
    few = {"prompts_per_step": 1, "responses_per_prompt": 2}
    seen = ran(agent, schedule={"total_steps": 1, "evaluate_every": None}, rewards=[], batch=few)
    (step,) = [event["metrics"] for event in seen if event["kind"] == "step"]
    assert step["reward/mean"] == 1.0
    assert step["agent/turns"] == 1.0
    assert step.get("agent/auxiliary_calls", 0.0) == (2.0 if agent == "program" else 0.0)


def test_a_run_is_judged_by_it_and_repeats_itself(ran: Any) -> None:
    judge = JUDGE | {"prompt": "{response}?", "sampling": {"max_tokens": 8, "temperature": 1.0}}
    seen = ran(None, schedule={"total_steps": 2, "evaluate_every": None}, rewards=[judge])
    assert [event["metrics"]["reward/mean"] for event in seen if event["kind"] == "step"] == [1.0, 1.0]


# The plan


def placed(layout: dict[str, Any], *models: dict[str, Any], device: str = "cuda") -> Any:
    made = config_from(
        {
            "model": {"path": "m"},
            "data": {"train": [{"path": "a"}]},
            "rewards": [{"type": "rule"}],
            "schedule": {"total_steps": 1},
            "placement": {"device": device, "devices_per_node": 8, **layout},
            "rollout": {"auxiliary_models": list(models)},
        }
    )
    return make_plan(made).stages[0]


def test_the_plan_gives_models_the_last_devices_of_rollout() -> None:
    stage = placed({"layout": "split", "rollout_devices": 6}, {"path": "a", "replicas": 2}, {"path": "b"})
    roles = {role.role: role.devices for role in stage.roles}
    assert (roles["rollout"], roles["auxiliary"], roles["policy"]) == ((0, 1, 2), (3, 4, 5), (6, 7))
    assert (stage.role("auxiliary").engine, stage.role("auxiliary").processes) == ("vllm", 3)
    explicit = {
        "layout": "explicit",
        "roles": {
            "policy": {"devices": [0, 1, 2, 3]},
            "rollout": {"devices": [4, 5]},
            "auxiliary": {"devices": [6, 7]},
        },
    }
    assert placed(explicit, {"path": "a", "tensor_parallel_size": 2}).role("auxiliary").devices == (6, 7)


@pytest.mark.parametrize(
    ("layout", "models", "said"),
    [
        ({}, [{"path": "a"}], "shares GPUs with policy, rollout"),
        ({"layout": "split", "rollout_devices": 2}, [{"path": "a"}, {"path": "a"}], "two of rollout.auxiliary_models"),
        ({"layout": "split", "rollout_devices": 1}, [{"path": "a", "replicas": 2}], "need 2 devices; they have 1"),
        ({}, [{"path": "a"}, {"path": "b", "tensor_parallel_size": 2}], "differ in tensor_parallel_size"),
        ({}, [{"path": "a", "name": "policy"}], "called 'policy', which means another model"),
    ],
)
def test_what_cannot_be_placed_is_refused(layout: dict[str, Any], models: list[Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        placed(layout, *models)


def test_models_that_share_gpus_say_how_much_they_take_and_sleep() -> None:
    model = {"path": "a", "settings": {"gpu_memory_utilization": 0.2}}
    assert placed({}, model).role("auxiliary").devices == (0,)
    made = config_from(
        {"model": {"path": "m"}, "placement": {"device": "cuda"}, "rollout": {"auxiliary_models": [model]}}
    )
    own = auxiliary_config(made, made.rollout.auxiliary_models[0], "vllm")
    assert own.placement.layout == "colocated"
    assert own.rollout.engine.args == {"gpu_memory_utilization": 0.2}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (
            {"auxiliary_model": "grade"},
            "rewards[0].auxiliary_model is 'grade', but rollout.auxiliary_models has grader",
        ),
        ({"auxiliary_model": "grader", "model": "x"}, "rewards[0] has auxiliary_model, and also base_url or model"),
    ],
)
def test_a_judge_of_another_name_is_found_by_check(grader: str, reward: dict[str, Any], said: str) -> None:
    made = config(grader, data={"train": [{"path": "a"}]}, rewards=[{"type": "judge", **reward}])
    (found,) = [each for each in check(made) if each.code == "auxiliary-models"]
    assert said in found.message


def test_the_built_in_engine_takes_no_settings(grader: str) -> None:
    model = {"path": grader, "name": "grader", "settings": {"block_size": 8}}
    with pytest.raises(
        RunError, match=r"the auxiliary model .* sets settings, which its engine, transformers, does not"
    ):
        check_served(config(grader, rollout={"auxiliary_models": [model]}), "auxiliary", "transformers")


# In a run with Ray


@pytest.mark.soak
@pytest.mark.ray
def test_an_engine_that_is_killed_is_replaced_and_no_number_changes(
    task: Task, run: Callable[..., Ran], tmp_path: Path, grader: str
) -> None:
    """Two engines, of which one is killed while the first step is scored; answers are sampled."""

    def changed(name: str) -> Config:
        judge = JUDGE | {"prompt": "{response}?", "sampling": {"max_tokens": 8, "temperature": 1.0}}
        return task.config(
            tmp_path / name,
            placement={"devices_per_node": 2, "device": "cpu"},
            rollout={
                "precision": "float32",
                "max_response_tokens": 8,
                "auxiliary_models": [{"path": grader, "name": "grader", "replicas": 2}],
            },
            rewards=[judge],
            schedule={"total_steps": 2, "evaluate_every": None},
        )

    def kill(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and event["name"] == "rollout" and not killed:
            found = [each for each in psutil.Process().children(recursive=True) if _serves(each)]
            killed.append(min(found, key=lambda each: each.pid).pid)
            os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    whole, disturbed = run(changed("whole")), run(changed("disturbed"), watch=kill)
    assert killed
    assert any("starts a replacement" in event["message"] for event in disturbed.kinds("advisory"))
    steps = [event["metrics"]["reward/mean"] for event in whole.kinds("step")]
    assert [event["metrics"]["reward/mean"] for event in disturbed.kinds("step")] == steps
    assert disturbed.result.status == whole.result.status == "finished"


def _serves(process: psutil.Process) -> bool:
    """Whether a process is the host of an engine of an auxiliary model, by the log that it writes."""
    try:
        return any("auxiliary-" in file.path for file in process.open_files())
    except psutil.Error:
        return False
