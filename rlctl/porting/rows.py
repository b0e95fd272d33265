"""One row of any layout as what all frameworks mean by it: messages, an answer, a data source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config.sections.data import DataSource
from rlctl.planning.row_sample import value_at

PROMPTS = ("prompt", "messages", "question", "problem", "query", "instruction", "input")
ANSWERS = ("reward_model.ground_truth", "ground_truth", "answer", "solution", "label")
SOURCES = ("data_source", "tag", "source")
"""Columns that hold these in public data, the most specific first."""
ROLES = ("system", "user", "assistant", "tool")
CARRIED = "source_row"
"""The column in which an earlier conversion kept the row."""


@record
class Names:
    """The columns of a layout; dots lead into a column."""

    prompt: str
    answer: str | None = None
    source: str | None = None
    tag: str | None = None
    system_prompt: str | None = None
    """Text of a system message that is put first."""
    system_key: str | None = None
    images: str | None = None
    answers: tuple[str, ...] = field(default_factory=tuple)
    """Columns that are tried if ``answer`` is None."""
    extra: str | None = None
    """Column with further values for the reward."""


@record
class Row:
    """A row as all frameworks mean it."""

    messages: tuple[Mapping[str, str], ...]
    answer: Any = None
    """As the row holds it; None if it has none."""
    source: str = ""
    tag: str = ""
    images: Any = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The row itself."""


def names_of(source: DataSource) -> Names:
    """The columns that a config names."""
    answers = () if source.answer_key else ANSWERS[:3]
    return Names(
        source.prompt_key,
        source.answer_key,
        source.source_key,
        source.tag_key,
        source.system_prompt,
        source.system_prompt_key,
        source.image_key,
        answers,
        source.extra_key,
    )


def guessed(columns: Sequence[str], *, prompt: str | None, answer: str | None, source: str | None) -> Names | None:
    """The columns of a file without a config: those that are given, else the usual names; None if no prompt is found."""
    found = prompt or next((name for name in PROMPTS if name in columns), None)
    if found is None:
        return None
    said_source = source or next((name for name in SOURCES if name in columns and name != found), None)
    tag = "tag" if "tag" in columns else None
    images = "images" if "images" in columns else None
    return Names(found, answer, said_source, tag, images=images, answers=() if answer else ANSWERS)


def row_of(raw: Mapping[str, Any], names: Names) -> Row | str:
    """What a row means, or the reason why it cannot be moved."""
    prompt = value_at(raw, names.prompt)
    messages = messages_of(prompt)
    if isinstance(messages, str):
        return said("the column {column} {problem}", column=names.prompt, problem=messages)
    system = value_at(raw, names.system_key) if names.system_key else names.system_prompt
    if system:
        if messages[0]["role"] == "system":
            return "the row has a system message, and the config puts another one first"
        messages = ({"role": "system", "content": str(system)}, *messages)
    answer = value_at(raw, names.answer) if names.answer else _first(raw, names.answers)
    source = value_at(raw, names.source) if names.source else None
    tag = value_at(raw, names.tag) if names.tag else None
    images = raw.get(names.images) if names.images else None
    return Row(messages, answer, text_of(source), text_of(tag), images, raw)


def _first(raw: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((value for key in keys if (value := value_at(raw, key)) is not None), None)


def messages_of(prompt: Any) -> tuple[Mapping[str, str], ...] | str:
    """Chat messages of a prompt: text, messages, or messages as JSON text; else what is wrong with it."""
    if prompt is None:
        return "is empty"
    if isinstance(prompt, str):
        found = _as_json(prompt)
        if found is None:
            return ({"role": "user", "content": prompt},) if prompt.strip() else "is empty"
        prompt = found
    if not isinstance(prompt, Sequence) or not prompt:
        return "is neither text nor a list of messages"
    made = []
    for message in prompt:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            return "is not a list of messages with a role"
        if not isinstance(message.get("content"), str):
            return "has a message whose content is not text"
        more = [key for key, value in message.items() if key not in ("role", "content") and value is not None]
        if more:
            return said("has a message with {keys}, which only its chat template reads", keys=", ".join(more))
        made.append({"role": str(message["role"]), "content": str(message["content"])})
    if made[-1]["role"] == "assistant":
        return "ends with a message of the assistant"
    return tuple(made)


def _as_json(text: str) -> list[Any] | None:
    """The messages that a text holds as JSON; None for any other text."""
    if not text.lstrip().startswith("[{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_chat = isinstance(found, list) and all(isinstance(item, dict) and "role" in item for item in found)
    return found if is_chat else None


def text_of(value: Any) -> str:
    """A value as a text column holds it: text as it is, other values as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
