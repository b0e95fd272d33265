"""Messages to tokens, in a conversation whose generated tokens are never encoded again.

The text that a chat template puts between a generation and the next one is found by rendering the new messages after an
assistant message with a marker for content: it is everything after the marker. Answers of tools are rendered after a message with
calls, since many templates want one there: what follows the token that ended the generation goes between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.agents.formats import example_of
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.images import with_places
from rlctl.runtime.types import Prompt

Message = dict[str, Any]
MARKER = "MARK0MARK"
"""Content of the assistant message after which new messages are rendered."""


class Renderer:
    """Renders conversations of one agent."""

    def __init__(self, chat: Chat, tools: Sequence[Any] | None, *, agent: str) -> None:
        self._chat, self._tools, self._agent = chat, list(tools) if tools else None, agent
        self._where = f"rollout.agents: {agent}"

    def showing(self, tools: Sequence[Any]) -> Renderer:
        """One for rows that show these tools."""
        return Renderer(self._chat, tools, agent=self._agent)

    @property
    def tokenizer(self) -> Any:
        """The run's."""
        return self._chat.tokenizer

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation before its first generation."""
        text = self._chat.render(list(messages), generate=True, tools=self._tools, where=self._where)
        return self._chat.encode([text])[0]

    def between(self, messages: Sequence[Message], generated: Sequence[int]) -> list[int]:
        """The tokens to insert after a generation so that the model reads new messages and generates again.

        The end of the generated turn is inserted only as far as the model did not generate it.

        Raises:
            RunError: the template does not show where the new messages start.
        """
        if messages and messages[0]["role"] == "tool" and generated:
            found = self._after_calls(messages, generated[-1])
            if found is not None:
                return found
        marker, said_by_others = MARKER, repr((messages, self._tools))
        while marker in said_by_others:
            marker += "0"
        start = [{"role": "user", "content": "question"}, {"role": "assistant", "content": marker}]
        text = self._chat.render([*start, *messages], generate=True, tools=self._tools, where=self._where)
        if text.count(marker) != 1:
            raise RunError(
                said(
                    "{where}: the chat template renders the content of an assistant message {count} times; expected "
                    "once, so that rlctl can continue after it",
                    where=self._where,
                    count=text.count(marker),
                ),
                hint="set model.chat_template to a template that renders each message once",
            )
        ids = self._chat.encode([text.partition(marker)[2]])[0]
        return ids[1:] if ids and generated and generated[-1] == ids[0] else ids

    def _after_calls(self, messages: Sequence[Message], last: int) -> list[int] | None:
        """As ``between``, after calls that ended with a token; None if the template does not end calls with it."""
        answers = [message for message in messages if message["role"] == "tool"]
        calls = [
            {
                "id": str(answer.get("tool_call_id") or f"call{place:05d}"),
                "type": "function",
                "function": {"name": str(answer.get("name") or "tool"), "arguments": {}},
            }
            for place, answer in enumerate(answers)
        ]
        known = [{"tool_call_id": call["id"], **answer} for call, answer in zip(calls, answers, strict=True)]
        others = [message for message in messages if message["role"] != "tool"]
        start: list[Message] = [
            {"role": "user", "content": "question"},
            {"role": "assistant", "content": "", "tool_calls": calls},
        ]
        end: str = self._chat.tokenizer.decode([last], skip_special_tokens=False)
        try:
            before = self._chat.render(start, generate=False, tools=self._tools, where=self._where)
            text = self._chat.render([*start, *known, *others], generate=True, tools=self._tools, where=self._where)
        except RunError:
            return None
        place = before.rfind(end) if end else -1
        if place < 0 or not text.startswith(before[: place + len(end)]):
            return None
        return self._chat.encode([text[place + len(end) :]])[0]

    def call(self, schema: Any) -> str:
        """A call of a tool with values of its parameters' types, as the template writes it."""
        function = schema["function"]
        parameters = function.get("parameters", {}).get("properties", {})
        arguments = {name: example_of(each) for name, each in parameters.items()}
        called = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
        opening: list[Message] = [{"role": "user", "content": "question"}]
        messages: list[Message] = [*opening, {"role": "assistant", "content": "", "tool_calls": [called]}]
        before = self._chat.render(opening, generate=True, tools=self._tools, where=self._where)
        text = self._chat.render(messages, generate=False, tools=self._tools, where=self._where)
        written = text[len(before) :] if text.startswith(before) else text[text.rfind("question") + len("question") :]
        return written.strip().removesuffix(str(self.tokenizer.eos_token))

    def rendered(self, messages: Sequence[Message]) -> list[int]:
        """A whole conversation, as a template renders it from its messages."""
        text = self._chat.render(list(messages), generate=False, tools=self._tools, where=self._where)
        return self._chat.encode([text])[0]

    def drifted(self, row: Prompt, messages: Sequence[Message], ids: Sequence[int]) -> bool:
        """Whether a row's whole conversation is rendered to other tokens than it has. An image counts as one token."""
        shown, reader, own = list(row.messages), self._chat.images, list(ids)
        if reader is not None and row.inputs:
            shown = with_places(shown, len(row.inputs["image_grid_thw"]), where=self._where)
            pairs = zip(own, [None, *own], strict=False)
            own = [token for token, before in pairs if token != reader.image_token or before != token]
        return self.rendered([*shown, *messages])[: len(own)] != own

    def text_of(self, generated: Sequence[int], stop_token_ids: Sequence[int]) -> str:
        """A generation as text: special tokens stay, since some models write calls with them, the ending one goes."""
        ids = list(generated)
        if ids and ids[-1] in stop_token_ids:
            ids.pop()
        text: str = self._chat.tokenizer.decode(ids, skip_special_tokens=False)
        return text
