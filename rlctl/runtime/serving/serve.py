"""``rlctl serve``: one rollout engine of a config behind the OpenAI API, with newer weights as they come."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import logging
import secrets
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlctl.common.errors import RlctlError, RunError
from rlctl.common.messages.reasons import reason_of, said, spoken
from rlctl.runtime.agents.formats import AUTO, LOOKUP, ToolCall, format_of
from rlctl.runtime.buffers.interface import SharedBuffer
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.experience.samples import training_sampling
from rlctl.runtime.rollout.interface import check_requests
from rlctl.runtime.rollout.texts import decoded
from rlctl.runtime.serving.chat import Conversations, answer_of, tokens_of
from rlctl.runtime.serving.collecting import Collector
from rlctl.runtime.serving.connections import bound
from rlctl.runtime.serving.generator import Generator, HeardTokens
from rlctl.runtime.serving.http import ApiServer, Heard, together
from rlctl.runtime.serving.protocol import ApiError, Asked, FinishReason, Generated
from rlctl.runtime.sync.machine import stored
from rlctl.runtime.types import Request, Response, Sampling
from rlctl.runtime.workers.rollout import RolloutSpec, make_engine

CONVERSATIONS = 4096
"""Whose tokens are remembered."""
_LOG = logging.getLogger(__name__)
_PENALTIES = ("presence_penalty", "frequency_penalty")
_INCOMPLETE = "\ufffd"
"""How a tokenizer decodes a character whose last bytes are still to come."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights in a folder."""

    folder: Path
    version: int
    """The step that they are of."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is served."""

    engine: RolloutSpec
    name: str
    """Under which clients see the model."""
    token: str
    host: str
    port: int
    version: int = 0
    """The step of its first weights."""
    tool_format: str = AUTO
    buffer: SharedBuffer | None = None
    """Gets what has feedback; None collects nothing."""


