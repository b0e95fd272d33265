"""What ``${...}`` stands for, as OmegaConf resolves it, in memory only; the expressions themselves are kept.

OmegaConf's grammar does the parsing and the plain forms (``${a.b}``, ``${oc.env:NAME,default}``) are read here, so
that a config of plain forms needs no import of OmegaConf. The environment is asked only for the names written, and a
variable that holds a secret stays its expression.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rlctl.common.errors import DocumentError
from rlctl.common.messages.reasons import reason_of, said
from rlctl.common.secrets import concealed
from rlctl.documents.document import Document
from rlctl.documents.paths import KeyPath, copied, dotted, merged
from rlctl.documents.scalars import plain_value

MISSING = "???"
"""The value OmegaConf takes for: mandatory, not set yet."""
_MAX_CHAIN = 40
_MAX_TEXT = 1024 * 1024
_MAX_NODES = 100_000
_MAX_STEPS = 10_000
_MAX_NESTING = 25
_NAME = r"[A-Za-z_]\w*"
_SIMPLE = re.compile(
    rf"\$\{{(?:(?P<node>{_NAME}(?:\.{_NAME})*)"
    rf"|oc\.select:(?P<select>{_NAME}(?:\.{_NAME})*)(?:,(?P<otherwise>null|[Tt]rue|[Ff]alse|0|[1-9]\d{{0,17}}|\[\]|\{{\}}))?"
    rf"|oc\.env:(?P<env>{_NAME})(?P<comma>,(?P<default>(?!(?i:null|true|false|inf|nan)\b)[A-Za-z/][\w./-]*))?)\}}",
    re.ASCII,
)
_KEY_PART = re.compile(r"[^.\[\]]+")
_NO_DEFAULT: Any = object()
_LITERAL = re.compile(r"(\\*)(\$\{(?!oc\.env:\w+\})[^}]*)")
"""What begins as an expression in a value, with the backslashes before it; a secret of the environment stays one."""


def escaped(value: str, of: str | None = None) -> str:
    """The text that has this value: OmegaConf reads a literal ``${`` as ``\\${``.

    Args:
        value: as it is read.
        of: the value that it was made of, if it may hold expressions too; they are not in that.
    """
    return _LITERAL.sub(
        lambda match: match[1] * 2 + "\\" + match[2] if of is None or match[2] in of else match[0], value
    )


@dataclass
class Resolved:
    """The values of a document with every interpolation replaced that could be."""

    values: dict[Any, Any]
    """Plain values; what is unresolved keeps its expression, what is missing its ``???``."""
    expressions: dict[KeyPath, str] = field(default_factory=dict)
    """The expression of every leaf that held one, as written."""
    unresolved: dict[KeyPath, str] = field(default_factory=dict)
    """Why an expression has no value; never shows a value of the environment."""
    dangling: dict[KeyPath, str] = field(default_factory=dict)
    """The unresolved expressions that no environment can resolve, with the absent key each names; empty for another reason."""
    missing: list[KeyPath] = field(default_factory=list)
    """The leaves marked ``???``."""


class _UnresolvedError(Exception):
    """An expression has no value; the text says why."""

    def __init__(self, reason: str, *, key: str = "", elsewhere: bool = False) -> None:
        """``key`` is the absent key that it names; ``elsewhere`` means that another machine may have the value."""
        super().__init__(reason)
        self.key = key
        self.elsewhere = elsewhere


def resolve(
    document: Document,
    *,
    environment: Mapping[str, str] | None = None,
    base: Mapping[Any, Any] | None = None,
    literal: Container[Any] = (),
) -> Resolved:
    """Resolve every interpolation of a document.

    Args:
        document: What was read; it is not changed.
        environment: What ``${oc.env:...}`` reads; the process's own environment if None.
        base: A tree of defaults below the document, which expressions may refer to as well.
        literal: Top-level keys whose values are text of another file, with expressions that mean nothing in this one.

    Raises:
        DocumentError: an expression is malformed, or expands without bound.
    """
    tree = merged(base, document.values) if base else document.values
    resolver = _Resolver(document, tree, os.environ if environment is None else environment)
    result = Resolved({})
    try:
        result.values = {
            key: copied(value) if key in literal else _resolve_into(result, resolver, value, (key,))
            for key, value in document.values.items()
        }
    except RecursionError:
        raise DocumentError("the interpolations are nested too deep", at=document.at(())) from None
    return result


def _resolve_into(result: Resolved, resolver: _Resolver, value: Any, path: KeyPath) -> Any:
    if isinstance(value, dict):
        return {key: _resolve_into(result, resolver, item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve_into(result, resolver, item, (*path, index)) for index, item in enumerate(value)]
    if value == MISSING:
        result.missing.append(path)
    if not isinstance(value, str) or "${" not in value:
        return value
    result.expressions[path] = value
    try:
        resolved = resolver.value_at(path)
        result.missing += _missing_in(resolved, path)
        return resolved
    except _UnresolvedError as error:
        result.unresolved[path] = reason_of(error)
        if not error.elsewhere:
            result.dangling[path] = error.key
        return value


def _missing_in(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    """The leaves marked ``???`` in a mapping or list that an expression names."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from [(*path, key)] if item == MISSING else _missing_in(item, (*path, key))


@lru_cache(maxsize=512)
def _tree(text: str, **rule: str) -> Any:
    """An expression as OmegaConf's grammar parses it, which takes milliseconds; visiting the tree leaves it as it is."""
    from omegaconf.grammar_parser import parse

    return parse(text, **rule)


def _otherwise(text: str | None) -> Any:
    """The default value of an ``oc.select``, by its text."""
    return {"[]": [], "{}": {}}.get(text or "null", plain_value(text or "null"))


class _Resolver:
    """Evaluates expressions against one tree; every place is evaluated once."""

    def __init__(self, document: Document, tree: Mapping[Any, Any], environment: Mapping[str, str]) -> None:
        self.document = document
        self.tree = tree
        self.environment = environment
        self._known: dict[KeyPath, Any] = {}
        self._active: list[KeyPath] = []
        self._nodes = 0
        self._steps = 0
        self._now = time.localtime()
        self._resolvers: dict[str, Callable[..., Any]] = {
            "oc.env": self._env,
            "oc.select": self._select,
            "oc.decode": self._decode,
            "oc.create": lambda path, value: value,
            "oc.deprecated": lambda path, key, message="": self._node(key, path),
            "oc.dict.keys": lambda path, source: list(self._mapping(path, source)),
            "oc.dict.values": lambda path, source: list(self._mapping(path, source).values()),
            "now": lambda path, pattern: time.strftime(pattern, self._now),
        }

    def value_at(self, path: KeyPath) -> Any:
        """Return the resolved value of the place ``path``, a copy of its own."""
        if path not in self._known:
            if path in self._active:
                circle = " -> ".join(dotted(step) for step in [*self._active[self._active.index(path) :], path])
                raise _UnresolvedError(said("refers to itself: {circle}", circle=circle))
            if len(self._active) >= _MAX_CHAIN:
                raise _UnresolvedError(said("needs more than {limit} steps", limit=_MAX_CHAIN))
            self._steps += 1
            self._check(self._steps, _MAX_STEPS, "evaluations", path)
            self._active.append(path)
            try:
                self._known[path] = self._evaluate(self._raw(path), path)
            finally:
                self._active.pop()
        value = self._known[path]
        self._nodes += _size(value)
        self._check(self._nodes, _MAX_NODES, "values", path)
        return copied(value)

    def _raw(self, path: KeyPath) -> Any:
        value: Any = self.tree
        for part in path:
            value = value[part]
        return value

    def _evaluate(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, Mapping):
            return {key: self._evaluate_child((*path, key), item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._evaluate_child((*path, index), item) for index, item in enumerate(value)]
        return self._expression(value, path) if isinstance(value, str) and "${" in value else value

    def _evaluate_child(self, path: KeyPath, value: Any) -> Any:
        if isinstance(value, str) and "${" in value:
            return self.value_at(path)
        return self._evaluate(value, path)

    def _check(self, used: int, limit: int, what: str, path: KeyPath) -> None:
        if used > limit:
            raise DocumentError(
                said(
                    "the interpolations at '{path}' expand to more than {limit} {what}",
                    path=dotted(path),
                    limit=limit,
                    what=what,
                ),
                at=self.document.at(path),
                hint="write the value out",
            )

    # Expressions

    def _expression(self, text: str, path: KeyPath) -> Any:
        simple = self._simple(text)
        value = self._parsed(text, path) if simple is _NO_DEFAULT else simple
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            raise _UnresolvedError(
                said("resolves to {count} characters; the limit is {limit}", count=len(value), limit=_MAX_TEXT)
            )
        return value

    def _simple(self, text: str) -> Any:
        """Return the value of a text of plain forms only; the marker if it needs the grammar."""
        if "\\" in text or "${" in _SIMPLE.sub("", text):
            return _NO_DEFAULT
        if match := _SIMPLE.fullmatch(text):
            return self._plain_form(match)
        return _SIMPLE.sub(lambda match: str(self._plain_form(match)), text)

    def _plain_form(self, match: re.Match[str]) -> Any:
        if match["node"]:
            return self._node(match["node"])
        if match["select"]:
            return self._select((), match["select"], _otherwise(match["otherwise"]))
        return self._env((), match["env"], match["default"] if match["comma"] else _NO_DEFAULT)

    def _parsed(self, text: str, path: KeyPath, **rule: str) -> Any:
        from omegaconf.errors import GrammarParseError, OmegaConfBaseException
        from omegaconf.grammar_visitor import GrammarVisitor

        if text.count("${") + text.count("[") + text.count("{") > _MAX_NESTING * 8 or _nesting(text) > _MAX_NESTING:
            raise self._malformed(text, path, "it is nested too deep")
        try:
            visitor = GrammarVisitor(
                node_interpolation_callback=lambda key, memo: self._node(key, path, known=key in text),
                resolver_interpolation_callback=lambda name, args, args_str: self._call(name, args, path),
                memo=None,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # OmegaConf's about '${oc.env:X,}', which people mean as it is read
                return visitor.visit(_tree(text, **rule))
        except GrammarParseError as error:
            raise self._malformed(text, path, (str(error).splitlines() or ["it does not end"])[0]) from None
        except ValueError:  # of Python's int
            raise self._malformed(text, path, "it has a number with too many digits") from None
        except OmegaConfBaseException as error:
            raise _UnresolvedError(str(error).splitlines()[0]) from None

    def _malformed(self, text: str, path: KeyPath, reason: str) -> DocumentError:
        shown = text if len(text) <= 100 else f"{text[:80]}..."
        return DocumentError(
            said(
                "the interpolation {shown!r} of '{path}' cannot be read: {reason}",
                shown=shown,
                path=dotted(path),
                reason=reason,
            ),
            at=self.document.at(path),
            hint="expected ${a.b}, ${oc.env:NAME,default} or another OmegaConf form; write a literal one as \\${",
        )

    def _call(self, name: str, args: tuple[Any, ...], path: KeyPath) -> Any:
        if name not in self._resolvers:
            known = ", ".join(self._resolvers)
            raise _UnresolvedError(
                said("'{name}' belongs to Hydra's own settings; known: {known}", name=name, known=known)
                if name == "hydra"
                else said("'{name}' is not a resolver that rlctl knows; known: {known}", name=name, known=known),
                elsewhere=name == "hydra",
            )
        try:
            return self._resolvers[name](path, *args)
        except (TypeError, ValueError) as error:
            raise _UnresolvedError(
                said("'{name}' cannot take these arguments: {error}", name=name, error=error)
            ) from None

    # Places

    def _node(self, key: str, path: KeyPath = (), *, known: bool = True) -> Any:
        """Return the value a key names; one that is built, perhaps from the environment, is not shown in messages."""
        value = self._find(key, path)
        shown = f"'{key}'" if known else "as it builds"
        if value is _NO_DEFAULT:
            raise _UnresolvedError(said("there is no key {key}", key=shown), key=key.lstrip("."))
        if isinstance(value, str) and value == MISSING:
            raise _UnresolvedError(
                said("the key {shown} must be set first: it is '{missing}'", shown=shown, missing=MISSING)
            )
        return value

    def _find(self, key: str, path: KeyPath) -> Any:
        """Return the resolved value that ``key`` names, from the root or, with leading dots, from the parent."""
        dots = len(key) - len(key.lstrip("."))
        if dots > len(path):
            return _NO_DEFAULT
        place: KeyPath = path[: len(path) - dots] if dots else ()
        value: Any = self._raw(place)
        in_tree = True
        for part in _KEY_PART.findall(key):
            step = _step(value, part)
            if step is None:
                return _NO_DEFAULT
            value = value[step]
            place = (*place, step)
            if in_tree and isinstance(value, str) and "${" in value:
                value, in_tree = self.value_at(place), False
        return self.value_at(place) if in_tree else value

    def _env(self, path: KeyPath, name: Any, default: Any = _NO_DEFAULT) -> str | None:
        if not isinstance(name, str):
            raise _UnresolvedError(said("an environment variable has a name, not a {type}", type=type(name).__name__))
        if name in self.environment:
            return concealed(name, self.environment[name])
        if default is _NO_DEFAULT:
            raise _UnresolvedError(said("the environment variable '{name}' is not set", name=name), elsewhere=True)
        return None if default is None else str(default)

    def _select(self, path: KeyPath, key: Any, default: Any = None) -> Any:
        value = self._find(str(key), path)
        return default if value is _NO_DEFAULT or (isinstance(value, str) and value == MISSING) else value

    def _decode(self, path: KeyPath, text: Any) -> Any:
        if text is None:
            return None
        if not isinstance(text, str):
            raise _UnresolvedError(said("'oc.decode' takes a string, not {type}", type=type(text).__name__))
        try:
            return self._parsed(text, path, parser_rule="singleElement", lexer_mode="VALUE_MODE")
        except DocumentError:
            raise _UnresolvedError(
                "'oc.decode' cannot parse its argument"
            ) from None  # which may come from the environment

    def _mapping(self, path: KeyPath, source: Any) -> dict[Any, Any]:
        value = self._node(source, path) if isinstance(source, str) else source
        if not isinstance(value, dict):
            raise _UnresolvedError("'oc.dict' takes a mapping or the key of a mapping")
        return value


def _step(container: Any, part: str) -> str | int | None:
    """Return the key or index that ``part`` names in a container, None if there is none."""
    number = int(part) if part.isdecimal() and len(part) < 10 else None
    if isinstance(container, Mapping):
        return part if part in container else number if number in container else None
    if isinstance(container, list) and number is not None and number < len(container):
        return number
    return None


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + sum(_size(item) for item in value.values())
    if isinstance(value, list):
        return 1 + sum(_size(item) for item in value)
    return 1 + (len(value) >> 10 if isinstance(value, str) else 0)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for character in re.findall(r"[\[\]{}]", text):
        depth += 1 if character in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
