"""Whether tests can run apart from a program, and which of their names are the program's: decided from the tests alone.

Tests run apart if all they do with the program is to call its functions, make instances of its classes, call their methods and
read their attributes, with plain data (``wire.py``). Otherwise ``Split.together`` says why they need the program's process.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rlctl.common.messages.reasons import said

MODULES = frozenset(
    """
    __future__ abc bisect cmath collections copy dataclasses decimal enum fractions functools hashlib heapq itertools json math
    numbers operator pprint pytest random re statistics string textwrap time typing unittest
    """.split()  # noqa: SIM905 - shorter than a list
)
"""Modules that tests may use apart: what they make of plain data is plain data, or stays in the tests."""
IN_PART = {
    "sys": {"maxsize", "setrecursionlimit", "getrecursionlimit", "set_int_max_str_digits", "float_info", "exit"},
    "numpy": {"allclose", "isclose", "isnan", "inf", "nan", "floating", "integer", "ndarray", "float32", "float64"},
}
"""Modules of which tests may use these names apart; others reach into the process, or make what isn't plain data."""
ALIASES = {"np": "numpy"}
"""How tests call a module that they forget to import; they mean the module, not what a program calls so."""
FOREIGN = {"collections.deque", "unittest.mock"}
"""Names of ``MODULES`` that tests may not use apart."""
STARS = MODULES - {"pytest", "unittest"} | {"datetime", "io", "sys"}
"""Modules of the standard library whose names are looked up if code imports all of them."""
REACHING = frozenset("eval exec compile open input globals locals vars __import__ breakpoint setattr delattr".split())  # noqa: SIM905
ASKING = {"getattr", "hasattr", "callable"}
"""Builtins that may be asked about objects of the program."""
REMOTE = {"program", "instance", "part"}
"""Kinds of what stays in the program's process."""
PLAIN_HAS = {name for kind in (int, float, complex, str, bytes, range, list, tuple, dict, set) for name in dir(kind)}
HOLDING = (
    ast.Attribute
    | ast.Call
    | ast.Assign
    | ast.AnnAssign
    | ast.NamedExpr
    | ast.Return
    | ast.Expr
    | ast.For
    | ast.comprehension
) | (ast.List | ast.Tuple | ast.Dict | ast.IfExp | ast.Lambda)
"""Where an instance may be: nothing is asked of it there."""


@dataclass(frozen=True, slots=True)
class Split:
    """How tests and a program are taken apart."""

    together: str = ""
    """Why the tests need the program's process; empty if they run apart."""
    names: tuple[str, ...] = ()
    """Names of the tests that are the program's."""
    tested: tuple[str, ...] = ()
    """Those among them that count although the prelude, or Python, has the name too: they are what the tests are about."""
    prelude: str = ""
    """What runs before the tests, where they run."""


