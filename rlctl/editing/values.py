"""A value as text in a field, and what a person means by the text they typed."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

from rlctl.common.errors import ConfigError, DocumentError
from rlctl.common.messages.reasons import said
from rlctl.config import to_plain
from rlctl.config.fields import Choice
from rlctl.config.inspect import FieldInfo
from rlctl.documents import read_yaml
from rlctl.documents.yaml_write import inline_text

NULL = "null"


def text_of(value: Any) -> str:
    """A value as it stands in a field: text as it is, everything else as YAML on one line."""
    plain = value.type_name if isinstance(value, Choice) else to_plain(value)
    return plain if isinstance(plain, str) else inline_text(plain, (), in_flow=False)


def value_of(text: str, info: FieldInfo) -> Any:
    """The plain value that a typed text means for a field; text where the field holds text, else YAML.

    Raises:
        ConfigError: it is no YAML, as an open bracket.
    """
    typed = text.strip()
    kinds = {get_origin(part) or part for part in alternatives(info.type)}
    if typed == NULL and type(None) in kinds:
        return None
    if str in kinds and not kinds & {int, float, bool}:
        return text
    try:
        return read_yaml(f"value: {typed}", info.name).values["value"]
    except DocumentError as error:
        raise ConfigError(
            said("{name}: {typed!r} cannot be read: {reason}", name=info.name, typed=typed, reason=error.message),
            hint=error.hint,
        ) from error


def alternatives(hint: Any) -> list[Any]:
    """The types that a hint allows, one by one."""
    if get_origin(hint) in (Union, types.UnionType):
        return [part for arg in get_args(hint) for part in alternatives(arg)]
    return [hint]
