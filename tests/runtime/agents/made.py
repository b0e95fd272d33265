"""A tokenizer that shows tools and calls, tools, and an engine that says what a test tells it to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from rlctl.config import Config, config_from
from rlctl.planning import arithmetic
from rlctl.runtime.agents.loop import AgentLoop, ModelCall
from rlctl.runtime.agents.making import make_agent
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.types import Prompt, Request, Response, Sampling

CALCULATOR = Path(__file__).parents[3] / "presets/calculator"
LONG = 20.0


@cache
def task() -> Any:
    """The module that makes the calculator's task."""
    sys.path.insert(0, str(CALCULATOR))
    try:
        import make_task
    finally:
        sys.path.remove(str(CALCULATOR))
    return make_task


@cache
def tokenizer() -> Any:
    return task().make_tokenizer()


def chat() -> Chat:
    return Chat(tokenizer())


def ids(text: str) -> tuple[int, ...]:
    return tuple(tokenizer()(text, add_special_tokens=False)["input_ids"])


def call(expression: str, name: str = "calculate") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{"expression": "{expression}"}}}}</tool_call>'


def config_of(agent: dict[str, Any], **rollout: Any) -> Config:
    named = {"name": "solver", **agent}
    if "tools" in named:  # in this process, unless a test is about the sandbox
        named["tools"] = [
            {"trusted": True, **tool} if tool.get("type", "python") == "python" else tool for tool in named["tools"]
        ]
    return config_from({"model": {"path": "m"}, "rollout": {"default_agent": "solver", "agents": [named], **rollout}})


def solver(**options: Any) -> dict[str, Any]:
    tools = [{"type": "python", "path": str(CALCULATOR / "tools.py"), "name": "calculate"}]
    return {"type": "tools", "tools": tools, **options}


def generated(text: str, version: int = 0, finish: Any = "stop") -> Response:
    tokens = ids(text)
    return Response(tokens, tuple(-0.5 - place for place in range(len(tokens))), finish, version)


def prompt(text: str = "12*34=", tools: Any = None) -> Prompt:
    messages = ({"role": "user", "content": text},)
    rendered = chat().render(list(messages), generate=True, tools=tools)
    return Prompt(index=0, source="s", token_ids=ids(rendered), text=rendered, messages=messages)


@contextmanager
def looping(config: Config, max_context_tokens: int | None = None) -> Iterator[AgentLoop]:
    chosen = arithmetic.agent_of(config)
    assert chosen is not None
    with ThreadPoolExecutor(8) as threads:
        agents = {chosen.name: make_agent(chosen, chat(), threads, config.run.seed)}
        loop = AgentLoop(agents, chosen.name, max_context_tokens=max_context_tokens)
        try:
            yield loop
        finally:
            loop.close()


Answers = Callable[[ModelCall], Response]


def trajectory(
    config: Config, answers: Answers, row: Prompt | None = None, *, max_tokens: int = 200, context: int | None = None
) -> tuple[Response, list[Request]]:
    """A trajectory whose calls are answered, and the requests that it made."""
    row = row or prompt()
    asked: list[Request] = []
    with looping(config, context) as loop:
        sampling = Sampling(max_tokens, stop_token_ids=(tokenizer().eos_token_id,))
        loop.submit({1: Request(row.token_ids, sampling, 1, seed=9, row=row, inputs=row.inputs)}, {})
        while True:
            progress = loop.collect(LONG)
            assert progress, "the agent does nothing"
            if progress.finished:
                return progress.finished[0].response, asked
            asked += [each.request for each in progress.calls]
            loop.submit({}, {each.number: answers(each) for each in progress.calls})


def saying(*texts: str) -> Answers:
    """An engine that generates texts, one a call."""
    left = iter(texts)
    return lambda asked: generated(next(left))
