"""Messages to text and tokens: a chat template over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.common.errors import RunError
from rlctl.runtime.data.images import ImageReader
from rlctl.runtime.data.messages import Messages


class Chat:
    """A tokenizer's chat template with the variables of one run, and what reads the images of its messages."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        template_args: Mapping[str, Any] | None = None,
        images: ImageReader | None = None,
        tools: Sequence[Any] = (),
        tools_of: Mapping[str, list[Any]] | None = None,
    ) -> None:
        """``tools`` are schemas that every conversation shows which has none of its own; ``tools_of`` are those of agents."""
        self.tokenizer = tokenizer
        self.images = images
        self.tools = list(tools)
        self.tools_of = dict(tools_of or {})
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
                tools=(self.tools if tools is None else tools) or None,
                add_generation_prompt=generate,
                tokenize=False,
                **self._args,
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise RunError(f"{where}: the chat template rejects the messages ({roles}): {error}") from error

    def encode(self, texts: list[str], *, special: bool = False) -> list[list[int]]:
        """Return the token ids of texts; ``special`` adds what the tokenizer puts around raw text."""
        return self.tokenizer(texts, add_special_tokens=special)["input_ids"] if texts else []
