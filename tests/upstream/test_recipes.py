"""Published runs and their numbers are made again as they are: ``make test-upstream RECIPES=/path/to/checkouts``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .make_recipes import NUMBERS, OUTPUT, as_json, make

CHECKOUTS = os.environ.get("RECIPES", "")

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(not CHECKOUTS, reason="no checkouts of the sources: make test-upstream RECIPES=/path"),
]


def test_the_runs_are_made_again_as_they_are() -> None:
    texts, table = make(Path(CHECKOUTS))
    assert {file.stem for file in OUTPUT.glob("*.yaml")} == texts.keys()
    assert {name: (OUTPUT / f"{name}.yaml").read_text(encoding="utf-8") for name in texts} == texts
    assert NUMBERS.read_text(encoding="utf-8") == as_json(table)
