"""A Config as plain values again, whole or only what differs from the defaults."""

from __future__ import annotations

import dataclasses
from typing import Any

from rlctl.config.fields import Choice, Interval
from rlctl.config.inspect import fields_of
from rlctl.config.root import Config
from rlctl.documents.paths import PLAIN


def to_plain(value: Any, *, sparse: bool = False) -> Any:
    """Plain mappings, lists and scalars of a config, a section or a value.

    Args:
        value: what to dump.
        sparse: leave out fields that hold their default.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, Interval):
        short = value.to_short()
        return short if short is not None else {k: v for k, v in dataclasses.asdict(value).items() if v is not None}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _section(value, sparse, None)
    if isinstance(value, (tuple, list)):
        return [to_plain(item, sparse=sparse) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item, sparse=sparse) for key, item in value.items()}
    return value


def _section(value: Any, sparse: bool, base: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {value.tag: value.type_name} if isinstance(value, Choice) else {}
    declared: type = type(value)
    for name, info in fields_of(declared).items():
        item = getattr(value, info.attribute)
        default = info.default if base is None else getattr(base, info.attribute)
        if sparse and item == default and not info.required:
            continue
        if type(item) in PLAIN:
            plain[name] = item
            continue
        nested = (
            type(item) is type(default) and dataclasses.is_dataclass(item) and not isinstance(item, (Choice, Interval))
        )
        plain[name] = _section(item, sparse, default) if nested else to_plain(item, sparse=sparse)
    return plain


def to_file(config: Config) -> dict[str, Any]:
    """The config as a person would write it: the schema's version, then only what differs from the defaults."""
    plain: dict[str, Any] = to_plain(config, sparse=True)
    return {"rlctl": config.rlctl, **{key: item for key, item in plain.items() if key != "rlctl"}}


def put_at(plain: Any, path: tuple[Any, ...], value: Any) -> None:
    """Put a value into plain ones; nothing where they leave out what is on the way there."""
    for part in path[:-1]:
        if isinstance(plain, dict) and part not in plain:
            return
        plain = plain[part]
    if isinstance(plain, list) or path[-1] in plain:
        plain[path[-1]] = value
