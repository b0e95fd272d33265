"""The schemas that rlctl has are those of what the frameworks published."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.adapters.engine.schema import FOLDER
from rlctl.adapters.engine.unread import FOLDER as UNREAD

from . import unread_keys
from .frameworks import CHECKOUT
from .make_schemas import texts

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("framework", ["verl", "trinity", "roll"])
def test_the_schemas_are_made_again_as_they_are(framework: str, tmp_path: Path) -> None:
    """verl's packages are downloaded and composed by Hydra; the others are asked in environments of their own."""
    files = {file.stem: file.read_text(encoding="utf-8") for file in (FOLDER / framework).glob("*.tsv")}
    made = texts(framework, tmp_path)
    assert sorted(made) == sorted(files)
    for kind, text in made.items():
        assert text.splitlines() == files[kind].splitlines(), kind


@pytest.mark.parametrize("framework", ["verl", "trinity", "roll"])
def test_the_keys_that_are_never_read_are_derived_again_as_they_are(framework: str, tmp_path: Path) -> None:
    """From the packages of all releases, and the checkout of ROLL."""
    if framework == "roll" and not CHECKOUT:
        pytest.skip("no checkout of ROLL: make test-upstream ROLL=/path/to/checkout")
    made = unread_keys.text(framework, tmp_path)
    assert made.splitlines() == (UNREAD / f"{framework}.tsv").read_text(encoding="utf-8").splitlines()
