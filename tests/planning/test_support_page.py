"""The page of what a run honours is printed from the table, and current."""

from __future__ import annotations

from pathlib import Path

from rlctl.planning.support import TABLE
from rlctl.planning.support_page import support_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "support.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == support_page(), "run make docs"


def test_every_row_of_the_table_is_on_the_page() -> None:
    page = support_page().replace("\\|", "|")
    for row in TABLE:
        prefix = f"{row.under}." if row.under else ""
        assert all(f"`{prefix}{name}`" in page for name in row.names.split())
        assert row.reason in page
