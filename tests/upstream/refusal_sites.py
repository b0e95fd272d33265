"""Sites of a framework's source that refuse: every ``assert``, ``raise`` and exit, found in the syntax tree; nothing is imported."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlctl.common.records import record

from . import frameworks
from .make_schemas import ROLL, TRINITY
from .verl_schemas import RELEASES

EXITS = ("sys.exit", "exit", "quit", "os._exit")
"""Calls that end a process as an exception does."""


@record
class Source:
    """What is listed of a framework."""

    title: str
    release: str
    package: str
    """The package on the index, or the one that is installed; empty for a checkout."""
    paths: tuple[str, ...]
    """Folders and files below the folder that holds the packages."""
    environment: str = ""
    """The environment of ``make test-upstream`` that has it."""


SOURCES: Mapping[str, Source] = {
    "verl": Source("verl", RELEASES["0.9"][-1], "verl", ("verl",), "verl-0.9.1"),
    "trinity": Source("Trinity-RFT", TRINITY["0.6"][-1], "trinity-rft", ("trinity",), "trinity-0.6.0"),
    "roll": Source("ROLL", ROLL["2026.8"][-1], "", ("roll", "mcore_adapter/src")),
    "vllm": Source("vLLM", "0.32.0", "vllm", ("vllm/config", "vllm/engine/arg_utils.py", "vllm/sampling_params.py")),
    "megatron": Source(
        "Megatron-core",
        "0.16.1",
        "megatron",
        (
            "megatron/core/transformer/transformer_config.py",
            "megatron/core/model_parallel_config.py",
            "megatron/core/parallel_state.py",
            "megatron/core/optimizer/optimizer_config.py",
            "megatron/core/distributed/distributed_data_parallel_config.py",
        ),
    ),
}


def folder(framework: str, cache: Path) -> Path:
    """The folder that holds a framework's packages: installed, a checkout, or downloaded once into ``cache``.

    Raises:
        SystemExit: nothing holds ROLL.
    """
    source = SOURCES[framework]
    if framework == "roll":
        if not frameworks.CHECKOUT:
            raise SystemExit(f"name a checkout of ROLL at {frameworks.ROLL_COMMIT}: --source /path/to/ROLL")
        return Path(frameworks.CHECKOUT)
    if not source.environment:
        spec = importlib.util.find_spec(source.package)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        return Path(next(iter(spec.submodule_search_locations))).parent
    installed = sorted(
        (frameworks.ENVIRONMENTS / source.environment / "lib").glob(f"*/site-packages/{source.paths[0]}")
    )
    return installed[0].parent if installed else _downloaded(source, cache / f"{source.package}-{source.release}")


def _downloaded(source: Source, place: Path) -> Path:
    if not (place / source.paths[0]).is_dir():
        command = ["download", "--quiet", "--no-deps", "--disable-pip-version-check", "-d", str(place)]
        subprocess.run([sys.executable, "-m", "pip", *command, f"{source.package}=={source.release}"], check=True)
        for wheel in place.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(place)
    return place


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """A place that refuses, named so that it is found again when lines move."""

    file: str
    function: str
    """With the names of what it is defined in, as ``Config.validate``; empty at the top of a module."""
    kind: str
    """``assert``, the class of an exception, ``re-raise``, or an exit such as ``sys.exit``."""
    digest: str
    """Eight hexadecimal digits of the conditions under which it is reached in its function."""


def sites(framework: str, root: Path) -> dict[Site, list[int]]:
    """The lines of every site of a framework's source.

    Args:
        framework: one of ``SOURCES``.
        root: the folder that holds its packages.
    """
    found: dict[Site, list[int]] = {}
    for path in SOURCES[framework].paths:
        files = [root / path] if path.endswith(".py") else sorted((root / path).rglob("*.py"))
        for file in files:
            name = file.relative_to(root).as_posix()
            for site, line in sites_of(name, ast.parse(file.read_text(encoding="utf-8"))):
                found.setdefault(site, []).append(line)
    return {site: sorted(lines) for site, lines in sorted(found.items())}


def sites_of(
    file: str, tree: ast.AST, function: str = "", conditions: tuple[str, ...] = ()
) -> Iterator[tuple[Site, int]]:
    """The sites below a node of a file, with their lines.

    Args:
        file: the name that the sites get.
        tree: the node.
        function: the function that the node is in.
        conditions: under which the node is reached in this function.
    """
    if kind := _kind(tree):
        reached = (*conditions, ast.unparse(tree.test)) if isinstance(tree, ast.Assert) else conditions
        digest = hashlib.sha256("\n".join(reached).encode()).hexdigest()[:8]
        yield Site(file, function, kind, digest), getattr(tree, "lineno", 0)
    if isinstance(tree, ast.Raise):
        return
    for condition, child in _children(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from sites_of(file, child, f"{function}.{child.name}" if function else child.name)
        else:
            yield from sites_of(file, child, function, (*conditions, condition) if condition else conditions)


def _kind(node: ast.AST) -> str:
    """``assert``, the class of what is raised, or the exit that is called; empty for a node that does not refuse."""
    if isinstance(node, ast.Assert):
        return "assert"
    if isinstance(node, ast.Raise):
        return _raised(node)
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return name if name in EXITS else ""


def _raised(node: ast.Raise) -> str:
    """The class of what is raised; ``re-raise`` for an exception that was caught or kept."""
    if node.exc is None:
        return "re-raise"
    name = ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)
    return name if name.rpartition(".")[2][0].isupper() else "re-raise"


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The nodes below a node, each with the condition under which it is reached."""
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        yield "", node.test
        yield from ((test, child) for child in node.body)
        yield from ((f"not ({test})", child) for child in node.orelse)
    elif isinstance(node, ast.ExceptHandler):
        caught = f"except {ast.unparse(node.type)}" if node.type else "except"
        yield from ((caught, child) for child in node.body)
    elif isinstance(node, ast.match_case):
        yield from ((f"case {ast.unparse(node.pattern)}", child) for child in node.body)
    else:
        yield from (("", child) for child in ast.iter_child_nodes(node))


def context(root: Path, site: Site, line: int, lines: int) -> str:
    """The text around a line of the framework, to be read and not kept."""
    text = (root / site.file).read_text(encoding="utf-8").splitlines()
    first = max(0, line - 1 - lines)
    shown = (f"{number:6} {text[number - 1]}" for number in range(first + 1, min(len(text), line + lines) + 1))
    return "\n".join(shown)
