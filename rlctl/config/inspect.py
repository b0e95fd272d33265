"""What the schema says of itself: the fields of a section with type, default, unit, range and help.

Everything shown about a key comes from here: error messages, ``rlctl explain``, JSON Schema, the reference page, the TUI.
A field is named by its key pattern: ``data.train[].path``, ``algorithm.advantage<grpo>.epsilon`` (an option of a choice).
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import sys
import textwrap
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rlctl.common.secrets import has_password, is_reference, is_secret, is_token
from rlctl.config.fields import OTHER, Choice, Interval, Range, Secret, Unit
from rlctl.documents.paths import PLAIN


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field of a section."""

    name: str
    """Name in a file (``lambda``, where Python has ``lambda_``)."""
    attribute: str
    """Name in Python."""
    type: Any
    """Its type without ``Annotated``."""
    required: bool
    default: Any
    unit: str
    range: Range | None
    secret: bool


@cache
def fields_of(cls: type) -> dict[str, FieldInfo]:
    """The fields of a section by their name in a file."""
    hints = _hints(cls)
    hidden = "kind" if issubclass(cls, Choice) and cls.further and cls.__dict__.get("choice") == OTHER else ""
    infos = (_field_info(field, hints[field.name]) for field in dataclasses.fields(cls) if field.name != hidden)
    return {info.name: info for info in infos}


def _hints(cls: type) -> dict[str, Any]:
    """The types of a section's fields, as ``typing.get_type_hints`` says, which takes four times as long for all sections."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, hint in inspect.get_annotations(base).items():
            found[name] = _evaluated(hint, base.__module__) if isinstance(hint, str) else hint
    return found


@cache
def _evaluated(hint: str, module: str) -> Any:
    """Evaluate an annotation, in its module."""
    return eval(hint, vars(sys.modules[module]))


def _field_info(field: dataclasses.Field[Any], hint: Any) -> FieldInfo:
    extras = [extra for part in _parts(hint) if get_origin(part) is Annotated for extra in part.__metadata__]
    default: Any = None
    required = False
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        default = field.default
    else:
        required = True
    return FieldInfo(
        name=field.name.rstrip("_"),
        attribute=field.name,
        type=_bare(hint),
        required=required,
        default=default,
        unit=next((extra.name for extra in extras if isinstance(extra, Unit)), ""),
        range=next((extra for extra in extras if isinstance(extra, Range)), None),
        secret=any(isinstance(extra, Secret) for extra in extras),
    )


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    if get_origin(hint) in (Union, types.UnionType):
        yield from get_args(hint)


def _bare(hint: Any) -> Any:
    """The type without ``Annotated``, also inside a union and a tuple."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(_bare(arg) for arg in get_args(hint))]  # noqa: UP007
    return hint


@cache
def help_of(cls: type) -> dict[str, str]:
    """The string under each field of a section, by the field's name in a file, inherited ones included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _own_help(base)
    return found


def _own_help(cls: type) -> dict[str, str]:
    body = _class_bodies(cls.__module__).get(cls.__qualname__, [])
    found = {}
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[node.target.id.rstrip("_")] = " ".join(inspect.cleandoc(text.value).split())
    return found


def summary_of(cls: type) -> str:
    """The first paragraph of what a section says of itself, in one line: the help of an option of a choice."""
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    source = textwrap.dedent(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key of the canonical config, as ``walk`` finds it."""

    pattern: str
    """``data.train[].path``, ``algorithm.advantage<grpo>.epsilon``."""
    info: FieldInfo
    owner: type
    """The section that declares it."""

    @property
    def help(self) -> str:
        """The string under the field; read from the source when it is asked for."""
        return help_of(self.owner).get(self.info.name, "")

    @property
    def path(self) -> str:
        """The key as written in a file or after ``--set``, without the option's name."""
        return "".join(part.split(">", 1)[-1] for part in self.pattern.split("<"))

    @property
    def is_section(self) -> bool:
        """Whether it only holds further keys."""
        return bool(sections_in(self.info.type))


def walk(cls: type, prefix: str = "") -> Iterator[KeyInfo]:
    """Every key below a section, sections before what they hold, options of every choice."""
    for name, info in fields_of(cls).items():
        pattern = f"{prefix}{name}"
        yield KeyInfo(pattern, info, cls)
        for held, suffix in sections_in(info.type):
            if isinstance(held, type) and issubclass(held, Choice):
                for option, option_cls in held.registry.items():
                    yield from walk(option_cls, f"{pattern}{suffix}<{option}>.")
            elif held is not Interval:
                yield from walk(held, f"{pattern}{suffix}.")


@cache
def sections_in(hint: Any) -> tuple[tuple[type, str], ...]:
    """The sections that a type holds, each with ``[]`` for a list, ``{}`` for a mapping, or nothing."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return tuple(found for arg in get_args(hint) for found in sections_in(arg))
    if origin is tuple:
        return tuple((held, "[]") for held, _ in sections_in(get_args(hint)[0]))
    if origin is dict:
        return tuple((held, "{}") for held, _ in sections_in(get_args(hint)[1]))
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, Choice)) and hint is not Interval:
        return ((hint, ""),)
    return ()


def type_text(hint: Any) -> str:
    """A type as shown to a person: ``float or null``, ``keep | drop``, ``list of text``."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return type_text(args[0])
    if origin is Literal:
        return " | ".join(str(arg) for arg in args)
    if origin in (Union, types.UnionType):
        names = [type_text(arg) for arg in args if arg is not type(None)]
        return " or ".join([*names, "null"] if type(None) in args else names)
    if origin is tuple:
        return f"list of {type_text(args[0])}"
    if origin is dict:
        return f"mapping of {type_text(args[1])}"
    if isinstance(hint, type) and issubclass(hint, Choice):
        return " | ".join(hint.names())
    if hint is Interval:
        return "steps, or {optimizer_steps: n}, or {epochs: n}"
    plain = {str: "text", int: "integer", float: "number", bool: "true | false", Any: "anything", dict: "mapping"}
    return plain.get(hint) or getattr(hint, "__name__", str(hint)).lower()


