"""``rlctl serve``, called with the official OpenAI client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runs import find, serving
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.serving.serve import Service, Weights, serve
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.types import Request, Sampling
from tests.runtime.agents import made
from tests.runtime.local import launch_here

ASKED = [{"role": "user", "content": "12*34="}]
TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Calculate.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    made.task().make_model(folder, seed=1)
    return folder


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "rlctl", "serve", str(model), "--port", "0", "--json", "--tool-format", "hermes"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, "the server ended"
        text += line
    yield json.loads(text)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def client(served: dict[str, Any], **changes: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=served["base_url"], api_key=served["api_key"], max_retries=0, **changes)


def greedy(model: Path, prompt: tuple[int, ...], count: int, **sampling: Any) -> tuple[int, ...]:
    """What the engine itself generates."""
    engine = TransformersEngine(str(model))
    ends = (made.tokenizer().eos_token_id,)
    request = Request(prompt, Sampling(count, temperature=0.0, stop_token_ids=ends, **sampling), 1, seed=0)
    return tuple(engine.generate([request])[0][0].token_ids)


def test_a_chat_is_what_the_engine_generates(served: dict[str, Any], model: Path) -> None:
    asking = client(served)
    assert [each.id for each in asking.models.list()] == ["tiny"]
    prompt = made.prompt().token_ids
    expected = greedy(model, prompt, 12)
    answer = asking.chat.completions.create(
        model="tiny", messages=ASKED, temperature=0, max_completion_tokens=12, logprobs=True
    )
    choice = answer.choices[0]
    assert choice.message.content == made.tokenizer().decode(expected, skip_special_tokens=True)
    assert choice.finish_reason == "length"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [each.token for each in choice.logprobs.content] == [made.tokenizer().decode([token]) for token in expected]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), 12)


def test_a_stream_says_the_same_in_several_pieces(served: dict[str, Any]) -> None:
    asking = client(served)
    options: dict[str, Any] = {"model": "tiny", "messages": ASKED, "seed": 5, "max_tokens": 90}
    whole = asking.chat.completions.create(**options)
    chunks = list(asking.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(pieces) == whole.choices[0].message.content
    assert len(pieces) > 1
    assert chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_many_clients_at_the_same_time_and_completions(served: dict[str, Any], model: Path) -> None:
    async def ask() -> list[str]:
        asking = openai.AsyncOpenAI(base_url=served["base_url"], api_key=served["api_key"], max_retries=0)
        calls = [
            asking.completions.create(model="tiny", prompt=f"{each}*", temperature=0, max_tokens=6) for each in range(9)
        ]
        return [answer.choices[0].text for answer in await asyncio.gather(*calls)]

    expected = [
        made.tokenizer().decode(greedy(model, made.ids(f"{each}*"), 6), skip_special_tokens=True) for each in (0, 8)
    ]
    texts = asyncio.run(ask())
    assert [texts[0], texts[8]] == expected


def test_errors_are_those_of_the_api(served: dict[str, Any]) -> None:
    with pytest.raises(openai.AuthenticationError, match="the token is wrong"):
        client({**served, "api_key": "foreign"}).models.list()
    with pytest.raises(openai.BadRequestError, match="the prompt has 300 tokens, but the model reads 128") as refused:
        client(served).completions.create(model="tiny", prompt=[5] * 300)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="token id 4000"):
        client(served).completions.create(model="tiny", prompt=[4000])
    with pytest.raises(openai.NotFoundError):
        client(served).embeddings.create(model="tiny", input="x")
    tools: Any = [TOOL]
    answer = client(served).chat.completions.create(model="tiny", messages=ASKED, tools=tools, max_tokens=3)
    assert answer.choices[0].message.content is not None


def test_newer_weights_are_served_while_requests_run(model: Path, tmp_path: Path) -> None:
    made.task().make_model(tmp_path / "newer", seed=2)
    config = config_from(
        {"model": {"path": str(model)}, "rollout": {"precision": "float32", "max_response_tokens": 100}}
    )
    service = Service(rollout_spec(config, "transformers", str(model), "cpu"), "tiny", "t", "127.0.0.1", 0)
    texts: list[str] = []
    versions: list[int] = []

    def newest(version: int) -> Weights | None:
        return Weights(tmp_path / "newer", 3) if not version and texts else None

    async def ask(port: int) -> None:
        asking = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="t", max_retries=0)

        async def text() -> str:
            answer = await asking.completions.create(model="tiny", prompt="12*", temperature=0, max_tokens=6)
            return answer.choices[0].text

        try:
            texts.append(await text())
            under_way = [asking.completions.create(model="tiny", prompt="1", max_tokens=100) for _ in range(4)]
            running = asyncio.gather(*under_way)
            while not versions:
                await asyncio.sleep(0.02)
            assert len(await running) == 4
            texts.append(await text())
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    async def both() -> None:
        asked: list[asyncio.Task[None]] = []
        await serve(
            service,
            ready=lambda port: asked.append(asyncio.create_task(ask(port))),
            newest=newest,
            every=0.05,
            loaded=versions.append,
        )
        await asked[0]

    asyncio.run(both())
    assert versions == [3]
    for text, folder in zip(texts, (model, tmp_path / "newer"), strict=True):
        assert text == made.tokenizer().decode(greedy(folder, made.ids("12*"), 6), skip_special_tokens=True)


def test_the_weights_of_a_run_are_those_of_its_checkpoints(task: Any, tmp_path: Path) -> None:
    config = task.config(tmp_path, objective="sft", schedule={"total_steps": 2}, checkpoint={"every": 1})
    assert launch_here(config).status == "finished"
    served = serving.served_by("demo", tmp_path)
    assert served is not None
    assert served.run is not None
    source = serving._Source(served.run, None, tmp_path, print)
    first = source.first()
    assert first is not None
    assert first.version == 2
    left = served.run.folder / "checkpoints/main/hf/model.safetensors"
    assert (first.folder / "model.safetensors").read_bytes() == left.read_bytes()
    assert source.newer(2) is None

    one = serving.served_by(str(served.run.folder / "checkpoints/main/step-000001"), tmp_path)
    assert one is not None
    assert (one.name, one.step) == ("demo", 1)
    with pytest.raises(RunError, match=r"weights of demo cannot be exported:\n.*no complete checkpoint of step 7"):
        serving._Source(find("demo", tmp_path), 7, tmp_path, print).first()
    assert serving.served_by("a-config.yaml", tmp_path) is None
