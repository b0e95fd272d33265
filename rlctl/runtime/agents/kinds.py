"""The agents of a config, and what they work with.

An agent's ``run`` makes one trajectory: it calls the model through ``Model``, which records every call, and returns how the
trajectory ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import FunctionAgent, RunningAgent, ToolsAgent
from rlctl.runtime.agents.conversation import Message, Renderer
from rlctl.runtime.agents.formats import Parsed, ToolCall, call_id, parse
from rlctl.runtime.agents.record import Recorder
from rlctl.runtime.agents.tools import LoadedTool, Toolbox
from rlctl.runtime.auxiliary import NO_AUXILIARIES, Called, Clients, chosen
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.serving.protocol import is_number
from rlctl.runtime.types import Prompt, Request, Response, Sampling
from rlctl.runtime.user_code import encodable

Ask = Callable[[Request], Awaitable[Response]]
"""Sends a request for one response to an engine."""


class OutOfTokens(Exception):
    """The trajectory has no room for another token."""


class TooLong(Exception):
    """A trajectory had all its time before the model was called."""

    cause = "timeout"


class NoResult(Exception):
    """The code of an agent made no trajectory."""

    def __init__(self, cause: str, text: str) -> None:
        """``cause``: ``no_call`` or ``wrong_result``."""
        super().__init__(text)
        self.cause = cause


class OutOfTurns(OutOfTokens):
    """The trajectory may not generate again: it had all its turns or its time."""


@dataclass
class Model:
    """The policy, as one trajectory calls it."""

    request: Request
    """The trajectory's: its prompt, sampling and seed."""
    index: int
    """Place of the trajectory in its group."""
    max_context_tokens: int | None
    chat_of: Renderer
    ask: Ask
    recorder: Recorder = field(default_factory=Recorder)
    max_turns: int | None = None
    max_turn_tokens: int | None = None
    deadline: float | None = None
    """Of ``time.monotonic``."""
    clients: Clients = field(default_factory=lambda: Clients(NO_AUXILIARIES))
    """Of auxiliary models."""
    counts: Counter[str] = field(default_factory=Counter)
    """What the agent counts."""
    stopped: str = ""
    """Why a call was refused: ``turns`` or ``time``."""
    truncated: bool = False
    """Whether a call ended because the trajectory has no more tokens."""
    _first: int | None = None
    """Tokens of the first prompt."""
    _used: int = 0
    """Tokens after it: generated and inserted ones."""
    _messages: list[Message] = field(default_factory=list)
    """Of the conversation that ``chat`` continues, with the answers of the model."""
    _ids: list[int] = field(default_factory=list)
    """Its tokens."""
    _texts: list[tuple[Response, str]] = field(default_factory=list)
    """Generations."""
    _others: dict[str, Called] = field(default_factory=dict)

    def auxiliary(self, name: str) -> Called:
        """A model of ``rollout.auxiliary_models``. What it generates is not trained on.

        Raises:
            RunError: there is none of this name.
        """
        if name not in self._others:
            self._others[name] = Called(chosen(self.clients.models, name), self.clients, self.own_seed)
        return self._others[name]

    @property
    def own_seed(self) -> int:
        """Of this trajectory; ``request.seed`` is that of its group."""
        return derive_seed(self.request.seed, "trajectory", self.index)

    @property
    def sampling(self) -> Sampling:
        """How the trajectory is sampled; ``max_tokens`` limits all tokens after its first prompt."""
        return self.request.sampling

    @property
    def over(self) -> str:
        """Why there may be no further call: ``turns`` or ``time``; empty if there may."""
        if self.max_turns is not None and self.recorder.begun >= self.max_turns:
            return "turns"
        return "time" if self.deadline is not None and time.monotonic() >= self.deadline else ""

    @asynccontextmanager
    async def within_time(self) -> AsyncIterator[None]:
        """Within, code is cancelled when the trajectory has had its time.

        Raises:
            TooLong: it made no call until then.
        """
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        limit = asyncio.timeout(left)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            self.stopped = "time"
            if not self.recorder.calls:
                raise TooLong("it made no call of the model within time_limit of the agent") from None

    @property
    def last_text(self) -> str:
        """The last generation that was not discarded."""
        return next((text for response, text in reversed(self._texts) if self.recorder.keeps(response)), "")

    def discard(self, response: Response | None = None) -> None:
        """Do not train on a generation, by default the last one: it is no part of the trajectory unless a later one continues it.

        Raises:
            ValueError: there is no such generation.
        """
        known = [
            each for each, _ in self._texts if self.recorder.keeps(each) and (response is None or each is response)
        ]
        if not known:
            raise ValueError("there is no such generation, or it was discarded before")
        self.recorder.discard(known[-1])

    def messages_after(self, row: Prompt) -> Sequence[Message]:
        """What ``chat`` added to the messages of a row."""
        known = len(row.messages)
        return self._messages[known:] if list(row.messages) == self._messages[:known] else self._messages

    def room(self, prompt: Sequence[int]) -> int:
        """Tokens that a call with this prompt may generate."""
        first = len(prompt) if self._first is None else self._first
        inserted = max(0, len(prompt) - first - self._used)
        left = self.sampling.max_tokens - self._used - inserted
        return left if self.max_context_tokens is None else min(left, self.max_context_tokens - len(prompt))

    async def generate(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int | None = None,
        seed: int | None = None,
        stop: tuple[str, ...] = (),
        ends: tuple[int, ...] = (),
    ) -> Response:
        """Generate after token ids.

        Args:
            prompt: everything that the model reads.
            max_tokens: of this generation; what is left of the trajectory's if that is less.
            seed: of its random stream; None derives one from the number of the call.
            stop: texts that end it.
            ends: tokens that end it, besides those of the sampling.

        Raises:
            OutOfTokens: there is no room for a token.
            OutOfTurns: there may be no further call.
        """
        prompt = tuple(prompt)
        self.stopped = self.over
        if self.stopped:
            raise OutOfTurns
        room = self.room(prompt)
        if room < 1:
            self.truncated = True
            raise OutOfTokens
        limit = min(each for each in (room, max_tokens, self.max_turn_tokens) if each is not None)
        number = self.recorder.begin()
        if self._first is None:
            self._first = len(prompt)
        self._used = max(self._used, len(prompt) - self._first)
        if seed is None:
            seed = self.request.seed if not number else derive_seed(self.request.seed, "turn", number)
        shortest = min(self.sampling.min_tokens, limit) if not number else 0
        sampling = dataclasses.replace(
            self.sampling,
            max_tokens=limit,
            min_tokens=shortest,
            stop=stop,
            stop_token_ids=(*self.sampling.stop_token_ids, *ends),
        )
        shown = self.request.token_ids  # what continues the row's prompt has its images before it
        inputs = self.request.inputs if prompt[: len(shown)] == shown else {}
        try:
            response = await self.ask(Request(prompt, sampling, 1, seed, first=self.index, inputs=inputs))
        except BaseException:
            self.recorder.give_up()
            raise
        self.recorder.add(prompt, response)
        self._used += len(response.token_ids)
        self.truncated = response.finish_reason == "length" and limit == room
        self._texts.append((response, self.chat_of.text_of(response.token_ids, self.sampling.stop_token_ids)))
        return response

    async def chat(self, messages: Sequence[Message], *, max_tokens: int | None = None) -> Message:
        """Generate the next message of a conversation.

        Messages that continue the last conversation, with the model's answer as it was returned, continue its tokens.
        Others start again, in a row of their own.

        Raises:
            OutOfTokens: there is no room for a token.
        """
        known = len(self._messages)
        if known and list(messages[:known]) == self._messages and len(messages) > known:
            self._ids += self.chat_of.between(messages[known:], self._ids)
        else:
            self._ids = self.chat_of.opening(messages)
        response = await self.generate(self._ids, max_tokens=max_tokens)
        self._ids = [*self._ids, *response.token_ids]
        answer = {"role": "assistant", "content": self._texts[-1][1]}
        self._messages = [*messages, answer]
        return answer


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trajectory ended."""

    text: str
    """What rewards score."""
    messages: Sequence[Message] = ()
    """After the prompt."""
    counts: Mapping[str, float] = field(default_factory=dict)
    reward: float | None = None
    """What the agent itself says the trajectory is worth; None if it doesn't."""
    stop: str = ""
    """Why it ended: ``done``, ``turns``, ``time`` or ``length``; empty leaves it to the model's last call."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The environment's last."""


