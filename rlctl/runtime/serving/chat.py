"""Conversations of the OpenAI API to tokens, and generations to messages.

The API has no conversations, only messages; a client sends everything again with each request. Messages that start with those of
an earlier request and the answer to it continue its tokens, so generated tokens are never encoded again. All other messages are
rendered from scratch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.common.errors import RunError
from rlctl.runtime.agents.conversation import Renderer
from rlctl.runtime.agents.formats import Parsed, ToolCall, call_id, parse, stop_tokens
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.serving.protocol import ApiError

Message = Mapping[str, Any]
_KNOWN_CONVERSATIONS = 512
"""Conversations of one trajectory that are remembered; older ones are forgotten first."""


def answer_of(text: str, parsed: Parsed | None) -> dict[str, Any]:
    """A generation as the message that the client gets; as plain text if one of its calls cannot be read."""
    calls = [call for call in parsed.calls if isinstance(call, ToolCall)] if parsed else []
    if parsed is None or not calls or len(calls) < len(parsed.calls):
        return {"role": "assistant", "content": text}
    written = [
        {"type": "function", "function": {"name": call.name, "arguments": dict(call.arguments)}} for call in calls
    ]
    return {"role": "assistant", "content": parsed.content, "tool_calls": written}


class Conversations:
    """The conversations of one trajectory, or of one client."""

    def __init__(self, chat: Chat, tool_format: str | None, *, agent: str, most: int = _KNOWN_CONVERSATIONS) -> None:
        """``tool_format`` None refuses requests with tools."""
        self._chat, self._format, self._agent, self._most = chat, tool_format, agent, most
        self._renderers: dict[str, Renderer] = {}
        self._known: dict[tuple[str, str], list[int]] = {}
        """Tokens of conversations that end with a generation, by their tools and messages."""

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
        if key not in self._renderers:
            self._renderers[key] = Renderer(self._chat, list(tools), agent=self._agent)
        return self._renderers[key]

    def tokens(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """What the model reads.

        Raises:
            ApiError: the chat template rejects the messages.
        """
        renderer, shown = self.renderer(tools), _text(tools)
        try:
            for known in range(len(messages) - 1, 0, -1):
                before = self._known.get((shown, _key(messages[:known])))
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
        self._known[_text(tools), _key([*messages, answer])] = list(ids)
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]


def _key(messages: Sequence[Message]) -> str:
    """What two lists of messages share that are the same conversation: spaces around texts and ids of calls do not count."""
    return _text([_same(message) for message in messages])


def _same(message: Message) -> list[Any]:
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
    return [message["role"], str(message.get("content") or "").strip(), calls]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
