"""How a model writes tool calls, by the name of the format.

A parser takes the text of one generation and returns what stands before the first call, the calls, and what looks like a call
and cannot be read. Sources: the chat templates of NousResearch's Hermes-2-Pro and Qwen2.5 (``hermes``) and of
Qwen3-Coder (``qwen3_coder``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import RunError
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.messages import Messages

Schema = Mapping[str, Any]
"""Of a tool: ``{"type": "function", "function": {"name", "description", "parameters"}}``."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model wrote."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What looks like a call and is none."""

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A generation."""

    content: str
    """Before the first call; everything if there is none."""
    calls: Sequence[ToolCall | Unreadable]
    """In the order in which they are written."""


_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_BLOCK = re.compile(rf"{_OPEN}(.*?)(?:{_CLOSE}|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)(?:</function>)?\s*\Z", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)


def _hermes(block: str, schemas: Mapping[str, Schema]) -> ToolCall | Unreadable:
    try:
        found = json.loads(block)
    except ValueError as error:
        return Unreadable(block, f"not JSON: {error}")
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return Unreadable(block, "expected an object with name and arguments")
    arguments = found.get("arguments", {})
    if not isinstance(arguments, dict):
        return Unreadable(block, "arguments is not an object")
    return ToolCall(found["name"], arguments)


def _qwen3_coder(block: str, schemas: Mapping[str, Schema]) -> ToolCall | Unreadable:
    found = _FUNCTION.match(block)
    if found is None:
        return Unreadable(block, "expected <function=name> with <parameter=name> inside")
    name, body = found.groups()
    types = _types_of(schemas.get(name))
    return ToolCall(name, {key: _valued(value, types.get(key)) for key, value in _PARAMETER.findall(body)})


def _types_of(schema: Schema | None) -> dict[str, Any]:
    properties = schema["function"].get("parameters", {}).get("properties", {}) if schema else {}
    return {name: each.get("type") for name, each in properties.items()}


def _valued(text: str, kind: Any) -> Any:
    """A parameter's text as a value of its type; text if it isn't one."""
    if kind in (None, "string"):
        return text
    try:
        return json.loads(text.lower() if kind == "boolean" else text)
    except ValueError:
        return text


FORMATS: Mapping[str, Callable[[str, Mapping[str, Schema]], ToolCall | Unreadable]] = {
    "hermes": _hermes,
    "qwen3_coder": _qwen3_coder,
}
"""What reads one block between <tool_call> and </tool_call>."""


def parse(text: str, name: str, schemas: Sequence[Schema]) -> Parsed:
    """Read a generation in a format; ``schemas`` are those of all tools."""
    read, by_name = FORMATS[name], {schema["function"]["name"]: schema for schema in schemas}
    blocks = _BLOCK.findall(text)
    content = text[: text.index(_OPEN)] if blocks else text
    return Parsed(content.strip(), [read(block.strip(), by_name) for block in blocks])


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


AUTO = "auto"
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
        f"the agent {agent!r} has tool_format auto, and the chat template writes calls in no format that rlctl parses: "
        f"{', '.join(FORMATS)}",
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
        arguments = {key: _example(each) for key, each in parameters.items()}
        wanted = ToolCall(function["name"], arguments)
        call = {"type": "function", "function": {"name": wanted.name, "arguments": arguments}}
        opening: Messages = [{"role": "user", "content": "question"}]
        messages: Messages = [*opening, {"role": "assistant", "content": "", "tool_calls": [call]}]
        where = f"rollout.agents: {agent}"
        before = chat.render(opening, generate=True, tools=list(schemas), where=where)
        text = chat.render(messages, generate=False, tools=list(schemas), where=where)
        written = text[len(before) :] if text.startswith(before) else text[text.rfind("question") + len("question") :]
        found = parse(written, name, schemas).calls
        if list(found) != [wanted]:
            raise RunError(
                f"the agent {agent!r} parses tool calls as {name}, but the chat template writes a call of {wanted.name} as "
                f"{written.strip()!r}, which does not parse back",
                hint=f"set tool_format of the agent to the model's format ({', '.join(FORMATS)}), or model.chat_template to a "
                "template that renders tool_calls",
            )


def _example(parameter: Mapping[str, Any]) -> Any:
    choices = parameter.get("enum")
    return choices[0] if choices else EXAMPLES.get(str(parameter.get("type")), "text")
