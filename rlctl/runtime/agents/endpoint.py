"""The OpenAI endpoint of agent programs: each trajectory has its own address and token, and every call is recorded for training.

    program ──POST /t/ID/v1/chat/completions──▶ Session ──token ids──▶ Model ──▶ engine
            ◀────────── message, calls ─────────        ◀── tokens, log-probs, version

What a program asks about sampling (temperature, top-p, seed) is overridden by the run's, since training computes log-probs for
those; the number of such calls is counted. Lengths are limited here, whatever a program asks.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rlctl.common.messages.reasons import reason_of, said
from rlctl.runtime.agents.conversation import Message
from rlctl.runtime.agents.formats import ToolCall
from rlctl.runtime.agents.kinds import Model, OutOfTokens, returned
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.serving.chat import Conversations, answer_of, tokens_of
from rlctl.runtime.serving.connections import bound
from rlctl.runtime.serving.http import ApiServer, Forward, Heard, together
from rlctl.runtime.serving.protocol import ApiError, Asked, FinishReason, Generated
from rlctl.runtime.types import Prompt, Response

MODEL = "policy"
"""The name under which programs see the model. If there are no auxiliary models, any other name means it as well."""
CALL_ID_CHARACTERS = 9
"""Of a call's id; some chat templates demand this length."""


