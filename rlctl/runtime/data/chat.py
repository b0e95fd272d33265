"""Messages to text and tokens: a chat template over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.runtime.data.images import ImageReader
from rlctl.runtime.data.messages import Messages


@dataclass(frozen=True, slots=True)
class AgentPrompt:
    """What the prompts of an agent's rows show besides their messages."""

    tools: Sequence[Any] = ()
    """Schemas of the tools that the model may call."""
    system_prompt: str | None = None
    """Of rows that have none."""
    selection_key: str | None = None
    """Column with the names of the tools of a row; dots lead into structures."""
    args_key: str | None = None
    """Column with the arguments of a row's tools."""

    def selected(self, names: Sequence[str] | None, *, where: str) -> list[Any]:
        """The schemas of the tools with these names; None stands for all.

        Raises:
            RunError: there is no tool of a name.
        """
        if names is None:
            return list(self.tools)
        known = {tool["function"]["name"]: tool for tool in self.tools}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise RunError(
                said(
                    "{where}: {selection_key} names the tool {unknown!r}; the agent has {names}",
                    where=where,
                    selection_key=self.selection_key,
                    unknown=unknown[0],
                    names=", ".join(known),
                ),
                hint=nearest(unknown[0], known) or "correct the row, or add the tool to the agent",
            )
        return [known[name] for name in names]


class Chat:
    """A tokenizer's chat template with the variables of one run, and what reads the images of its messages."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        template_args: Mapping[str, Any] | None = None,
        images: ImageReader | None = None,
        default: AgentPrompt = AgentPrompt(),
        agents: Mapping[str, AgentPrompt] | None = None,
    ) -> None:
        """``default`` is what rows show that name no agent; ``agents`` are what the others show, by name."""
        self.tokenizer = tokenizer
        self.images = images
        self.default = default
        self.agents = dict(agents or {})
        self._args = dict(template_args or {})

    def render(
        self, messages: Messages, *, generate: bool, tools: list[Any] | None = None, where: str = "a conversation"
    ) -> str:
        """Return the conversation as text.

        Args:
            messages: the conversation.
            generate: open an assistant turn at the end.
            tools: schemas of tools the model may call.
            where: row and file, for messages of errors.

        Raises:
            RunError: there is no template, or it refuses the messages.
        """
        from jinja2 import TemplateError

        if not self.tokenizer.chat_template:
            raise RunError(
                "the tokenizer has no chat template, but the prompts are chat messages or text to be wrapped into one",
                hint="set model.chat_template, or data.train[].prompt_type to raw for text without a template",
            )
        try:
            return self.tokenizer.apply_chat_template(
                messages,
                tools=(list(self.default.tools) if tools is None else tools) or None,
                add_generation_prompt=generate,
                tokenize=False,
                **self._args,
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise RunError(
                said(
                    "{where}: the chat template rejects the messages ({roles}): {error}",
                    where=where,
                    roles=roles,
                    error=error,
                )
            ) from error

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token, at most."""
        return max(map(len, self.tokenizer.get_vocab()), default=0)

    def encode(self, texts: list[str], *, special: bool = False) -> list[list[int]]:
        """Return the token ids of texts; ``special`` adds what the tokenizer puts around raw text."""
        return self.tokenizer(texts, add_special_tokens=special)["input_ids"] if texts else []
