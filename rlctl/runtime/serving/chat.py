"""Conversations of the OpenAI API to tokens, and generations to messages.

The API has no conversations, only messages; a client sends everything again with each request. Messages that start with those of
an earlier request and the answer to it continue its tokens, so generated tokens are never encoded again. All other messages are
rendered from scratch.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.agents.conversation import Renderer
from rlctl.runtime.agents.formats import Parsed, ToolCall, call_id, parse, stop_tokens
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.serving.protocol import ApiError, Asked
from rlctl.runtime.types import Response

Message = Mapping[str, Any]
_KNOWN_CONVERSATIONS = 512
"""Conversations of one trajectory that are remembered; older ones are forgotten first."""
_KNOWN_TOKENS = 1 << 24
"""Tokens of all that are remembered."""
_KNOWN_TOOLS = 64
"""Lists of tools whose renderers are kept."""
_SHORTEST_LONGEST = 64
"""Characters that a token is taken to have at least, since some tokenizers leave out spaces."""


def answer_of(text: str, parsed: Parsed | None) -> dict[str, Any]:
    """A generation as the message that the client gets; as plain text if one of its calls cannot be read."""
    calls = [call for call in parsed.calls if isinstance(call, ToolCall)] if parsed else []
    if parsed is None or not calls or len(calls) < len(parsed.calls):
        return {"role": "assistant", "content": text}
    written = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}} for call in calls
    ]
    return {"role": "assistant", "content": parsed.content, "tool_calls": written}


def tokens_of(response: Response, tokenizer: Any) -> list[tuple[str, float]]:
    """The tokens of a generation as texts, with their log-probs."""
    pairs = zip(response.token_ids, response.log_probs, strict=True)
    return [(tokenizer.decode([token]), value) for token, value in pairs]


class Conversations:
    """The conversations of one trajectory, or of one client. Safe for threads."""

    def __init__(
        self,
        chat: Chat,
        tool_format: str | None,
        *,
        agent: str,
        max_tokens: int | None,
        most: int = _KNOWN_CONVERSATIONS,
    ) -> None:
        """
        Args:
            chat: the run's.
            tool_format: None refuses requests with tools.
            agent: what errors call the model's user.
            max_tokens: that the model reads; None if that is not known.
            most: conversations that are remembered.
        """
        self._chat, self._format, self._agent, self._most = chat, tool_format, agent, most
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self._renderers: dict[str, Renderer] = {}
        self._known: dict[bytes, array[int]] = {}
        """Tokens of conversations that end with a generation, by their tools and messages."""
        self._known_tokens = 0

    def renderer(self, tools: Sequence[Mapping[str, Any]]) -> Renderer:
        """What renders conversations that show these tools.

        Raises:
            ApiError: the model's chat template is not known to write calls.
        """
        if tools and self._format is None:
            raise ApiError(
                400,
                "the request has tools, and the chat template of the model writes no calls in a format that rlctl parses",
                param="tools",
            )
        key = _text(tools)
        with self._lock:
            if key not in self._renderers:
                self._renderers[key] = Renderer(self._chat, list(tools), agent=self._agent)
                while len(self._renderers) > _KNOWN_TOOLS:
                    del self._renderers[next(iter(self._renderers))]
            return self._renderers[key]

    async def read(self, asked: Asked) -> list[int]:
        """What the model reads of a request, in a thread: a long prompt takes seconds.

        Raises:
            ApiError: the chat template rejects the messages, or the prompt is certainly too long.
        """
        return await asyncio.to_thread(self._read, asked)

    def _read(self, asked: Asked) -> list[int]:
        if asked.messages:
            texts = (str(message["content"]) for message in asked.messages)
            self._check_length(sum(map(len, texts)), "messages")
            return self.tokens(asked.messages, asked.tools)
        if isinstance(asked.prompt, str):
            self._check_length(len(asked.prompt), "prompt")
            return self._chat.encode([asked.prompt], special=True)[0]
        return list(asked.prompt)

    def _check_length(self, characters: int, param: str) -> None:
        if self._max_tokens is None:
            return
        most = self._max_tokens * max(self._chat.longest_token, _SHORTEST_LONGEST)
        if characters > most:
            raise ApiError(
                400,
                said(
                    "the prompt has {characters} characters, but the model reads {tokens} tokens, at most {most} characters",
                    characters=characters,
                    tokens=self._max_tokens,
                    most=most,
                ),
                code="context_length_exceeded",
                param=param,
            )

    def tokens(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """What the model reads.

        Raises:
            ApiError: the chat template rejects the messages.
        """
        renderer, keys = self.renderer(tools), _keys(messages, tools)
        try:
            for known in range(len(messages) - 1, 0, -1):
                before = self._known.get(keys[known])
                if before is not None:
                    return [*before, *renderer.between([dict(each) for each in messages[known:]], before)]
            return renderer.opening([dict(each) for each in messages])
        except RunError as error:
            raise ApiError(400, error.message, param="messages") from error

    def ends(self, tools: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """Tokens with which the model ends a turn of calls."""
        return stop_tokens(self._chat, self._format) if tools and self._format else ()

    def call_id(self, call: ToolCall, place: int, chosen: str) -> str:
        """The id of a call, as the client gets it."""
        return call_id(self._format, call.name, place, chosen) if self._format else chosen

    def parsed(self, text: str, tools: Sequence[Mapping[str, Any]]) -> Parsed | None:
        """The calls of a generation; None if the request has no tools."""
        return parse(text, self._format, tools) if tools and self._format else None

    def remember(
        self, messages: Sequence[Message], answer: Message, tools: Sequence[Mapping[str, Any]], ids: Sequence[int]
    ) -> None:
        """Note the tokens of a conversation with the answer to it."""
        key = _keys([*messages, answer], tools)[-1]
        with self._lock:
            self._forget(key)
            self._known[key] = array("q", ids)
            self._known_tokens += len(ids)
            while len(self._known) > self._most or (self._known_tokens > _KNOWN_TOKENS and len(self._known) > 1):
                self._forget(next(iter(self._known)))

    def _forget(self, key: bytes) -> None:
        self._known_tokens -= len(self._known.pop(key, ()))


def _keys(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """A digest of no message, of the first one, of the first two, and so on, with their tools.

    Conversations are the same if only spaces around texts, or ids of calls, differ.
    """
    keys = [hashlib.sha256(_text(tools).encode()).digest()]
    for message in messages:
        keys.append(hashlib.sha256(keys[-1] + _text(_same(message)).encode()).digest())
    return keys


def _same(message: Message) -> list[Any]:
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
    return [message["role"], str(message.get("content") or "").strip(), calls]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
