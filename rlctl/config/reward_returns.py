"""What a reward function returns, as its source shows: numbers, mappings, text or nothing. The code is not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlctl.config.reward_signatures import plain_function

NUMBER, MAPPING, TEXT, NOTHING, SEQUENCE = "number", "mapping", "text", "nothing", "sequence"
NUMERIC = frozenset({"float", "int", "bool", "round", "max", "min", "len", "sum", "abs"})
"""Built-in functions whose results are numbers, if a reward function returns them."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A kind of value that a function returns."""

    kind: str
    line: int
    keys: frozenset[str] | None = None
    """Of a mapping, if all of them are known."""


@dataclass(frozen=True, slots=True)
class Returns:
    """The values that a function surely returns on some path; values that cannot be known statically are left out."""

    values: tuple[Returned, ...]
    is_async: bool

    def first(self, kind: str) -> Returned | None:
        return next((value for value in self.values if value.kind == kind), None)

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(value.kind for value in self.values))

    @property
    def uneven(self) -> tuple[Returned, Returned] | None:
        """Two mappings with other keys."""
        known = [value for value in self.values if value.keys is not None]
        return next(((known[0], other) for other in known if other.keys != known[0].keys), None)


def returns_of(path: Path, name: str) -> Returns | None:
    """The values that a function of a file returns; None if the file lacks it, or it is no plain function."""
    node = plain_function(path, name)
    return None if node is None else returns_in(node)


def returns_in(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Returns:
    """The values that a function of a syntax tree returns."""
    return Returns(tuple(_Function(node).returned()), isinstance(node, ast.AsyncFunctionDef))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield child
            yield from _own(child)


class _Function:
    """A function's statements, and what its names are assigned."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._node = node
        self._nodes = list(_own(node))
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        self._opaque = {argument.arg for argument in arguments} | set(self._targets())

    def _targets(self) -> Iterator[str]:
        """Names that loops, ``with``, unpacking and augmented assignments bind, whose values are not known."""
        for node in self._nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                plain = any(
                    (isinstance(other, ast.Assign) and node in other.targets)
                    or (isinstance(other, (ast.AnnAssign, ast.AugAssign)) and other.target is node)
                    for other in self._nodes
                )
                if not plain:
                    yield node.id

    def returned(self) -> Iterator[Returned]:
        for node in self._nodes:
            if isinstance(node, ast.Return):
                value = ast.Constant(None) if node.value is None else node.value
                yield from self._kinds(value, node.lineno, 0)
        is_generator = any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in self._nodes)
        if not is_generator and _falls_through(self._node.body):
            yield Returned(NOTHING, self._node.body[-1].lineno)

    def _kinds(self, value: ast.expr, line: int, depth: int) -> Iterator[Returned]:
        if isinstance(value, ast.IfExp):
            yield from self._kinds(value.body, line, depth)
            yield from self._kinds(value.orelse, line, depth)
        elif isinstance(value, ast.Name):
            yield from self._assigned(value.id, line, depth)
        elif isinstance(value, ast.Dict):
            yield Returned(MAPPING, line, self._keys(value))
        elif (kind := _kind(value)) is not None:
            yield Returned(kind, line)

    def _assigned(self, name: str, line: int, depth: int) -> Iterator[Returned]:
        """The kinds of a name's values, if each of them is known."""
        if name in self._opaque or depth > 4:
            return
        found: list[Returned] = []
        for node in self._nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    kinds = list(self._kinds(node.value, line, depth + 1)) if node.value is not None else []
                    if not kinds:
                        return
                    found += kinds
        yield from (Returned(each.kind, each.line) for each in found)  # keys may be added later

    def _keys(self, value: ast.Dict) -> frozenset[str] | None:
        names = [
            key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None for key in value.keys
        ]
        return None if None in names else frozenset(name for name in names if name is not None)


def _falls_through(body: list[ast.stmt]) -> bool:
    """Whether a run of statements surely can end without ``return`` or ``raise``; False where that is not known."""
    last = body[-1]
    if isinstance(last, ast.If):
        return not last.orelse or _falls_through(last.body) or _falls_through(last.orelse)
    if isinstance(last, (ast.For, ast.AsyncFor)):
        return not last.orelse or _falls_through(last.orelse)
    plain = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass)
    return isinstance(last, plain) or (isinstance(last, ast.Expr) and not _may_end(last.value))


def _may_end(value: ast.expr) -> bool:
    """Whether an expression may leave the function or the program, as ``sys.exit()`` does."""
    return any(isinstance(node, (ast.Call, ast.Await)) for node in ast.walk(value)) and not _prints(value)


def _prints(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"


def _kind(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant):
        if value.value is None:
            return NOTHING
        if isinstance(value.value, (bool, int, float)):
            return NUMBER
        return TEXT if isinstance(value.value, str) else None
    if isinstance(value, ast.UnaryOp):
        return NUMBER if isinstance(value.op, ast.Not) else _kind(value.operand)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return NUMBER if value.func.id in NUMERIC else MAPPING if value.func.id == "dict" else None
    if isinstance(value, ast.BinOp):
        sides = {_kind(value.left), _kind(value.right)}
        return NUMBER if NUMBER in sides and not isinstance(value.op, (ast.Mult, ast.Mod)) else None
    if isinstance(value, ast.JoinedStr):
        return TEXT
    if isinstance(value, (ast.List, ast.Tuple, ast.ListComp)):
        return SEQUENCE
    return NUMBER if isinstance(value, ast.Compare) else None
