"""The chat messages of a row, as data has them: a list, or JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said

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
            raise RunError(
                said("{where} is text that is not JSON; expected a list of chat messages", where=where)
            ) from error
    if not isinstance(value, Sequence) or not value or not all(map(_is_message, value)):
        raise RunError(
            said(
                "{where} is {short}; expected a list of messages, each with a role and a content",
                where=where,
                short=_short(value),
            )
        )
    return [{name: field for name, field in message.items() if field is not None} for message in value]


def _is_message(value: Any) -> bool:
    """Whether it says who says something, and anything beside: a content, or calls of tools."""
    said = [name for name, field in value.items() if field is not None] if isinstance(value, Mapping) else []
    return "role" in said and bool(value["role"]) and len(said) > 1


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
