"""The committed reference page is the one that the schema makes, and it holds every key."""

from __future__ import annotations

from pathlib import Path

from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.config.reference import reference_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"


def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text() == reference_page(), "run: python -m rlctl.config.reference > docs/reference/config.md"


def test_every_key_is_on_it_itself_or_by_the_section_it_repeats() -> None:
    page = reference_page()
    repeated = [line.split("`")[1] for line in page.splitlines() if "Its keys are those of" in line]
    for key in walk(Config):
        above = any(
            key.pattern.startswith((f"{prefix}.", f"{prefix}<", f"{prefix}[", f"{prefix}{{")) for prefix in repeated
        )
        assert f"`{key.pattern}`" in page or above, key.pattern
