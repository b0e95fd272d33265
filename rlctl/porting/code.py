"""Python files of a user, read as text: which local files they import, which packages, and where they hold a secret.

Nothing is imported or run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rlctl.common.errors import Location, RunError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.secrets import redacted
from rlctl.config.reward_signatures import Parameters, takes

FRAMEWORKS = ("verl", "trinity", "roll", "ray", "torch")
"""Packages that are never copied, although a run that starts in their checkout finds them there."""
RULES_OF_VERL = "verl.utils.reward_score."
"""But these modules of verl are, which need nothing else of it: a target without verl finds the copies."""


@record
class Code:
    """A file and the local files that it imports."""

    files: tuple[tuple[Path, Path], ...]
    """Each file with its place relative to the folder of copies; the first is the file itself."""
    packages: tuple[str, ...]
    """Top names of modules that are imported and are neither local nor of Python's library."""
    secrets: tuple[Location, ...]
    """Lines that hold a key, a token or a password."""
    standard: tuple[str, ...] = ()
    """Top names of modules of Python's library that are imported."""


def code_of(file: Path, roots: Sequence[Path]) -> Code:
    """A file with all that it imports from local folders.

    Args:
        file: the Python file.
        roots: folders that are on the path when it runs; its own folder is the first.

    Raises:
        RunError: a file is not there, or is no Python.
    """
    roots = list(dict.fromkeys([file.parent.resolve(), *(root.resolve() for root in roots)]))
    found: dict[Path, Path] = {}
    packages: dict[str, None] = {}
    standard: dict[str, None] = {}
    secrets: list[Location] = []
    waiting = [(file.resolve(), Path(file.name))]
    while waiting:
        path, place = waiting.pop(0)
        if path in found:
            continue
        found[path] = place
        text = _text(path)
        changed = redacted(text).splitlines()
        secrets += [
            Location(str(path), number)
            for number, (line, safe) in enumerate(zip(text.splitlines(), changed, strict=False), start=1)
            if line != safe
        ]
        for module, level in _imports(path, text):
            local = list(_local(module, level, path, roots))
            waiting += local
            top = module.partition(".")[0]
            if not local and not level:
                (standard if top in sys.stdlib_module_names else packages)[top] = None
    return Code(tuple(found.items()), tuple(packages), tuple(secrets), tuple(standard))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(
            said("{file} cannot be read: {reason}", file=path, reason=str(error)), hint="check the path"
        ) from error


def parsed(path: Path, text: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        RunError: it is no Python of this version.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise RunError(
            said("{file} is not Python: {reason}", file=path, reason=str(error)), hint="correct the file"
        ) from error


def _imports(path: Path, text: str) -> Iterator[tuple[str, int]]:
    """The modules that a file imports anywhere, each with the dots before its name."""
    for node in ast.walk(parsed(path, text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if f"{node.module}." != RULES_OF_VERL:  # its names decide what it needs
                yield node.module or "", node.level
            yield from (
                (f"{node.module}.{alias.name}" if node.module else alias.name, node.level) for alias in node.names
            )


def _local(module: str, level: int, path: Path, roots: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """The local files of a module, packages on the way to it included, with their places among the copies."""
    if level:
        folders = [path.parents[level - 1]]
    elif module.startswith(RULES_OF_VERL):
        places = [Path(*module.split(".")).with_suffix(".py")]
        yield from ((root / place, place) for root in roots for place in places if (root / place).is_file())
        return
    else:
        folders = [] if module.partition(".")[0] in FRAMEWORKS else list(roots)
    parts = [part for part in module.split(".") if part]
    for folder in folders:
        root = next((root for root in roots if folder.is_relative_to(root)), folder)
        for depth in range(1, len(parts) + 1):
            base = folder.joinpath(*parts[:depth])
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if candidate.is_file():
                    yield candidate, candidate.relative_to(root)


def registered(folder: Path, name: str) -> Path | None:
    """The file of a plug-in folder that registers a reward function of Trinity-RFT's by a name; None if none does."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(parsed(path, _text(path))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            first, owner = node.args[0], node.func.value
            is_registry = isinstance(owner, ast.Name) and owner.id == "REWARD_FUNCTIONS"
            if is_registry and isinstance(first, ast.Constant) and first.value == name:
                return path
    return None


def class_at(root: Path, name: str) -> Path | None:
    """The file below a folder that has a class by its dotted name; None if there is none."""
    module, _, class_name = name.rpartition(".")
    path = root.joinpath(*module.split(".")).with_suffix(".py") if module else root
    if not path.is_file():
        return None
    tree = parsed(path, _text(path))
    return path if any(isinstance(node, ast.ClassDef) and node.name == class_name for node in tree.body) else None


def called(file: Path, name: str) -> Parameters | None:
    """What a function of a file takes, or what objects of a class take; None if the file does not say."""
    for node in parsed(file, _text(file)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return takes(node)
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            call = next((each for each in methods if each.name == "__call__"), None)
            found = takes(call) if call else Parameters(frozenset(), anything=True)
            return replace(found, names=found.names - {"self"}, is_class=True)
    return None


def imported_from(code: Code, package: str) -> set[str]:
    """What files import from a package, as dotted names; a module that is imported as a whole by its own name."""
    found = set()
    for path, _ in code.files:
        for node in ast.walk(parsed(path, _text(path))):
            if isinstance(node, ast.ImportFrom) and not node.level and _inside(node.module or "", package):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names if _inside(alias.name, package)}
    return found


def _inside(module: str, package: str) -> bool:
    return module.partition(".")[0] == package


def strings_of(file: Path) -> set[str]:
    """The text constants of a file."""
    tree = parsed(file, _text(file))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def merged(codes: Sequence[Code]) -> Code | str:
    """The code of several files as one; or the name that two different files would share."""
    files: dict[Path, Path] = {}
    for code in codes:
        for path, place in code.files:
            other = next((known for known, taken in files.items() if taken == place and known != path), None)
            if other is not None:
                return str(place)
            files.setdefault(path, place)
    packages = dict.fromkeys(name for code in codes for name in code.packages)
    secrets = dict.fromkeys(place for code in codes for place in code.secrets)
    standard = dict.fromkeys(name for code in codes for name in code.standard)
    return Code(tuple(files.items()), tuple(packages), tuple(secrets), tuple(standard))
