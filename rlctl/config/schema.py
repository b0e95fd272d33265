"""The canonical config as a JSON Schema (draft 2020-12), made from the declarations: for editors, and for other tools.

A choice is a ``oneOf`` over its options, told apart by their tag. Units are under ``x-unit``, the string under a field
is its description. Any value that is not text may also be written as an interpolation, ``${...}``.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from rlctl.config.dump import to_plain
from rlctl.config.fields import OTHER, Choice, Interval, Range
from rlctl.config.inspect import FieldInfo, fields_of, help_of, summary_of
from rlctl.config.root import Config

URL = "https://raw.githubusercontent.com/rlctl/rlctl/main/docs/reference/rlctl.schema.json"
"""Where editors find it; `make docs` writes the file."""
DRAFT = "https://json-schema.org/draft/2020-12/schema"
_INTERPOLATION = r"\$\{.+\}"
_OWN = r"^[a-z]\w*\.\S+$"
"""A type that one framework has, after its name."""
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}

Node = dict[str, Any]


def json_schema() -> Node:
    """The JSON Schema of a canonical config file."""
    definitions = _Definitions()
    body = definitions.section_body(Config)
    body["properties"]["stages"] |= {"items": _stage(body["properties"])}
    return {
        "$schema": DRAFT,
        "$id": URL,
        "title": "rlctl canonical config",
        **body,
        "$defs": dict(sorted(definitions.found.items())),
    }


def _stage(root: dict[str, Node]) -> Node:
    """The schema of a stage: a name, and any section in part; sections are checked once they are merged."""
    sections = {
        name: {"description": node.get("description", "")}
        for name, node in root.items()
        if name not in ("rlctl", "stages")
    }
    return {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Name of the stage."}, **sections},
        "additionalProperties": False,
    }


class _Definitions:
    """The sections met so far, each written once under ``$defs``."""

    def __init__(self) -> None:
        self.found: dict[str, Node] = {}
        self._owners: dict[str, type] = {}

    def section(self, cls: type) -> Node:
        """A reference to a section, written on first use."""
        return self._reference(cls.__name__, cls, lambda: self.section_body(cls))

    def choice(self, setting: type[Choice]) -> Node:
        """A reference to a choice: one of its options, or the name alone."""
        return self._reference(setting.__name__, setting, lambda: self._choice_body(setting))

    def _reference(self, name: str, owner: type, body: Any) -> Node:
        if self._owners.setdefault(name, owner) is not owner:
            raise TypeError(f"two sections are called {name}: {self._owners[name]} and {owner}")
        if name not in self.found:
            self.found[name] = {}
            self.found[name] = body()
        return {"$ref": f"#/$defs/{name}"}

    def section_body(self, cls: type, *, tag: tuple[str, str] | None = None) -> Node:
        infos = fields_of(cls)
        texts = help_of(cls)
        properties = {name: self._property(info, texts[name]) for name, info in infos.items()}
        required = [name for name, info in infos.items() if info.required]
        if tag is not None:
            properties = {tag[0]: {"const": tag[1]}, **properties}
            required = [tag[0], *required]
        body: Node = {**_interpolated("object"), "description": summary_of(cls), "properties": properties}
        return body | ({"required": required} if required else {}) | {"additionalProperties": False}

    def _choice_body(self, setting: type[Choice]) -> Node:
        options = []
        for name, option in setting.registry.items():
            key = f"{setting.__name__}.{name}"
            options.append(self._reference(key, option, lambda n=name, o=option: self._option_body(setting, n, o)))
        names = [name for name in setting.names() if (found := setting.option(name)) and not _requires(found[1])]
        return {
            "description": summary_of(setting),
            "if": {"type": "string"},
            "then": _either([{"enum": names}, *([{"pattern": _OWN}] if setting.further else []), _interpolated()]),
            "else": {"type": "object", "discriminator": {"propertyName": setting.tag}, "oneOf": options},
        }

    def _option_body(self, setting: type[Choice], name: str, option: type) -> Node:
        body = self.section_body(option, tag=(setting.tag, name))
        if setting.further and name == OTHER:
            own: list[Node] = [{"enum": list(setting.further)}, {"type": "string", "pattern": _OWN}]
            body["properties"][setting.tag] = {
                "anyOf": own,
                "description": "A type without options, or FRAMEWORK.NAME.",
            }
        return body

    def _property(self, info: FieldInfo, text: str) -> Node:
        node = self.type(info.type)
        if info.range is not None:
            node = node | _range(info.range)
        if info.unit:
            node["x-unit"] = info.unit
        if info.secret:
            node["x-secret"] = True
        if not info.required:
            node["default"] = to_plain(info.default, sparse=True)
        return node | {"description": text}

    def type(self, hint: Any) -> Node:
        """The schema of a type that the config uses, interpolations included."""
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            ranges = [extra for extra in hint.__metadata__ if isinstance(extra, Range)]
            return self.type(args[0]) | (_range(ranges[0]) if ranges else {})
        if origin in (Union, types.UnionType):
            return _either([_NULL if arg is type(None) else self.type(arg) for arg in args])
        if origin is Literal:
            return {"enum": list(args)} if args == (1,) else _either([{"enum": list(args)}, _interpolated()])
        if origin is tuple:
            return _interpolated("array") | self._items(args)
        if origin is dict or hint is dict:
            return _interpolated("object") | {"additionalProperties": self.type(args[1]) if args else {}}
        return self._named(hint)

    def _named(self, hint: Any) -> Node:
        if hint is Any:
            return {}
        if hint is Interval:
            whole = self.section(Interval) | {"minProperties": 1, "maxProperties": 1}
            return _either([{"type": "integer", "minimum": 1}, whole])
        if issubclass(hint, Choice):
            return self.choice(hint)
        if hint is str:
            return {"type": "string"}
        return _interpolated(_SCALARS[hint]) if hint in _SCALARS else self.section(hint)

    def _items(self, args: tuple[Any, ...]) -> Node:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"items": self.type(args[0])}
        sizes = {"minItems": len(args), "maxItems": len(args)}
        return {"prefixItems": [self.type(arg) for arg in args], "items": False, **sizes}


_NULL: Node = {"type": "null"}


def _interpolated(*kinds: str) -> Node:
    """A value of these kinds, or text with an interpolation; ``pattern`` looks only at text."""
    return {"type": [*kinds, "string"] if kinds else "string", "pattern": _INTERPOLATION}


def _either(nodes: list[Node]) -> Node:
    """Any of the nodes; in one node where only null is added to a scalar, so that errors stay at the value."""
    first, *rest = nodes
    if rest == [_NULL] and "type" in first and "properties" not in first:
        kinds = first["type"] if isinstance(first["type"], list) else [first["type"]]
        return first | {"type": [*kinds, "null"]}
    return {"anyOf": nodes}


def _range(limits: Range) -> Node:
    words = {
        "minimum": limits.at_least,
        "maximum": limits.at_most,
        "exclusiveMinimum": limits.above,
        "exclusiveMaximum": limits.below,
    }
    return {word: bound for word, bound in words.items() if bound is not None}


def _requires(option: type) -> bool:
    return any(info.required for info in fields_of(option).values())
