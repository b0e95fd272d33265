"""Python files that a config names, read as text: nothing of them is imported or run."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import closest
from rlctl.common.filenames import expanded
from rlctl.config import Config
from rlctl.config.reward_returns import MAPPING, NOTHING, SEQUENCE, TEXT, Returned, returns_in
from rlctl.config.reward_signatures import Parameters, arguments_of, form_of, missing_arguments, takes
from rlctl.config.sections.algorithm import FunctionOperator
from rlctl.config.sections.data import FunctionDataOperator
from rlctl.config.sections.rewards import FunctionReward
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic

PACKAGE, FILE = "pkg://", "file://"
SERVED = ("reward_router_address", "reward_model_tokenizer")
"""What verl also passes if it serves a reward model."""


@dataclass(frozen=True, slots=True)
class _Code:
    """A Python file as a tree."""

    path: Path
    tree: ast.Module

    @property
    def is_open(self) -> bool:
        """Whether names may exist that no statement shows: ``from x import *``, or a module's ``__getattr__``."""
        stars = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(self.tree))
        return stars or "__getattr__" in self.names()

    def names(self) -> dict[str, ast.stmt]:
        """The names that the module's own statements bind, also under ``if`` and ``try``."""
        return dict(_bound(self.tree.body))


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield (alias.asname or alias.name.partition(".")[0]), node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                (name.id, node) for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
            )
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _bound(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from _bound(handler.body)


def rewards(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The functions of rewards are in their files, and take what they are called with."""
    for index, reward in enumerate(config.rewards):
        if not isinstance(reward, FunctionReward) or reward.path.startswith(PACKAGE):
            continue
        key: KeyPath = ("rewards", index, "path")
        code = _read(reward.path, key, "the reward")
        if not isinstance(code, _Code):
            yield from code
            continue
        yield from _imports(code, key)
        yield from _defined(code, reward.function, ("rewards", index, "function"), "function")
        node = code.names().get(reward.function)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            caller = surroundings.runner if arithmetic.trains(config) else ""
            yield from _signature(code, node, reward, index, caller)
            yield from _returned(code, node, reward, index)


def datasets(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A data-set class of the user's is in its file."""
    custom = config.data.custom
    if custom is None or custom.path.startswith(PACKAGE):
        return
    key: KeyPath = ("data", "custom", "path")
    code = _read(custom.path, key, "the data-set class")
    if not isinstance(code, _Code):
        yield from code
        return
    yield from _imports(code, key)
    yield from _defined(code, custom.class_name, ("data", "custom", "class_name"), "class")


def operators(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The functions of operators are in their files."""
    places: list[tuple[KeyPath, object]] = [
        *(
            (("algorithm", "experience_operators", at), each)
            for at, each in enumerate(config.algorithm.experience_operators)
        ),
        *((("data", "operators", at), each) for at, each in enumerate(config.data.operators)),
    ]
    for place, operator in places:
        if not isinstance(operator, FunctionOperator | FunctionDataOperator) or operator.path.startswith(PACKAGE):
            continue
        code = _read(operator.path, (*place, "path"), "the operator")
        if not isinstance(code, _Code):
            yield from code
            continue
        yield from _imports(code, (*place, "path"))
        yield from _defined(code, operator.function, (*place, "function"), "function")


def _read(path: str, key: KeyPath, what: str) -> _Code | list[Problem]:
    """A file as a tree, or why it is none; nothing for a file that does not exist, which another rule reports."""
    file = expanded(path.removeprefix(FILE))
    if not path or not file.is_file():
        return []
    try:
        return _Code(file, ast.parse(file.read_bytes(), str(file)))
    except SyntaxError as error:
        return [
            problem(
                "code-syntax",
                key,
                file=file,
                line=error.lineno or 1,
                python=f"{sys.version_info[0]}.{sys.version_info[1]}",
                reason=error.msg,
            )
        ]
    except (ValueError, OSError, RecursionError, MemoryError) as error:
        return [problem("code-syntax_unreadable", key, file=file, reason=error)]


def _imports(code: _Code, key: KeyPath) -> Iterator[Problem]:
    """Modules that importing the file needs: those of its top level, not those of functions or under ``try``."""
    wanted: dict[str, int] = {}
    for node in code.tree.body:
        if isinstance(node, ast.Import):
            wanted |= {alias.name.partition(".")[0]: node.lineno for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted.setdefault(node.module.partition(".")[0], node.lineno)
    for name, line in wanted.items():
        if not _is_installed(name, code.path.parent):
            yield problem("code-import", key, file=code.path, line=line, module=name)


def _is_installed(name: str, folder: Path) -> bool:
    """Whether a top-level module can be found, without importing it; modules next to the file count."""
    if name in sys.modules or (folder / f"{name}.py").exists() or (folder / name).is_dir():
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _defined(code: _Code, name: str, key: KeyPath, what: str) -> Iterator[Problem]:
    names = code.names()
    if name in names or code.is_open:
        return
    kinds = (ast.ClassDef,) if what == "class" else (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    known = [found for found, node in names.items() if isinstance(node, kinds)]
    yield problem(
        "code-name" if known else "code-name_empty",
        key,
        file=code.path,
        kind=what,
        name=name,
        known=", ".join(known),
        near=closest(name, known) or "none",
    )


def _signature(
    code: _Code,
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
    reward: FunctionReward,
    index: int,
    runner: str,
) -> Iterator[Problem]:
    given = _parameters(node)
    if given is None:
        return
    key: KeyPath = ("rewards", index, "function")
    known = "verl" if runner == "verl" else reward.signature  # verl has one way to call it, rlctl uses its parameters
    form = form_of(given) if known == "auto" else known
    where = f"{code.path}:{node.lineno}: {node.name}({given})"
    if form is None:
        yield problem("code-signature", key, where=where)
        return
    if missing := missing_arguments(form, given):
        called = ", ".join(arguments_of(form, given))
        yield problem("code-signature_missing", key, where=where, missing=", ".join(missing), called=called)
    if form != "trinity" and not given.anything:
        unknown = sorted(set(reward.args) - given.names)
        if unknown:
            yield problem("code-signature_args", ("rewards", index, "args"), where=where, unknown=", ".join(unknown))
    called_with = {*arguments_of(form, given), *reward.args, *SERVED}
    if form == "verl" and runner == "verl" and (lacking := sorted(given.required - called_with)):
        yield problem("code-signature_required", key, where=where, lacking=", ".join(lacking))


def _returned(code: _Code, node: ast.stmt, reward: FunctionReward, index: int) -> Iterator[Problem]:
    """Values that rlctl's runtime takes as the failure of a call: it reads a number, or a mapping with ``score``."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.decorator_list:
        return
    given = takes(node)
    form = form_of(given) if reward.signature == "auto" else reward.signature
    if form not in ("verl", "rlctl") or "solution_strs" in given.names:
        return
    wrong = next((value for value in returns_in(node).values if _fails(value)), None)
    if wrong is not None:
        key: KeyPath = ("rewards", index, "function")
        where = f"{code.path}:{wrong.line}"
        yield problem("code-returns", key, where=where, name=node.name, kind=wrong.kind, then=reward.on_error)


def _fails(value: Returned) -> bool:
    lacks_score = value.kind == MAPPING and value.keys is not None and "score" not in value.keys
    return value.kind in (TEXT, NOTHING, SEQUENCE) or lacks_score


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Parameters | None:
    """The parameters of a function; None where a decorator may change them, or a class inherits its ``__call__``."""
    if node.decorator_list:
        return None
    if isinstance(node, ast.ClassDef):
        call = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__call__"), None)
        return _of_class(call) if call is not None else None
    return takes(node)


def _of_class(call: ast.FunctionDef) -> Parameters:
    """What objects of a class can be called with."""
    found = takes(call)
    return Parameters(found.names - {"self"}, found.anything, is_class=True)


RULES = (rewards, datasets, operators)
