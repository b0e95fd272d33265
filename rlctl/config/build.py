"""Plain values to a typed Config: strict, and every problem is found, not only the first.

Unknown keys, wrong types and values out of range become findings with file and line, the nearest known key, and what
was expected. Nothing is converted in silence; only text that came from an environment variable is read as YAML would.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from rlctl.common.errors import ConfigError, Location, closest
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, finding
from rlctl.config.fields import MAX_DEVICES, OTHER, Choice, Interval, Range
from rlctl.config.inspect import FieldInfo, fields_of, type_text
from rlctl.config.root import SCHEMA_VERSION, Config
from rlctl.documents.paths import KeyPath, dotted
from rlctl.documents.scalars import plain_value

Locate = Callable[[KeyPath], Location | None]
T = TypeVar("T")


class _Bad:
    """Stands for a value that could not be built; a finding says why."""


BAD = _Bad()


@dataclass
class Builder:
    """Builds sections and collects what is wrong with their values."""

    locate: Locate
    expressions: Mapping[KeyPath, str] = field(default_factory=dict)
    """What was written at leaves whose value was interpolated: text in it is read as YAML would, and never shown."""
    findings: list[Finding] = field(default_factory=list)
    is_trial: bool = False
    """Whether it only finds out if a value fits, as one of several types that it may have."""
    failed: bool = False

    def bad(self, id_: str, path: KeyPath, **params: Any) -> _Bad:
        self.failed = True
        if not self.is_trial:
            self.findings.append(finding(id_, Level.ERROR, dotted(path), self.locate(path), **params))
        return BAD

    def section(
        self,
        cls: type,
        value: Any,
        path: KeyPath,
        *,
        skip: frozenset[str] = frozenset(),
        base: Any = None,
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Build one section from a mapping, over ``base`` where the field's default is not its class's; BAD when anything is.

        ``given`` are attributes that the mapping has no keys for.
        """
        if not isinstance(value, Mapping):
            return self.wrong_type(value, path, KINDS[dict])
        known = fields_of(cls)
        arguments: dict[str, Any] = dict(given)
        for key, item in value.items():
            if key in skip:
                continue
            if key not in known:
                near = closest(str(key), [*known, *skip]) or "none"
                self.bad("unknown-key_canonical", (*path, key), near=near)
                continue
            arguments[known[key].attribute] = self.field(known[key], item, (*path, key))
        for info in known.values():
            if base is not None:
                arguments.setdefault(info.attribute, getattr(base, info.attribute))
            elif info.required and info.attribute not in arguments:
                arguments[info.attribute] = self.bad("missing-key", path, name=dotted((*path, info.name)))
        if any(argument is BAD for argument in arguments.values()):
            return BAD
        return cls(**arguments)

    def field(self, info: FieldInfo, value: Any, path: KeyPath) -> Any:
        if (
            isinstance(info.default, (Choice, Interval))
            or not is_dataclass(info.default)
            or not isinstance(value, Mapping)
        ):
            built = self.value(info.type, value, path)
        else:
            built = self.section(type(info.default), value, path, base=info.default)
        if (
            info.range is not None
            and isinstance(built, (int, float))
            and not isinstance(built, bool)
            and built not in info.range
        ):
            counted = said("{value} {unit}", value=repr(built), unit=info.unit) if info.unit else repr(built)
            shown = self.expressions.get(path) or counted
            return self.bad("out-of-range", path, value=shown, expected=info.range.words())
        return built

    def value(self, hint: Any, value: Any, path: KeyPath) -> Any:
        """Build a value of any type the schema uses."""
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.annotated(hint, value, path)
        if hint is Any:
            return value
        if origin in (Union, types.UnionType):
            return self.union(hint, args, value, path)
        if origin is Literal:
            return self.literal(args, value, path)
        if origin is tuple:
            return self.items(args, value, path)
        if origin is dict or hint is dict:
            return self.mapping(args, value, path)
        if hint is Interval:
            return self.interval(value, path)
        if isinstance(hint, type) and issubclass(hint, Choice):
            return self.choice(hint, value, path)
        if hint in _SCALARS:
            return self.scalar(hint, value, path)
        return self.section(hint, value, path)

    def annotated(self, hint: Any, value: Any, path: KeyPath) -> Any:
        built = self.value(get_args(hint)[0], value, path)
        for extra in hint.__metadata__:
            if isinstance(extra, Range) and isinstance(built, (int, float)) and built not in extra:
                shown = self.expressions.get(path) or repr(built)
                return self.bad("out-of-range", path, value=shown, expected=extra.words())
        return built

    def union(self, hint: Any, args: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if value is None and type(None) in args:
            return None
        options = [arg for arg in args if arg is not type(None)]
        if len(options) == 1:
            return self.value(options[0], value, path)
        for option in options:
            trial = Builder(self.locate, self.expressions, is_trial=True)
            built = trial.value(option, value, path)
            if not trial.failed:
                return built
        return self.wrong_type(value, path, type_text(hint))

    def literal(self, allowed: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if any(value == item and type(value) is type(item) for item in allowed):
            return value
        expected = ", ".join(str(item) for item in allowed)
        if isinstance(value, str):
            near = closest(value, [str(item) for item in allowed]) or "none"
            shown = self.expressions.get(path) or repr(value)
            return self.bad("unknown-value", path, value=shown, expected=expected, near=near)
        return self.wrong_type(value, path, said("one of {names}", names=expected))

    def items(self, args: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if not isinstance(value, (list, tuple)):
            return self.wrong_type(value, path, _LISTS.get(args[0], "a list"))
        if len(args) == 2 and args[1] is not Ellipsis and len(value) != len(args):
            return self.wrong_type(value, path, said("a list of {count} values", count=len(args)))
        built = tuple(self.value(args[0], item, (*path, index)) for index, item in enumerate(value))
        return BAD if any(item is BAD for item in built) else built

    def mapping(self, args: tuple[Any, ...], value: Any, path: KeyPath) -> Any:
        if not isinstance(value, Mapping):
            return self.wrong_type(value, path, KINDS[dict])
        built = {str(key): self.value(args[1] if args else Any, item, (*path, key)) for key, item in value.items()}
        return BAD if any(item is BAD for item in built.values()) else built

    def interval(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            value = {"steps": value}
        if not isinstance(value, Mapping) or len(value) != 1:
            return self.wrong_type(value, path, "a number of steps, {optimizer_steps: n} or {epochs: n}")
        return self.section(Interval, value, path)

    def choice(self, setting: type[Choice], value: Any, path: KeyPath) -> Any:
        if isinstance(value, str):
            value = {setting.tag: value}
        if not isinstance(value, Mapping):
            names = ", ".join(setting.names())
            expected = said("one of {names}, or a mapping with '{tag}'", names=names, tag=setting.tag)
            return self.wrong_type(value, path, expected)
        name = value.get(setting.tag)
        found = setting.option(name)
        if found is None:
            expected = ", ".join(setting.names())
            if name is None:
                return self.bad("unknown-value_untagged", path, tag=setting.tag, expected=expected)
            near = (closest(name, setting.names()) if isinstance(name, str) else "") or "none"
            shown = self.expressions.get((*path, setting.tag)) or repr(name)
            return self.bad("unknown-value_option", path, tag=setting.tag, value=shown, expected=expected, near=near)
        option, cls = found
        given = {"kind": name} if option == OTHER else {}
        return self.section(cls, value, path, skip=frozenset({setting.tag}), given=given)

    def scalar(self, expected: type, value: Any, path: KeyPath) -> Any:
        if path in self.expressions and isinstance(value, str) and expected is not str:
            value = _read_scalar(value)
        if path in self.expressions and expected is str and isinstance(value, (int, float)):
            value = str(value)
        if expected in (int, float) and isinstance(value, int) and abs(value) >= _TOO_LARGE:
            return self.bad("out-of-range", path, value=self.shown(value, path), expected="less than 2**53")
        if expected is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, expected) and not (expected in (int, float) and isinstance(value, bool)):
            return value
        return self.wrong_type(value, path, _SCALARS[expected])

    def wrong_type(self, value: Any, path: KeyPath, expected: str) -> _Bad:
        id_ = "wrong-type"
        if path in self.expressions:
            id_ = "wrong-type_expression"
        elif isinstance(value, str) and _read_scalar(value) != value and expected in _SCALARS.values():
            id_ = "wrong-type_quoted"
        return self.bad(id_, path, value=self.shown(value, path), expected=expected)

    def shown(self, value: Any, path: KeyPath) -> str:
        """A value for a message; the expression that was written for an interpolated one."""
        return self.expressions.get(path) or shown(value)


_TOO_LARGE = 2**53
"""Integers from here on are inexact as floats, and products of them overflow 64 bits: in torch, numpy and a list's length."""
KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}
"""What a value of each kind is called in messages."""
_SCALARS: dict[type, str] = {kind: KINDS[kind] for kind in (str, int, float, bool)}
_LISTS: dict[Any, str] = {str: "a list of strings", int: "a list of integers", float: "a list of numbers"}
_TOLD = (str, list, dict)
"""Kinds that a value alone does not show."""


def shown(value: Any) -> str:
    """A value as a message shows it: shortened, with its kind."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    short = f"{text[:77]}..." if len(text) > 80 else text
    return said("{value} ({kind})", value=short, kind=KINDS[type(value)]) if type(value) in _TOLD else short


def _read_scalar(text: str) -> Any:
    try:
        return plain_value(text)
    except ValueError:
        return text


def build_config(
    values: Mapping[str, Any], *, locate: Locate = lambda path: None, expressions: Mapping[KeyPath, str] | None = None
) -> tuple[Config | None, list[Finding]]:
    """Build a Config from plain values; None when a finding is an error."""
    builder = Builder(locate, expressions or {})
    version = values.get("rlctl", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        builder.bad("schema-version", ("rlctl",), version=repr(version), expected=SCHEMA_VERSION)
        return None, builder.findings
    config = builder.section(Config, values, ())
    if isinstance(config, Config):
        _limit_devices(builder, config)
    return (None if config is BAD or builder.findings else cast(Config, config)), builder.findings


def _limit_devices(builder: Builder, config: Config) -> None:
    nodes, each = config.placement.nodes, config.placement.devices_per_node
    if nodes * each > MAX_DEVICES:
        total = nodes * each
        builder.bad(
            "out-of-range_devices", ("placement", "nodes"), nodes=nodes, each=each, total=total, most=MAX_DEVICES
        )


def config_from(values: Mapping[str, Any]) -> Config:
    """Build a Config from plain values that must be right.

    Raises:
        ConfigError: with every problem, one a line.
    """
    config, findings = build_config(values)
    if config is None:
        raise ConfigError("\n".join(finding.message for finding in findings))
    return config
