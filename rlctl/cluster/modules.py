"""Which files a Python file needs of those next to it: what it imports, and what that imports. Nothing is executed.

Only files inside the folder count. A link that leads out of it is refused: it may lead to any file of the machine.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from rlctl.common.errors import RunError
from rlctl.common.filenames import is_file, is_folder
from rlctl.common.messages.reasons import said

LARGEST = 4 << 20
"""Bytes of a Python file that is looked into."""
IMPORTERS = frozenset({"import_module", "__import__", "find_spec"})
"""Functions that import what a text names."""


def needed(source: Path) -> Iterator[Path]:
    """A file, and of a Python file also the modules next to it that it needs; of a folder, its Python files.

    Raises:
        RunError: one is a link out of the folder.
        OSError: one cannot be read.
    """
    if source.is_dir():
        yield from _below(source, source)
    elif source.is_file():
        folder = source.parent
        found, open_ = dict[Path, None](), [source]
        while open_:
            file = inside(open_.pop(), folder)
            if file not in found:
                found[file] = None
                open_ += [each for name in imported(file) for each in _beside(folder, name)]
        yield source
        yield from sorted(set(found) - {source})


def inside(file: Path, folder: Path) -> Path:
    """A file that is in a folder.

    Raises:
        RunError: it, or a folder on the way, is a link that leads out.
    """
    target = file.resolve()
    if not target.is_relative_to(folder.resolve()):
        raise RunError(
            said("{file} is a link to {target}, which is outside of {folder}", file=file, target=target, folder=folder),
            hint="put the file itself there, or name a file that imports nothing else",
        )
    return file


def imported(file: Path) -> set[str]:
    """The top-level names of the modules that a Python file imports, wherever in it; none of another file."""
    if file.suffix != ".py" or file.stat().st_size > LARGEST:
        return set()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # it fails where it is imported, as it would here
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update([node.module] if node.module else [alias.name for alias in node.names])
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if called in IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
                names.add(first.value)
    return {name.lstrip(".").partition(".")[0] for name in names} - {"", "rlctl"}


def _beside(folder: Path, name: str) -> Iterator[Path]:
    """The file of a module next to a file, or all Python files of a package."""
    if is_file(folder / f"{name}.py"):
        yield folder / f"{name}.py"
    elif is_folder(folder / name):
        yield from _below(folder / name, folder)


def _below(package: Path, folder: Path) -> Iterator[Path]:
    """The Python files of a package, none of whose folders is a link out of a folder."""
    for path in sorted(package.rglob("*")):
        if path.is_dir():
            inside(path, folder)
        elif path.suffix == ".py" and path.is_file():
            yield inside(path, folder)
