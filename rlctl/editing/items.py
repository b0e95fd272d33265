"""The items of a list and the keys of a mapping: added, taken away, put elsewhere; and any value as text of several lines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import ConfigError, DocumentError
from rlctl.common.messages.reasons import said
from rlctl.common.secrets import redacted
from rlctl.config import Config
from rlctl.config.fields import Choice
from rlctl.config.inspect import FieldInfo, fields_of, sections_in
from rlctl.config.sections.run import Run
from rlctl.documents import KeyPath, dotted, read_yaml, write_yaml
from rlctl.documents.yaml_write import inline_text
from rlctl.editing.fields import kind_of
from rlctl.editing.session import Session

STAGES: KeyPath = ("stages",)
"""The list whose items say any keys of the config; a new one needs a name."""
ITEM = "item"
"""What an item of a list is called where it stands alone in a text."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list, or a key of a mapping with its value."""

    name: str | int
    text: str
    """The value on one line, without secrets."""


def items(session: Session, path: KeyPath) -> list[Item]:
    """The items of a list or mapping.

    Raises:
        ConfigError: the key holds neither.
    """
    held = _held(session, path)
    pairs = held.items() if isinstance(held, dict) else enumerate(held)
    return [
        Item(name, redacted(value if isinstance(value, str) else inline_text(value, (), in_flow=False)))
        for name, value in pairs
    ]


def _held(session: Session, path: KeyPath) -> Any:
    """The list or mapping as plain values, with links as they are written; an empty one where there is none."""
    value, info = session.written(path), info_at(session.config, path)
    if value is None and info is not None and kind_of(info) in ("list", "mapping"):
        return {} if kind_of(info) == "mapping" else []
    if not isinstance(value, (dict, list)):
        raise ConfigError(said("{key} is neither a list nor a mapping", key=dotted(path)))
    return value


def add(session: Session, path: KeyPath, value: Any, name: str = "") -> KeyPath:
    """Add an item at the end, or a key with its value; where it is then.

    Raises:
        ConfigError: it does not fit, or there is a key of that name.
    """
    held = _held(session, path)
    if isinstance(held, list):
        session.set(path, [*held, value])
        return (*path, len(held))
    if not name:
        raise ConfigError(said("a key of {key} needs a name", key=dotted(path)), hint="give it a name")
    if name in held:
        raise ConfigError(
            said("{key} already has a key {name!r}", key=dotted(path), name=name), hint="choose another name"
        )
    session.set(path, {**held, name: value})
    return (*path, name)


def remove(session: Session, path: KeyPath, name: str | int) -> None:
    """Take an item away.

    Raises:
        ConfigError: the key cannot be without it.
    """
    held = _held(session, path)
    if name not in (held if isinstance(held, dict) else range(len(held))):
        raise ConfigError(said("{key} has no item {name!r}", key=dotted(path), name=name))
    del held[name]
    session.set(path, held)


def move(session: Session, path: KeyPath, index: int, by: int) -> int:
    """Put an item of a list earlier or later; its place then.

    Raises:
        ConfigError: it is a mapping.
    """
    held = _held(session, path)
    if not isinstance(held, list):
        raise ConfigError(said("{key} is a mapping: its keys have no order", key=dotted(path)))
    target = min(max(index + by, 0), len(held) - 1)
    if target != index:
        held.insert(target, held.pop(index))
        session.set(path, held)
    return target


# A new item


def options(session: Session, path: KeyPath) -> tuple[str, ...]:
    """The kinds that a new item can have, as for rewards; empty if there is only one."""
    held = _sections(session, path)
    return held[0].names() if held and issubclass(held[0], Choice) else ()


def is_mapping(session: Session, path: KeyPath) -> bool:
    """Whether what is there has keys, and no order."""
    info = info_at(session.config, path)
    return info is not None and kind_of(info) == "mapping"


def required(session: Session, path: KeyPath, option: str = "") -> list[FieldInfo] | None:
    """The fields that a new item must be given, or is nothing without; None where it is no section but a value."""
    held = _sections(session, path)
    if path == STAGES:
        return [fields_of(Run)["name"]]
    if not held:
        return None
    found = held[0].option(option) if issubclass(held[0], Choice) else None
    made: type = found[1] if found is not None else held[0]
    return [info for info in fields_of(made).values() if info.required or info.default == ""]


def item_of(session: Session, path: KeyPath, given: dict[str, Any], option: str = "") -> dict[str, Any]:
    """A new section from the fields that were given."""
    held = _sections(session, path)
    tag = {held[0].tag: option} if held and issubclass(held[0], Choice) else {}
    return {**tag, **given}


def _sections(session: Session, path: KeyPath) -> list[type]:
    info = info_at(session.config, path)
    return [cls for cls, suffix in sections_in(info.type) if suffix] if info is not None else []


def info_at(config: Config, path: KeyPath) -> FieldInfo | None:
    """The schema's field at a path; None for an item, and for a path without a field."""
    value: Any = config
    info: FieldInfo | None = None
    for part in path:
        declared: type = type(value)
        if dataclasses.is_dataclass(value):
            info = fields_of(declared).get(str(part))
            value = getattr(value, info.attribute) if info is not None else None
        else:
            info = None
            try:
                value = value[part]
            except (LookupError, TypeError):
                return None
    return info


# As text of several lines


def yaml_of(session: Session, path: KeyPath) -> str:
    """A value as it would stand in a file, with links as they are written."""
    return write_yaml({name_in_text(path): session.written(path)})


def text_as_yaml(name: str, text: str) -> str:
    """A text of several lines as the value of a key."""
    return write_yaml({name: text})


def name_in_text(path: KeyPath) -> str:
    """The name under which a value stands in a text of its own."""
    return path[-1] if isinstance(path[-1], str) else ITEM


def from_yaml(text: str, path: KeyPath) -> Any:
    """The plain value that such a text says; the name of the key may be missing.

    Raises:
        ConfigError: it cannot be read, or says something else too.
    """
    name = name_in_text(path)
    try:
        values = read_yaml(text, dotted(path), allow_empty=True).values
    except DocumentError as error:
        raise ConfigError(error.account, hint=error.hint) from error
    if set(values) != {name}:
        told = ", ".join(map(str, values)) or "nothing"
        raise ConfigError(
            said("{key}: expected one key, {name!r}, and got {told}", key=dotted(path), name=name, told=told)
        )
    return values[name]
