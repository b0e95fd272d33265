"""Class paths of a config, such as ``my.module.Class``, looked up in the Python files beside it; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from rlctl.common.messages.reasons import said


def class_fault(path: str, own: Mapping[str, Sequence[str]], root: str, separator: str = ".") -> str:
    """Why a framework cannot import a class; empty if it can, or if that is not known here.

    Args:
        path: module and class.
        own: classes of the framework's modules that a config may name, by module.
        root: the framework's package.
        separator: between module and class.
    """
    module, found, name = path.rpartition(separator)
    if not found or not module or not name:
        return said("{path!r} is not a class path; expected MODULE{separator}CLASS", path=path, separator=separator)
    if module in own:
        return "" if name in own[module] else said("{module} has no class {name}", module=module, name=name)
    if module.partition(".")[0] == root:
        return _of_framework(module, own)
    return _of_user(module, name)


def _of_framework(module: str, own: Mapping[str, Sequence[str]]) -> str:
    """A module that is none of those beside it; of packages without known modules nothing is said."""
    package = module.rpartition(".")[0]
    beside = [known for known in own if known.rpartition(".")[0] == package]
    return said("there is no module {module}", module=module) if beside else ""


def _of_user(module: str, name: str) -> str:
    """A module below the current folder, which Python finds first; another may be installed."""
    folder = Path(*module.split("."))
    files = [folder.with_suffix(".py"), folder / "__init__.py"]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        package = folder.parent
        is_package = package != Path() and (package / "__init__.py").is_file()
        return said("{folder} has no module {name}", folder=str(package), name=folder.name) if is_package else ""
    names = names_of(file, file.stat().st_mtime_ns)
    return "" if names is None or name in names else said("{file} defines no {name}", file=str(file), name=name)


@lru_cache(maxsize=64)
def names_of(file: Path, changed: int) -> frozenset[str] | None:
    """The names at the top of a Python file; None if it cannot be read, or takes all names of another.

    Args:
        file: the file.
        changed: when it was last changed, in nanoseconds, so that a changed file is read again.
    """
    try:
        names = frozenset(_names(ast.parse(file.read_bytes()).body))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return None if names & {"*", "__getattr__"} else names


def _names(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((each.asname or each.name).partition(".")[0] for each in node.names)
        else:
            yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
            yield from _inside(node)


def _inside(node: ast.stmt) -> Iterator[str]:
    """The names that a block such as ``if`` or ``try`` defines."""
    for part in ("body", "orelse", "finalbody", "handlers"):
        for inner in getattr(node, part, ()):
            yield from _names(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])