class Session:
    """A trajectory as its program sees it: the ``Caller`` of its requests."""

    def __init__(
        self,
        row: Prompt,
        model: Model,
        chat: Chat,
        tool_format: str | None,
        *,
        agent: str,
        max_turns: int | None,
        max_turn_tokens: int | None,
    ) -> None:
        self.path_id, self.token = secrets.token_hex(8), secrets.token_urlsafe(24)
        self.row, self.model, self.counts = row, model, Counter[str]()
        self.models = (MODEL, *model.clients.models)
        self.given: dict[str, Any] = {}
        """What the program returned over the endpoint: ``reward``, ``text``, ``error``."""
        self.ended_by: FinishReason | str = ""
        """The limit that refused a call: ``length`` or ``turns``."""
        self.last: tuple[list[Message], list[int], Conversations, Sequence[Mapping[str, Any]]] | None = None
        """Of the newest call: its messages with the answer, their tokens, and what renders them."""
        self._answers: dict[str, list[tuple[Response, str]]] = {}
        """Generations and their texts, by the id of the answer that has them."""
        self._chat, self._max_turns, self._max_turn_tokens = chat, max_turns, max_turn_tokens
        self._conversations = Conversations(chat, tool_format, agent=agent, max_tokens=model.max_context_tokens)
        self._closed = False
        self._requests: set[asyncio.Task[Any]] = set()
        """Requests under way."""
        self._started = 0
        self._seen: Counter[tuple[int, ...]] = Counter()

    def close(self) -> None:
        """End the trajectory: requests under way are given up, and later ones refused."""
        self._closed = True
        for request in self._requests:
            request.cancel()

    def elsewhere(self, body: Mapping[str, Any]) -> Forward | None:
        """Where a request goes that names an auxiliary model; it is no part of the trajectory.

        Raises:
            ApiError: the trajectory has ended.
        """
        name = body.get("model")
        if not isinstance(name, str) or name not in self.model.clients.models:
            return None
        self._check_open()
        self.counts["auxiliary_calls"] += 1
        called = self.model.auxiliary(name)
        return Forward(called.base_url, called.api_key, called.seeded(body))

    def knows(self, model: str) -> bool:
        """Whether requests may call the model so: by any name, unless it could be a mistyped one of an auxiliary model."""
        return len(self.models) == 1 or model in self.models

    def overrides(self, asked: Asked) -> Sequence[str]:
        """The fields of a request that are read, and have no effect."""
        return [*asked.sampling, *(["model"] if asked.model not in ("", *self.models) else [])]

    async def reward(self, body: Any) -> None:
        """Take what the program returns: ``reward``, a number, and ``text``, which ``rewards`` score; either may be missing.

        ``error``, alone, says why the program failed.

        Raises:
            ApiError: it is something else, or the trajectory has ended.
        """
        self._check_open()
        if isinstance(body, dict) and body.keys() == {"error"}:
            self.given |= {"error": str(body["error"])}
            return
        try:
            self.given |= returned(body)
        except ValueError as error:
            raise ApiError(400, reason_of(error)) from error

    async def discard(self, body: Any) -> None:
        """Do not train on an answer: ``id`` is that of the completion, ``choices`` numbers those of its choices; all without it.

        Raises:
            ApiError: there is no such answer, or the trajectory has ended.
        """
        self._check_open()
        number = body.get("id") if isinstance(body, dict) else None
        answers = self._answers.get(number) if isinstance(number, str) else None
        if answers is None:
            known = ", ".join(list(self._answers)[-3:]) or "none"
            raise ApiError(
                404,
                said(
                    "id is {number!r}; expected the id of an answer of this trajectory: {known}",
                    number=number,
                    known=known,
                ),
            )
        choices = body.get("choices", list(range(len(answers))))
        if not isinstance(choices, list) or not set(map(repr, choices)) <= set(map(repr, range(len(answers)))):
            raise ApiError(
                400,
                said(
                    "choices is {choices!r}; expected numbers from 0 to {last}", choices=choices, last=len(answers) - 1
                ),
            )
        for place in choices:
            if self.model.recorder.keeps(answers[place][0]):
                self.model.recorder.discard(answers[place][0])

    @property
    def text(self) -> str:
        """The newest generation that was not discarded."""
        answers = [answer for several in self._answers.values() for answer in several]
        return next((text for response, text in reversed(answers) if self.model.recorder.keeps(response)), "")

    async def feedback(self, body: Any) -> dict[str, Any]:
        """Refused: this endpoint records each trajectory without being asked.

        Raises:
            ApiError: always.
        """
        raise ApiError(404, "this endpoint records trajectories; there is nothing to commit")

    async def commit(self) -> dict[str, Any]:
        """See ``feedback``."""
        return await self.feedback(None)

    async def metrics(self) -> dict[str, float]:
        """See ``feedback``."""
        await self.feedback(None)
        return {}

    async def chat(self, asked: Asked, heard: Heard | None) -> list[Generated]:
        """Answer a chat request.

        Raises:
            ApiError: the trajectory has ended, or has no room for a token or a turn.
        """
        with self._noted():
            ids = await self._conversations.read(asked)
            responses = await self._generate(ids, asked)
            return [self._chat_answer(asked, ids, response) for response in responses]

    async def complete(self, asked: Asked, heard: Heard | None) -> list[Generated]:
        """Answer a completion request.

        Raises:
            ApiError: see ``chat``.
        """
        with self._noted():
            generated, ids = [], await self._conversations.read(asked)
            self._check_tokens(ids)
            for response in await self._generate(ids, asked):
                text = self._plain(response)
                self.last = None
                self._note(asked, response, text)
                generated.append(self._generated(asked, text, response, ids))
            return generated

    def _check_tokens(self, ids: Sequence[int]) -> None:
        if not ids:
            raise ApiError(400, "the prompt is empty; expected at least 1 token", param="prompt")
        if max(ids) >= len(self._chat.tokenizer):
            last = len(self._chat.tokenizer) - 1
            raise ApiError(
                400,
                said("token id {token}; the tokenizer has ids 0 to {last}", token=max(ids), last=last),
                param="prompt",
            )

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Within, a request is one of those that end with the trajectory."""
        self._check_open()
        request = asyncio.current_task()
        assert request is not None, "a server answers in tasks"
        self._requests.add(request)
        try:
            yield
        finally:
            self._requests.discard(request)

    async def _generate(self, ids: Sequence[int], asked: Asked) -> list[Response]:
        if asked.sampling:
            self.counts["overridden_sampling"] += 1
        limits = [limit for limit in (asked.max_tokens, self._max_turn_tokens) if limit is not None]
        calls = []
        for _ in range(asked.n):
            if self._max_turns is not None and self._started >= self._max_turns:
                self.ended_by = self.ended_by or "turns"
                self.counts["stopped_by_turns"] = 1
                raise ApiError(
                    400,
                    said("the trajectory has made its {turns} calls (max_turns)", turns=self._max_turns),
                    code="max_turns",
                )
            self._started += 1
            calls.append(
                self.model.generate(
                    ids,
                    max_tokens=min(limits, default=None),
                    seed=self._seed(tuple(ids)),
                    stop=asked.stop,
                    ends=self._conversations.ends(asked.tools),
                )
            )
        try:
            return await together(calls)
        except OutOfTokens:
            self.ended_by = "length"
            raise ApiError(
                400,
                "the trajectory has no room for another token (rollout.max_response_tokens, model.max_context_tokens)",
                code="context_length_exceeded",
                param="messages",
            ) from None

    def _seed(self, ids: tuple[int, ...]) -> int:
        """Of a call's random stream, by what the model reads: calls at the same time may arrive in any order."""
        self._seen[ids] += 1
        request = self.model.request
        if ids == tuple(self.row.token_ids) and self._seen[ids] == 1:
            return request.seed
        digest = hashlib.sha256(repr(ids).encode()).hexdigest()
        return derive_seed(request.seed, "call", digest, self._seen[ids])

    def _chat_answer(self, asked: Asked, ids: list[int], response: Response) -> Generated:
        renderer = self._conversations.renderer(asked.tools)
        ends = (*self.model.sampling.stop_token_ids, *self._conversations.ends(asked.tools))
        text, parsed = renderer.text_of(response.token_ids, ends), None
        if asked.tools and response.finish_reason != "length" and not response.cut:
            parsed = self._conversations.parsed(text, asked.tools)
        answer = answer_of(text, parsed)
        calls = (
            [call for call in parsed.calls if isinstance(call, ToolCall)] if parsed and "tool_calls" in answer else []
        )
        if parsed is not None:
            self.counts["calls"] += len(parsed.calls)
            self.counts["unreadable_calls"] += len(parsed.calls) - len(calls) if len(calls) < len(parsed.calls) else 0
        if calls and not asked.parallel_calls:
            calls = calls[:1]
            answer["tool_calls"] = answer["tool_calls"][:1]
        if not calls:
            answer = {"role": "assistant", "content": self._plain(response)}
        whole = [*ids, *response.token_ids]
        self._conversations.remember(asked.messages, answer, asked.tools, whole)
        self.last = [*map(dict, asked.messages), answer], whole, self._conversations, asked.tools
        self._note(asked, response, text if calls else str(answer["content"]))
        return self._generated(asked, str(answer["content"]), response, ids, calls)

    def _note(self, asked: Asked, response: Response, text: str) -> None:
        self._answers.setdefault(asked.number, []).append((response, text))

    def _generated(
        self, asked: Asked, text: str, response: Response, prompt: Sequence[int], calls: Sequence[ToolCall] = ()
    ) -> Generated:
        tokens = tokens_of(response, self._chat.tokenizer) if asked.log_probs else ()
        finish: FinishReason = "tool_calls" if calls else response.finish_reason
        read = repr((*prompt, *response.token_ids)) if calls else ""
        call_ids = [self._call_id(read, place, call) for place, call in enumerate(calls)]
        return Generated(text, finish, len(prompt), len(response.token_ids), tokens, calls, call_ids)

    def _call_id(self, read: str, place: int, call: ToolCall) -> str:
        """By what was read and generated, as some templates show it to the model: calls may return in any order."""
        said = f"{self.model.request.seed}:{self.model.index}:{read}:{place}"
        return self._conversations.call_id(call, place, hashlib.sha256(said.encode()).hexdigest()[:CALL_ID_CHARACTERS])

    def _plain(self, response: Response) -> str:
        text: str = self._chat.tokenizer.decode(list(response.token_ids), skip_special_tokens=True)
        return text[: text.rfind(response.cut)] if response.cut and response.cut in text else text

    def _check_open(self) -> None:
        if self._closed:
            raise ApiError(410, "the trajectory of this address has ended", code="trajectory_ended")

    def messages(self) -> Sequence[Message]:
        """The newest conversation, after the messages of the row."""
        if self.last is None:
            return []
        messages, known = self.last[0], [dict(message) for message in self.row.messages]
        same = [(m["role"], m.get("content")) for m in known] == [
            (m["role"], m.get("content")) for m in messages[: len(known)]
        ]
        return messages[len(known) :] if same else messages

    def drifted(self) -> bool:
        """Whether the chat template renders the newest conversation with other tokens than those that are trained."""
        if self.last is None:
            return False
        messages, ids, conversations, tools = self.last
        return conversations.renderer(tools).rendered(messages)[: len(ids)] != ids


class Endpoint:
    """The server of one agent worker, in the worker's asyncio loop; started by the first trajectory."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._server: ApiServer | None = None
        self._sessions: dict[str, Session] = {}
        self._starting = asyncio.Lock()

    async def open(self, session: Session) -> str:
        """Serve a trajectory; returns the address of its API."""
        async with self._starting:
            if self._server is None:
                server = ApiServer(self, by_path=True)
                await server.start(bound(self._host, 0))
                self._server = server
        self._sessions[session.path_id] = session
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.port}/t/{session.path_id}/v1"

    def shut(self, session: Session) -> None:
        """Refuse further requests of a trajectory."""
        session.close()
        self._sessions.pop(session.path_id, None)

    def find(self, path_id: str, token: str) -> Session:
        """The trajectory of a request.

        Raises:
            ApiError: there is none with this address and token.
        """
        session = self._sessions.get(path_id)
        if session is None or not hmac.compare_digest(session.token.encode(), token.encode()):
            raise ApiError(
                401,
                "the token is not the one of this address, or its trajectory has ended; "
                "use the base_url and api_key that the program was started with",
                code="invalid_api_key",
            )
        return session

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.close()
            self._server = None