def returned(value: Any) -> dict[str, Any]:
    """What the code of an agent returned, checked: nothing, a reward, a text, or an object with ``reward`` and ``text``.

    Raises:
        ValueError: it is something else.
    """
    if hasattr(value, "item"):
        value = value.item()
    if value is None:
        return {}
    if isinstance(value, str):
        return {"text": encodable(value)}
    if isinstance(value, bool | int | float):
        value = {"reward": value}
    if not isinstance(value, dict) or not value.keys() <= {"reward", "text"}:
        raise ValueError(
            said(
                "expected a reward, a string, or an object with reward and text; found {found}", found=str(value)[:200]
            )
        )
    found: dict[str, Any] = {}
    if value.get("reward") is not None:
        reward = value["reward"]
        if not isinstance(reward, bool) and not is_number(reward):
            raise ValueError(said("reward is {reward!r}; expected a finite number", reward=reward))
        found["reward"] = float(reward)
    if value.get("text") is not None:
        if not isinstance(value["text"], str):
            raise ValueError(said("text is {text!r}; expected a string", text=value["text"]))
        found["text"] = encodable(value["text"])
    return found


class Agent(Protocol):
    """What makes trajectories."""

    @property
    def config(self) -> RunningAgent:
        """Its part of the config."""
        ...

    @property
    def chat_of(self) -> Renderer:
        """What renders its conversations."""
        ...

    async def run(self, row: Prompt, model: Model) -> Ended:
        """Make one trajectory of a row."""
        ...

    async def close(self) -> None:
        """End what outlives trajectories."""
        ...


