"""The keys of a dataclass of settings and all that is in it, with their defaults; runs in the Python of a framework."""

from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


Keys = typing.Iterator[tuple[str, list[Any]]]


def keys(cls: type, prefix: str = "", above: tuple[type, ...] = (), made: Any = None) -> Keys:
    """Each key with a list that holds its default, empty where it has none; ``*`` is an index or a name of the user's.

    Args:
        cls: the class.
        prefix: the section of its keys, with a dot.
        above: the classes that hold it, so that one that holds itself ends.
        made: the object that is the default of the section, if it has one.
    """
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        if item.name != "_target_":
            default = _default(item) if made is None else _of_both(_default(item), getattr(made, item.name, None))
            yield from _below(hints[item.name], f"{prefix}{item.name}", (*above, cls), default)


def _of_both(default: Any, value: Any) -> Any:
    """The default of a field whose section is made already; MISSING where making it computed another value."""
    return value if dataclasses.is_dataclass(value) or value == default else dataclasses.MISSING


def _default(item: dataclasses.Field) -> Any:
    """The default of a field; MISSING for what is required."""
    if item.default is dataclasses.MISSING and item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


def _told(default: Any) -> list[Any]:
    """A default in a list; an empty one for what is required, or is a section."""
    if default is dataclasses.MISSING or dataclasses.is_dataclass(default) or callable(default):
        return []
    default = plain(default)
    return [default] if isinstance(default, (dict, list, int, float, str, bool, type(None))) else []


def _below(hint: Any, name: str, above: tuple[type, ...], default: Any) -> Keys:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union or type(hint).__name__ == "UnionType":
        inner = [arg for arg in args if arg is not type(None)]
        held = [arg for arg in inner if dataclasses.is_dataclass(arg)]
        yield from _below((held or inner)[0], name, above, default)
        return
    yield name, _told(default)
    if dataclasses.is_dataclass(hint):
        if hint not in above:
            below = keys(hint, f"{name}.", above, default if isinstance(default, hint) else None)
            yield from ((key, [] if default is None else inner) for key, inner in below)  # a section may not be made
    elif origin in (list, tuple) and args and dataclasses.is_dataclass(args[0]):
        yield from keys(args[0], f"{name}.*.", above)
    elif origin is dict and len(args) == 2 and dataclasses.is_dataclass(args[1]):
        yield from keys(args[1], f"{name}.*.", above)
    elif hint is dict or origin is dict:
        yield f"{name}.**", []