class Policy:
    """The ``Caller`` of every request, and what finds it."""

    def __init__(self, service: Service, generator: Generator, limits: tuple[int, int]) -> None:
        model = service.engine.model
        self.models = (service.name,)
        self._token, self._generator = service.token, generator
        self.collector = None if service.buffer is None else Collector(service.buffer)
        self._max_length, self._vocab_size = limits
        self._tokenizer = load_tokenizer(model, trust_remote_code=service.engine.trust_tokenizer_code)
        self._chat = Chat(self._tokenizer, template_args=model.chat_template_args)
        end = self._tokenizer.eos_token_id
        self._sampling = training_sampling(service.engine.rollout, () if end is None else (int(end),))
        needed = service.tool_format != AUTO
        tool_format = format_of(self._chat, service.tool_format, [LOOKUP], agent="serve", needed=needed)
        self._conversations = Conversations(
            self._chat, tool_format, agent="serve", max_tokens=self._max_length, most=CONVERSATIONS
        )

    def find(self, path_id: str, token: str) -> Policy:
        """This, if the token is right.

        Raises:
            ApiError: it isn't.
        """
        if not hmac.compare_digest(self._token.encode(), token.encode()):
            raise ApiError(401, "the token is wrong; use the one that rlctl serve printed", code="invalid_api_key")
        return self

    def elsewhere(self, body: Mapping[str, Any]) -> None:
        """Every request is answered here."""

    def knows(self, model: str) -> bool:
        """Whether requests may call the model so."""
        return model in self.models

    def overrides(self, asked: Asked) -> Sequence[str]:
        """The fields of a request that are read, and have no effect."""
        return () if self.collector is None else list(asked.sampling)

    async def reward(self, body: Any) -> None:
        """Refused: nothing is trained here.

        Raises:
            ApiError: always.
        """
        raise ApiError(404, "a served policy takes no rewards; start it with --collect and send feedback")

    async def discard(self, body: Any) -> None:
        """Refused, as ``reward`` is.

        Raises:
            ApiError: always.
        """
        await self.reward(body)

    @property
    def _collecting(self) -> Collector:
        if self.collector is None:
            raise ApiError(404, "nothing is collected here; start the server with --collect")
        return self.collector

    async def feedback(self, body: Any) -> dict[str, Any]:
        """Take feedback on answers.

        Raises:
            ApiError: it is none, or nothing is collected.
        """
        return self._collecting.feedback(body)

    async def commit(self) -> dict[str, Any]:
        """Write what has feedback into the buffer.

        Raises:
            ApiError: nothing is collected.
        """
        collector = self._collecting
        return await asyncio.to_thread(collector.commit, collector.taken())

    async def metrics(self) -> dict[str, float]:
        """What was collected.

        Raises:
            ApiError: nothing is collected.
        """
        return self._collecting.metrics(self._generator.weight_version)

    async def chat(self, asked: Asked, heard: Heard | None) -> list[Generated]:
        """Answer a chat request.

        Raises:
            ApiError: it cannot be answered as it asks.
        """
        ids = await self._conversations.read(asked)
        responses = await self._generate(ids, asked, None if asked.tools else heard)
        answers = await asyncio.to_thread(lambda: [self._chat_answer(asked, ids, each) for each in responses])
        self._collect(asked, ids, responses, [answer.text for answer in answers])
        return answers

    async def complete(self, asked: Asked, heard: Heard | None) -> list[Generated]:
        """Answer a completion request.

        Raises:
            ApiError: see ``chat``.
        """
        ids = await self._conversations.read(asked)
        responses = await self._generate(ids, asked, heard)
        answers = await asyncio.to_thread(self._text_answers, asked, ids, responses)
        self._collect(asked, ids, responses, [answer.text for answer in answers])
        return answers

    def _text_answers(self, asked: Asked, ids: Sequence[int], responses: Sequence[Response]) -> list[Generated]:
        texts = decoded(responses, self._tokenizer)
        return [self._generated(asked, text, each, len(ids)) for text, each in zip(texts, responses, strict=True)]

    def _collect(self, asked: Asked, ids: Sequence[int], responses: Sequence[Response], texts: Sequence[str]) -> None:
        if self.collector is not None:
            self.collector.record(asked, ids, responses[0], texts[0])

    async def _generate(self, ids: Sequence[int], asked: Asked, heard: Heard | None) -> list[Response]:
        if self.collector is not None and asked.n > 1:
            raise ApiError(400, said("n is {count}; feedback on one answer needs n 1", count=asked.n), param="n")
        sampling, seed = self._sampling_of(ids, asked), asked.sampling.get("seed")
        drawn = seed % (1 << 63) if seed is not None else secrets.randbits(48)
        requests = [Request(tuple(ids), sampling, 1, drawn, first=place) for place in range(asked.n)]
        try:
            check_requests(requests[:1], max_length=self._max_length, vocab_size=self._vocab_size)
        except RunError as error:
            raise ApiError(400, error.message.removeprefix("request 0: ")) from error
        asking = [
            self._generator.generate(request, self._hearing(place, sampling, heard))
            for place, request in enumerate(requests)
        ]
        try:
            return await together(asking)
        except RlctlError as error:
            raise ApiError(500, reason_of(error)) from error

    def _sampling_of(self, ids: Sequence[int], asked: Asked) -> Sampling:
        room = self._max_length - len(ids)
        if room < 1:
            raise ApiError(
                400,
                said(
                    "the prompt has {count} tokens, but the model reads {length} with the answer",
                    count=len(ids),
                    length=self._max_length,
                ),
                code="context_length_exceeded",
                param="messages",
            )
        for name in _PENALTIES:
            if asked.sampling.get(name):
                raise ApiError(
                    400,
                    said("{name} is {value!r}; it is not supported here", name=name, value=asked.sampling[name]),
                    param=name,
                )
        # What is trained on is sampled as the run says: its log-probs are those of this sampling.
        given = {} if self.collector is not None else asked.sampling
        own = {name: value for name, value in given.items() if name not in (*_PENALTIES, "seed")}
        limit = min(asked.max_tokens or self._sampling.max_tokens, room)
        return dataclasses.replace(
            self._sampling,
            max_tokens=limit,
            min_tokens=min(self._sampling.min_tokens, limit),
            stop=asked.stop or self._sampling.stop,
            stop_token_ids=(*self._sampling.stop_token_ids, *self._conversations.ends(asked.tools)),
            **own,
        )

    def _hearing(self, place: int, sampling: Sampling, heard: Heard | None) -> HeardTokens | None:
        if heard is None:
            return None
        held_back = max(map(len, sampling.stop), default=0)

        async def tell(tokens: Sequence[int]) -> None:
            text = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
            while text.endswith(_INCOMPLETE):
                text = text[: -len(_INCOMPLETE)]
            await heard(place, text[: len(text) - held_back] if held_back else text)

        return tell

    def _chat_answer(self, asked: Asked, ids: list[int], response: Response) -> Generated:
        ends = (*self._sampling.stop_token_ids, *self._conversations.ends(asked.tools))
        text = self._conversations.renderer(asked.tools).text_of(response.token_ids, ends)
        whole = response.finish_reason == "length" or bool(response.cut)
        parsed = None if whole else self._conversations.parsed(text, asked.tools)
        answer, calls = answer_of(text, parsed), []
        if parsed is not None and "tool_calls" in answer:
            calls = [call for call in parsed.calls if isinstance(call, ToolCall)]
            if not asked.parallel_calls:
                calls, answer["tool_calls"] = calls[:1], answer["tool_calls"][:1]
        if not calls:
            answer = {"role": "assistant", "content": decoded([response], self._tokenizer)[0]}
        self._conversations.remember(asked.messages, answer, asked.tools, [*ids, *response.token_ids])
        return self._generated(asked, str(answer["content"]), response, len(ids), calls)

    def _generated(
        self, asked: Asked, text: str, response: Response, prompt: int, calls: Sequence[ToolCall] = ()
    ) -> Generated:
        tokens = tokens_of(response, self._tokenizer) if asked.log_probs else ()
        finish: FinishReason = "tool_calls" if calls else response.finish_reason
        named = enumerate(calls)
        ids = [self._conversations.call_id(call, place, secrets.token_hex(5)[:9]) for place, call in named]
        return Generated(text, finish, prompt, len(response.token_ids), tokens, calls, ids)


