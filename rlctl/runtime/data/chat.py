"""Rows to text: the messages of a row, and a chat template over them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlctl.common.errors import RunError

if TYPE_CHECKING:
    from rlctl.runtime.data.images import ImageReader

Messages = list[dict[str, Any]]


def as_messages(value: Any, *, where: str) -> Messages:
    """Read chat messages from a column's value: a list of them, or the same as JSON text.

    Empty fields, which Arrow fills in where other rows have them, are left out.

    Args:
        value: the column's value.
        where: row, file and column, for messages of errors.

    Raises:
        RunError: it is something else.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise RunError(f"{where} is text that is not JSON; expected a list of chat messages") from error
    if not isinstance(value, Sequence) or not value or not all(map(_is_message, value)):
        raise RunError(f"{where} is {_short(value)}; expected a list of messages, each with a role and a content")
    return [{name: field for name, field in message.items() if field is not None} for message in value]


def _is_message(value: Any) -> bool:
    """Whether it says who says something, and anything beside: a content, or calls of tools."""
    said = [name for name, field in value.items() if field is not None] if isinstance(value, Mapping) else []
    return "role" in said and bool(value["role"]) and len(said) > 1


class Chat:
    """A tokenizer's chat template with the variables of one run, and what reads the images of its messages."""

    def __init__(
        self, tokenizer: Any, *, template_args: Mapping[str, Any] | None = None, images: ImageReader | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.images = images
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
                "the tokenizer has no chat template, and the prompts are chat messages or text put into one",
                hint="set model.chat_template, or data.train[].prompt_type to raw for text without a template",
            )
        try:
            return self.tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=generate, tokenize=False, **self._args
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise RunError(f"{where}: the chat template does not take the messages ({roles}): {error}") from error

    def encode(self, texts: list[str], *, special: bool = False) -> list[list[int]]:
        """Return the token ids of texts; ``special`` adds what the tokenizer puts around raw text."""
        return self.tokenizer(texts, add_special_tokens=special)["input_ids"] if texts else []


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