@lru_cache(maxsize=128)
def split(tests: str, prelude: str, entry: str) -> Split:
    """Take tests and a program apart.

    Args:
        tests: their text.
        prelude: code before the program and the tests.
        entry: an expression that the tests are about; empty if it is not known.
    """
    try:
        tree, before = ast.parse(tests), ast.parse(prelude)
        (defined, used), (given, _) = _names(tests), _names(prelude)
        about = ast.parse(entry).body or [each for each in tree.body if _calls_check(each)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Split()  # they fail there too
    looked_up = used - defined
    known = dict(_imported(before))
    given |= set(known)
    unknown = {name for name in looked_up - given if not hasattr(builtins, name) and name[:2] != "__"}
    bases = {_root(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & unknown
    modules = {name: ALIASES.get(name, name) for name in bases if ALIASES.get(name, name) in {*MODULES, *IN_PART}}
    names = unknown - set(modules)
    tested = {node.id for each in about for node in ast.walk(each) if isinstance(node, ast.Name)} & looked_up
    unclear = ""
    if not names and not tested:
        tested, unclear = _innermost(tree, looked_up)
    names |= tested
    looked_up -= names
    own = "".join(f"import {modules[name]} as {name}\n" for name in sorted(modules)) + (
        prelude if looked_up & given or "*" in known else ""
    )
    dotted = {name: known[name] for name in looked_up & set(known)} | modules | dict(_imported(tree))
    needed = (
        unclear
        or _foreign(tree, dotted, looked_up)
        or _classes(before, looked_up)
        or _Uses(tree, names, dotted).needed()
    )
    reason = said("they use {name}", name=needed) if needed else ""
    return Split(reason, tuple(sorted(names)), tuple(sorted(tested)), own)


def _calls_check(node: ast.stmt) -> bool:
    """Whether it is ``check(NAME)``, by which tests in the style of HumanEval say what they are about."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _root(node.value.func) == "check"


def _names(text: str) -> tuple[set[str], set[str]]:
    """The names that code defines at its top, and those that it looks up there."""
    top = symtable.symtable(text, "code", "exec")
    defined, used, tables = set(), set(), [top]
    for table in tables:
        tables += table.get_children()
        for each in table.get_symbols():
            at_top = table is top or each.is_global()
            if at_top and (each.is_assigned() or each.is_imported() or each.is_namespace()):
                defined.add(each.get_name())
            if at_top and each.is_referenced():
                used.add(each.get_name())
    return defined, used


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that code imports, with where from; ``*`` if it may import any name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or _root(alias.name), alias.name if alias.asname else _root(alias.name)
                yield alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name != "*":
                    yield alias.asname or alias.name, f"{node.module}.{alias.name}"
                elif node.module in STARS:
                    module = importlib.import_module(node.module)
                    public = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
                    yield from ((name, f"{node.module}.{name}") for name in public)
                elif node.module != "builtins":
                    yield "*", f"{node.module}.*"


def _root(of: ast.expr | str) -> str:
    """The first name of dotted ones."""
    while isinstance(of, ast.Attribute):
        of = of.value
    return of.partition(".")[0] if isinstance(of, str) else of.id if isinstance(of, ast.Name) else ""


def _innermost(tree: ast.Module, names: set[str]) -> tuple[set[str], str]:
    """What tests are about that call only names of the prelude, or of Python, and a name of which that is unclear.

    ``assert isclose(mean([1, 2]), 1.5)`` is about ``mean``: of each assertion, the first call without another in it, not of a
    builtin if there are others, unless some assertion calls it with another in it. If a call outside of assertions, as in
    ``found = mean([1, 2])``, is not the only one of the prelude, either could be meant.
    """
    outer, first, seen = set(), [], set()
    for check in (node for node in ast.walk(tree) if isinstance(node, ast.Assert)):
        calls = {n: n.func.id for n in ast.walk(check) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        calls = {node: name for node, name in calls.items() if name in names and not name[0].isupper()}
        inner = [node for node in calls if not any(each in calls for each in ast.walk(node) if each is not node)]
        seen |= set(calls)
        outer |= {name for node, name in calls.items() if node not in inner}
        inner.sort(key=lambda node: (hasattr(builtins, calls[node]), node.lineno, node.col_offset))
        first += [calls[node] for node in inner[:1]]
    named = {n: n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    of_prelude = {n: s for n, s in named.items() if s in names and not s[0].isupper() and not hasattr(builtins, s)}
    outside = sorted(name for node, name in of_prelude.items() if node not in seen)
    if outside:
        return set(outside), outside[0] if len(set(of_prelude.values())) > 1 else ""
    return set(first) - outer, ""


def _foreign(tree: ast.Module, dotted: dict[str, str], looked_up: set[str]) -> str:
    """What tests use that needs the program's process, whatever they do with the program: a module or a builtin."""
    full = [*dotted.values()]
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            return "await"
        if isinstance(node, ast.Attribute) and (root := _root(node)) in dotted:
            full.append(dotted[root] + ast.unparse(node).removeprefix(root))
    full += looked_up & REACHING
    for name in full:
        root, _, rest = name.partition(".")
        in_part = root in IN_PART and (not rest or rest.partition(".")[0] in IN_PART[root])
        if not in_part and (root not in MODULES or any(f"{name}.".startswith(f"{each}.") for each in FOREIGN)):
            return name
    return ""


def _classes(before: ast.Module, looked_up: set[str]) -> str:
    """What tests use of the prelude's classes, of which both sides would have instances."""
    found = {node.name: node for node in before.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    classes = {name for name, node in found.items() if isinstance(node, ast.ClassDef)}
    for _ in found:
        classes |= {
            name
            for name, node in found.items()
            if any(_root(each) in classes for each in ast.walk(node) if isinstance(each, ast.Name))
        }
    return min(classes & looked_up, default="")


def _is_callable(dotted: str) -> bool:
    module, _, name = dotted.rpartition(".")
    return module in {*STARS, "builtins"} and callable(getattr(importlib.import_module(module), name, None))


class _Uses:
    """What tests do with names of the program, and with what they get from it.

    A name has kinds, wherever it is in the tests: ``program`` (of the program), ``instance`` (of one of its classes), ``part``
    (an attribute of these), ``result`` (of a function or method), ``own`` (a function or an object of the tests, which does not
    cross). A class is a name with a capital first letter and no underscore.
    """

    def __init__(self, tree: ast.Module, names: set[str], dotted: dict[str, str]) -> None:
        self.nodes = list(ast.walk(tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.functions = {node.name: node for node in self.nodes if isinstance(node, ast.FunctionDef)}
        self.classes = {node.name for node in self.nodes if isinstance(node, ast.ClassDef)}
        self.dotted = {name: f"builtins.{name}" for name in dir(builtins)} | dotted
        own = {name for name in self.dotted if _is_callable(self.dotted[name])} | {*self.functions, *self.classes}
        self.kinds = {name: {"own"} for name in own} | {name: {"program"} for name in names}
        before = -1
        while before != (before := sum(map(len, self.kinds.values()))):
            for name, value in (pair for node in self.nodes for pair in self.bound(node)):
                self.kinds.setdefault(name, set()).update(self.kind(value))

    def kind(self, node: ast.AST) -> set[str]:
        """What an expression gives."""
        if isinstance(node, ast.Name):
            return self.kinds.get(node.id, set())
        if isinstance(node, ast.Attribute):
            if self.kind(node.value) & REMOTE:
                return {"part"}
            root = _root(node)
            return {"own"} if _is_callable(self.dotted.get(root, "") + ast.unparse(node).removeprefix(root)) else set()
        if isinstance(node, ast.Call) and self.kind(node.func) & {*REMOTE, "result"}:
            return {"instance"} if self.is_class(node.func) else {"result"}
        if isinstance(node, ast.Lambda) or (isinstance(node, ast.Call) and _root(node.func) in self.classes):
            return {"own"}
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.IfExp):
            return set().union(*map(self.kind, ast.iter_child_nodes(node)))
        return set()

    def is_class(self, node: ast.AST) -> bool:
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return name[:1].isupper() and "_" not in name

    def bound(self, node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
        """The names that something is assigned or passed to, with what that is, or what it is a part of."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
            arguments = self.functions[node.func.id].args
            yield from zip((each.arg for each in (*arguments.posonlyargs, *arguments.args)), node.args, strict=False)
            yield from ((each.arg or "", each.value) for each in node.keywords)
        value = node.iter if isinstance(node, ast.For | ast.comprehension) else getattr(node, "value", None)
        if (
            isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.For | ast.comprehension)
            and value is not None
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            yield from ((each.id, value) for each in names if isinstance(each.ctx, ast.Store))

    def needed(self) -> str:
        """What the tests use that needs the program's process; empty if there is nothing."""
        return next((ast.unparse(node)[:60] for node in self.nodes if self.reaches(node)), "")

    def reaches(self, node: ast.AST) -> bool:
        """Whether a place of the tests needs an object of the program itself, or gives it one of the tests."""
        if not isinstance(node, ast.expr):
            return False
        kinds, parent = self.kind(node), self.parents[node]
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return bool(self.kind(node.value) & REMOTE)
        if isinstance(node, ast.Attribute) and "result" in self.kind(node.value) and node.attr not in PLAIN_HAS:
            return True
        if isinstance(parent, ast.ExceptHandler | ast.ClassDef | ast.FunctionDef):  # exceptions, bases, decorators
            return any(self.kind(each) & REMOTE for each in ast.walk(node))
        call = self.parents[parent] if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Call) and call.func is not node:
            if self.kind(call.func) & {*REMOTE, "result"}:
                return "own" in kinds
            if isinstance(call.func, ast.Name) and call.func.id in {*self.functions, *ASKING}:
                return False
            return "instance" in kinds or (bool(kinds & REMOTE) and self.is_class(node))
        if isinstance(parent, ast.Compare) and not isinstance(parent.ops[0], ast.In | ast.NotIn):
            return sum("instance" in self.kind(each) for each in ast.iter_child_nodes(parent)) > 1
        return "instance" in kinds and not isinstance(parent, HOLDING)
