"""The committed reference pages are those that the schema makes, and they hold every key."""

from __future__ import annotations

from pathlib import Path

from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.config.reference import reference_pages, write_pages

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def test_the_committed_page_is_current() -> None:
    committed = [FOLDER / "config.md", *(FOLDER / "config").glob("*.md")]
    texts = {str(page.relative_to(FOLDER)): page.read_text(encoding="utf-8") for page in committed}
    assert texts == reference_pages(), "run: python -m rlctl.config.reference docs/reference"


def test_a_page_of_a_section_that_is_gone_is_removed(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "gone.md").write_text("# gone")
    write_pages(tmp_path)
    assert {f"config/{page.name}" for page in (tmp_path / "config").iterdir()} | {"config.md"} == set(reference_pages())


def test_every_key_is_on_it_itself_or_by_the_section_it_repeats() -> None:
    page = "\n".join(reference_pages().values())
    repeated = [line.split("`")[1] for line in page.splitlines() if "Its keys are those of" in line]
    for key in walk(Config):
        above = any(
            key.pattern.startswith((f"{prefix}.", f"{prefix}<", f"{prefix}[", f"{prefix}{{")) for prefix in repeated
        )
        section = key.pattern if f"({'config/' + key.pattern}.md)" in page else ""
        assert f"`{key.pattern}`" in page or above or section, key.pattern
