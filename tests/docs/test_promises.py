"""Every promise of SECURITY.md, and of the page on failures, names tests that hold it, and the tests are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = {
    "SECURITY.md": "## What rlctl protects",
    "docs/howto/survive-failures.md": "## The tests that hold these promises",
}
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(page: str) -> list[str]:
    """The promises of a page."""
    _, _, text = (ROOT / page).read_text(encoding="utf-8").partition(f"{TABLES[page]}\n")
    lines = text.partition("\n## ")[0].splitlines()
    return [line for line in lines if line.startswith("|")][2:]


@pytest.mark.parametrize("page", TABLES)
def test_every_promise_names_a_test_that_there_is(page: str) -> None:
    promises = rows(page)
    assert len(promises) > 9
    for promise in promises:
        named = TEST.findall(promise)
        assert named, promise
        for file, name in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"
