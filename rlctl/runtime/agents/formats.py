"""The format in which a model calls tools: chosen, proved against the run's chat template, and parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.runtime.agents.families import FORMATS, Parsed, Schema, ToolCall, Unreadable
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.messages import Messages


def parse(text: str, name: str, schemas: Sequence[Schema]) -> Parsed:
    """Read a generation in a format; ``schemas`` are those of all tools."""
    return FORMATS[name].parse(text, {schema["function"]["name"]: schema for schema in schemas})


def stop_tokens(chat: Chat, name: str) -> tuple[int, ...]:
    """The tokens with which a model ends a turn of calls in a format, besides its end token."""
    known = chat.tokenizer.get_vocab()
    return tuple(known[token] for token in FORMATS[name].stops if token in known)


def call_id(name: str, tool: str, place: int, chosen: str) -> str:
    """The id of a call: chat templates of Kimi write it where others write the tool's name."""
    return f"functions.{tool}:{place}" if name == "kimi" else chosen


EXAMPLES: Mapping[str, Any] = {
    "string": "text",
    "integer": 3,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}
"""A value of each type of JSON schema."""


__all__ = [
    "AUTO",
    "FORMATS",
    "LOOKUP",
    "Parsed",
    "Schema",
    "ToolCall",
    "Unreadable",
    "call_id",
    "format_of",
    "parse",
    "prove_format",
    "stop_tokens",
]
AUTO = "auto"
PROVED_ID = "a1b2c3d4e"
"""Of the call that is rendered; some chat templates demand nine letters and digits."""
SAID = "SAID0SAID"
LOOKUP: Schema = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look up a word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word."}},
            "required": ["word"],
        },
    },
}
"""A tool to prove a format with before the tools are known."""


def format_of(chat: Chat, name: str, schemas: Sequence[Schema], *, agent: str, needed: bool = True) -> str | None:
    """The format of calls, proved; ``auto`` is the one that the chat template writes.

    Args:
        chat: the run's chat template.
        name: of the format, or ``auto``.
        schemas: of the tools.
        agent: whose they are, for messages.
        needed: False returns None if the template writes calls in no format.

    Raises:
        RunError: the template does not write calls in the format, or in none for ``auto``.
    """
    if name not in (AUTO, *FORMATS):
        raise RunError(
            said("there is no tool format {name!r}; there are {names}", name=name, names=", ".join(FORMATS)),
            hint=nearest(name, FORMATS),
        )
    if name != AUTO:
        prove_format(chat, name, schemas, agent=agent)
        return name
    for known in FORMATS:
        try:
            prove_format(chat, known, schemas, agent=agent)
        except RunError:
            continue
        return known
    if not needed:
        return None
    raise RunError(
        said(
            "the agent {agent!r} has tool_format auto, and the chat template writes calls in no format that "
            "rlctl parses: {names}",
            agent=agent,
            names=", ".join(FORMATS),
        ),
        hint="set model.chat_template to a template that renders tools and tool_calls in one of these formats",
    )


def prove_format(chat: Chat, name: str, schemas: Sequence[Schema], *, agent: str) -> None:
    """Render a call of every tool with the run's chat template and parse it back.

    Raises:
        RunError: it does not come back as it was: the model would call tools in another format than the one that is parsed.
    """
    for schema in schemas:
        function = schema["function"]
        parameters = function.get("parameters", {}).get("properties", {})
        arguments = {key: example_of(each) for key, each in parameters.items()}
        wanted = ToolCall(function["name"], arguments)
        known = call_id(name, wanted.name, 0, PROVED_ID)
        call = {"id": known, "type": "function", "function": {"name": wanted.name, "arguments": arguments}}
        opening: Messages = [{"role": "user", "content": "question"}]
        messages: Messages = [*opening, {"role": "assistant", "content": "", "tool_calls": [call]}]
        where = f"rollout.agents: {agent}"
        before = chat.render(opening, generate=True, tools=list(schemas), where=where)
        text = chat.render(messages, generate=False, tools=list(schemas), where=where)
        written = text[len(before) :] if text.startswith(before) else text[text.rfind("question") + len("question") :]
        plain = chat.render(
            [*opening, {"role": "assistant", "content": SAID}], generate=False, tools=list(schemas), where=where
        )
        written = written.removesuffix(
            plain.partition(SAID)[2] or "\0"
        )  # the end of the turn, which is no part of the call
        found = parse(written, name, schemas).calls
        if list(found) != [wanted]:
            raise RunError(
                said(
                    "the agent {agent!r} parses tool calls as {name}, but the chat template writes a call of "
                    "{wanted_name} as {written!r}, which does not parse back",
                    agent=agent,
                    name=name,
                    wanted_name=wanted.name,
                    written=written.strip(),
                ),
                hint=said(
                    "set tool_format of the agent to the model's format ({names}), or model.chat_template to a template "
                    "that renders tool_calls",
                    names=", ".join(FORMATS),
                ),
            )


def example_of(parameter: Mapping[str, Any]) -> Any:
    """A value of a parameter's type."""
    choices = parameter.get("enum")
    return choices[0] if choices else EXAMPLES.get(str(parameter.get("type")), "text")
