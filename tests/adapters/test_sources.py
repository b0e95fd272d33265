"""What a row says that no schema holds stands beside the place in the framework's source where it was read."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import rlctl.adapters

FOLDER = Path(rlctl.adapters.__file__).parent
FILES = sorted(file for name in ("verl", "trinity", "roll") for file in (FOLDER / name).glob("*.py"))
PLACE = re.compile(r"\b(?:0\.\d+(?:\.\d+)?(?:\.post1)?|2026\.\d+)\b.*[\w/]+\.(?:py|yaml)\b", re.DOTALL)
"""A release and a file of the framework's source."""
ROWS = {"DialectKey", "Key", "Tree", "ReadOnly", "in_releases", "dead", "misleading", "carried", "unsupported"}
ROWS |= {"Nearest", "Type", "ChosenOrNearest"}
"""What states releases without a field for its source; requirements have one."""
LONG = 30
"""Lines of a list, beyond which a comment above it is not one on each of its rows."""


@cache
def _comments(file: Path) -> Mapping[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _beside(file: Path, first: int, last: int) -> str:
    """The comments on some lines, and those right above them."""
    comments, above = _comments(file), first
    while above - 1 in comments:
        above -= 1
    return " ".join(text for line, text in comments.items() if above <= line <= last)


def _calls(file: Path) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
    """Each call that makes a row, with the nodes around it that are short enough to share a comment."""

    def walk(node: ast.AST, around: list[ast.AST]) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ROWS:
            yield node, around
        inner = [*around, node] if hasattr(node, "lineno") and node.end_lineno - node.lineno < LONG else around
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inner)

    return walk(ast.parse(file.read_text(encoding="utf-8")), [])


def _has_place(file: Path, call: ast.Call, around: list[ast.AST]) -> bool:
    own = _beside(file, call.lineno, call.end_lineno or call.lineno)
    return bool(PLACE.search(own)) or any(PLACE.search(_beside(file, node.lineno, node.lineno)) for node in around)


def _states_releases(call: ast.Call) -> bool:
    named = [item for item in call.keywords if item.arg in ("since", "until")]
    third = isinstance(call.func, ast.Name) and call.func.id == "DialectKey" and len(call.args) > 2
    return third or any(isinstance(part, ast.Constant) for item in named for part in ast.walk(item.value))


def _states_default(call: ast.Call) -> bool:
    """Whether it states a default other than that silence means nothing."""
    at = {"Key": 2, "DialectKey": 1}.get(call.func.id if isinstance(call.func, ast.Name) else "")
    if at is None:
        return any(keyword.arg == "default" for keyword in call.keywords)
    stated = call.args[at : at + 1] or [keyword.value for keyword in call.keywords if keyword.arg == "default"]
    return any(not (isinstance(value, ast.Name) and value.id in ("ABSENT", "FROM_SCHEMA")) for value in stated)


def test_releases_that_a_row_states_stand_beside_their_place() -> None:
    lacking = [
        f"{file.relative_to(FOLDER)}:{call.lineno}"
        for file in FILES
        for call, around in _calls(file)
        if _states_releases(call) and not _has_place(file, call, around)
    ]
    assert lacking == []


def test_defaults_that_a_row_states_stand_beside_their_place() -> None:
    lacking = [
        f"{file.relative_to(FOLDER)}:{call.lineno}"
        for file in FILES
        for call, around in _calls(file)
        if _states_default(call) and not _has_place(file, call, around)
    ]
    assert lacking == []