def is_container(key: KeyInfo) -> bool:
    """Whether a key always holds a section and has no value of its own, as ``run`` and ``data.curriculum``."""
    default = key.info.default
    return dataclasses.is_dataclass(default) and not isinstance(default, (Choice, Interval))


def option_patterns(cls: type) -> list[str]:
    """The pattern of every option of every choice below a section: ``algorithm.advantage<rloo>``."""
    found = []
    for key in walk(cls):
        for held, suffix in sections_in(key.info.type):
            if issubclass(held, Choice):
                found += [f"{key.pattern}{suffix}<{option}>" for option in held.registry]
    return found


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of a config: a key that is not a container, or the chosen option of a choice."""

    path: tuple[str | int, ...]
    """Where it is: ``("data", "train", 0, "path")``."""
    pattern: str
    """Its key pattern; of a chosen option ``rollout.engine<vllm>``."""
    value: Any
    default: Any
    """What it holds when nobody sets it; None for the option of a list's item."""


def settings(
    section: Any,
    path: tuple[str | int, ...] = (),
    prefix: str = "",
    base: Any = None,
    only: Collection[str] | None = None,
) -> Iterator[Setting]:
    """Every value below a section, with its default.

    Args:
        section: the section, usually a whole config.
        path: where the section is.
        prefix: what its key patterns start with, the dot included.
        base: the section's default as a whole, where that is not the default of its class.
        only: the fields that are wanted; None wants all.
    """
    declared: type = type(section)
    for name, info in fields_of(declared).items():
        if only is not None and name not in only:
            continue
        value = getattr(section, info.attribute)
        default = info.default if base is None else getattr(base, info.attribute)
        if type(value) in PLAIN:
            yield Setting((*path, name), f"{prefix}{name}", value, default)
        else:
            yield from _settings_of(value, default, (*path, name), f"{prefix}{name}")


def _settings_of(value: Any, default: Any, path: tuple[str | int, ...], pattern: str) -> Iterator[Setting]:
    if isinstance(value, Choice):
        chosen = f"{pattern}<{value.choice}>"
        yield Setting(path, pattern, value, default)
        yield Setting(path, chosen, value.type_name, default.type_name if isinstance(default, Choice) else None)
        yield from settings(value, path, f"{chosen}.", default if type(default) is type(value) else None)
    elif dataclasses.is_dataclass(value) and not isinstance(value, Interval):
        if not dataclasses.is_dataclass(default):
            yield Setting(path, pattern, value, default)
        yield from settings(value, path, f"{pattern}.", default if type(default) is type(value) else None)
    else:
        yield Setting(path, pattern, value, default)
        items = enumerate(value) if isinstance(value, tuple) else value.items() if isinstance(value, dict) else ()
        suffix = "[]" if isinstance(value, tuple) else "{}"
        for key, item in items:
            if isinstance(item, Choice) or (dataclasses.is_dataclass(item) and not isinstance(item, Interval)):
                yield from _items_of(item, (*path, key), f"{pattern}{suffix}")


def _items_of(item: Any, path: tuple[str | int, ...], pattern: str) -> Iterator[Setting]:
    if isinstance(item, Choice):
        chosen = f"{pattern}<{item.choice}>"
        yield Setting(path, chosen, item.type_name, None)
        yield from settings(item, path, f"{chosen}.")
    else:
        yield from settings(item, path, f"{pattern}.")


def secrets(config: Any, *, references: bool = False) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Path and value of everything that must never be shown, logged or stored.

    These are the fields that the schema marks, URLs with a password, tokens of well-known services, and in free mappings
    (further arguments, environment variables, changes of stages) text under a name of a secret.

    Args:
        config: the config.
        references: whether values that only name a variable of the environment count too.
    """
    declared: Any = type(config)
    marked = _marked_patterns(declared)
    for setting in settings(config):
        value = setting.value
        if setting.pattern in marked or has_password(value) or is_token(value):
            if references or not is_reference(value):
                yield setting.path, value
        elif isinstance(value, dict | tuple):  # sections and choices in it are settings of their own
            yield from _secrets_within(value, setting.path, references)


def marked_secrets(config: Any) -> set[tuple[str | int, ...]]:
    """The paths of those that the schema marks: all of them may be null."""
    declared: Any = type(config)
    secret = _marked_patterns(declared)
    return {setting.path for setting in settings(config) if setting.pattern in secret}


@cache
def _marked_patterns(declared: type) -> frozenset[str]:
    return frozenset(key.pattern for key in walk(declared) if key.info.secret)


def _secrets_within(
    value: Any, path: tuple[str | int, ...], references: bool
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """``secrets`` for plain values."""
    if isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _secrets_within(item, (*path, key), references)
    elif is_secret(str(path[-1]), value) or (references and is_reference(value)):
        yield path, value