@dataclass(frozen=True)
class Tools:
    """The model calls tools until it answers without a call."""

    config: ToolsAgent
    tools: Sequence[LoadedTool]
    tool_format: str
    ends: tuple[int, ...]
    """Tokens that end a turn of calls."""
    chat_of: Renderer
    threads: ThreadPoolExecutor

    async def run(self, row: Prompt, model: Model) -> Ended:
        names = row.extra.get("tools")
        tools = [tool for tool in self.tools if names is None or tool.name in names]
        box = Toolbox(self.config, {tool.name: tool for tool in tools}, self.threads)
        chat_of = self.chat_of if names is None else self.chat_of.showing([tool.schema for tool in tools])
        messages: list[Message] = []
        ids = list(row.token_ids)
        try:
            text = await self._turns(row, ids, model, box, messages)
        finally:
            await box.release()
        drifted = chat_of.drifted(row, messages, ids)
        info = {"tool_rewards": list(box.rewards)} if box.rewards else {}
        return Ended(text, messages, {**box.counts, "token_drift": float(drifted)}, info=info)

    def expected_texts(self) -> list[str]:
        """A call of each tool, as the chat template writes it."""
        return [self.chat_of.call(tool.schema) for tool in self.tools]

    async def close(self) -> None:
        """End what outlives trajectories."""
        for tool in self.tools:
            if tool.close is not None:
                await tool.close()

    async def _turns(self, row: Prompt, ids: list[int], model: Model, box: Toolbox, messages: list[Message]) -> str:
        schemas, text = [tool.schema for tool in self.tools], ""
        while True:
            try:
                response = await model.generate(ids, max_tokens=self.config.max_turn_tokens, ends=self.ends)
            except OutOfTokens:
                return text
            ids += response.token_ids
            text = self.chat_of.text_of(response.token_ids, (*model.sampling.stop_token_ids, *self.ends))
            parsed = parse(text, self.tool_format, schemas)
            messages.append(_assistant(text, parsed, self.tool_format, model.recorder.calls))
            if not parsed.calls or response.finish_reason == "length":
                return text
            if self._had_all_turns(model):
                box.counts["stopped_by_turns"] += 1
                model.stopped = "turns"
                return text
            before = len(box.rewards)
            answers = await box.answer(parsed.calls, row)
            if self.config.credit.tool_rewards == "add":
                model.recorder.reward(sum(box.rewards[before:]))
            messages += answers
            inserted = self.chat_of.between(answers, response.token_ids)
            if model.room([*ids, *inserted]) < 1:
                model.truncated = True
                return text
            ids += inserted

    def _had_all_turns(self, model: Model) -> bool:
        """Whether calls of the last generation are not run: it was the last one, or all turns with answers are used."""
        calls, most = model.recorder.calls, self.config.max_observations
        return calls == self.config.max_turns or (most is not None and calls > most)


def _assistant(text: str, parsed: Parsed, tool_format: str, number: int) -> Message:
    """A generation as a message; as plain text if one of its calls cannot be read."""
    calls = [call for call in parsed.calls if isinstance(call, ToolCall)]
    if not calls or len(calls) < len(parsed.calls):
        return {"role": "assistant", "content": text}
    written = [
        {
            "id": call_id(tool_format, call.name, place, f"call{number:03d}{place:02d}"),
            "type": "function",
            "function": {"name": call.name, "arguments": dict(call.arguments)},
        }
        for place, call in enumerate(calls)
    ]
    return {"role": "assistant", "content": parsed.content, "tool_calls": written}


@dataclass(frozen=True)
class Function:
    """A coroutine of the user's."""

    config: FunctionAgent
    function: Callable[..., Awaitable[Any]]
    chat_of: Renderer

    async def run(self, row: Prompt, model: Model) -> Ended:
        """Run it. Its result is a reward, the text that rewards score, or both; without a text it is the last generation.

        Raises:
            NoResult: it made no call, or its result is something else.
        """
        result = None
        with suppress(OutOfTokens):
            async with model.within_time():
                result = await self.function(row, model.sampling, model, **self.config.args)
        if not model.recorder.calls:
            raise NoResult(
                "no_call",
                said(
                    "the agent {name!r} ended without a call of the model for prompt {index} of {source}",
                    name=self.config.name,
                    index=row.index,
                    source=row.source,
                ),
            )
        try:
            given = returned(result)
        except ValueError as error:
            raise NoResult(
                "wrong_result",
                said(
                    "the agent {name!r} returned a {kind}: {error}",
                    name=self.config.name,
                    kind=type(result).__name__,
                    error=error,
                ),
            ) from error
        return Ended(given.get("text", model.last_text), model.messages_after(row), reward=given.get("reward"))

    async def close(self) -> None:
        """The coroutine ends with its trajectory."""


@dataclass(frozen=True)
class SingleTurn:
    """One generation: the agent of rows that use none."""

    config: RunningAgent
    chat_of: Renderer

    async def run(self, row: Prompt, model: Model) -> Ended:
        """Generate once after the prompt."""
        with suppress(OutOfTokens):
            await model.generate(row.token_ids)
        return Ended(model.last_text, [{"role": "assistant", "content": model.last_text}])

    async def close(self) -> None:
        """Nothing outlives a generation."""
