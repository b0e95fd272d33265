"""Files as people have them are edited in place: a few values change, and a few lines with them."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from rlctl.common.errors import RlctlError
from rlctl.config import Loaded, put
from rlctl.editing.saving import edited_text
from rlctl.translation.sources import Script, gather_text
from rlctl.translation.translate import read_input

ROOT = Path(__file__).parents[2].parent / "shared" / "corpus"
FILES = sorted(path for path in ROOT.rglob("*.yaml") if path.stat().st_size < 20_000)[::20]
EDITS = {("train", "optimizer", "lr"): 3.25e-6, ("run", "seed"): 77}


def read(text: str, name: str) -> tuple[Loaded | None, str]:
    loaded, report = read_input(gather_text(text, name, Script(environment={})))
    return loaded, report.dialect


@pytest.mark.skipif(not FILES, reason="the corpus is not here")
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_of_the_corpus_is_edited_in_place(path: Path) -> None:
    text = path.read_text()
    try:
        before, dialect = read(text, str(path))
    except RlctlError as error:
        pytest.skip(error.message)
    if before is None:
        pytest.skip("holds no whole config")
    after = before
    for key, value in EDITS.items():
        after = put(after, key, value)
    found = edited_text(text, str(path), dialect, before, after)
    edited = None if found is None else found.text
    assert edited is not None
    lines = [line for line in difflib.ndiff(text.splitlines(), edited.splitlines()) if line[:2] in ("+ ", "- ")]
    assert len(lines) <= 12, lines