async def serve(
    service: Service,
    *,
    ready: Callable[[int], None],
    newest: Callable[[int], Weights | None] | None = None,
    every: float = 5.0,
    loaded: Callable[[int], None] = lambda version: None,
    sockets: Sequence[socket.socket] = (),
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        service: what.
        ready: called with the port when requests are answered.
        newest: called in a thread with the version that is served; returns weights newer than it, if there are any.
        every: seconds between two calls of it.
        loaded: called with a version when its weights are served.
        sockets: that hold the service's address already.

    Raises:
        RunError: the model cannot be loaded, or the address cannot be used.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, ended.set)
    sockets = sockets or bound(service.host, service.port)
    engine = await asyncio.to_thread(make_engine, service.engine)
    engine.weight_version = service.version
    generator = Generator(engine)
    policy = Policy(service, generator, engine.limits)
    server = ApiServer(policy, by_path=False, collects=service.buffer is not None)
    following = None
    try:
        await server.start(sockets)
        ready(server.port)
        if newest is not None:
            following = asyncio.create_task(_follow(generator, newest, every, loaded))
        await ended.wait()
    finally:
        if following is not None:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
        await server.close()
        await asyncio.to_thread(generator.close)
        if policy.collector is not None:
            await asyncio.to_thread(_hand_over, policy.collector)


def _hand_over(collector: Collector) -> None:
    """Write what has feedback, and say that no more comes."""
    try:
        collector.commit(collector.taken())
        collector.buffer.end_writing()
    finally:
        collector.buffer.close()


async def _follow(
    generator: Generator, newest: Callable[[int], Weights | None], every: float, loaded: Callable[[int], None]
) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            weights = await asyncio.to_thread(newest, generator.weight_version)
            if weights is not None:
                await asyncio.to_thread(generator.load_weights, stored(weights.folder), weights.version)
                loaded(weights.version)
        except RlctlError as error:  # the weights that are served stay
            _LOG.warning(spoken("newer weights cannot be served: {error}", error=error))
