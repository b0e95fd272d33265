"""The page of what a run honours is printed from the table."""

from __future__ import annotations

from rlctl.planning.support import TABLE
from rlctl.planning.support_page import support


def test_every_row_of_the_table_is_on_the_page() -> None:
    page = support().replace("\\|", "|")
    for row in TABLE:
        prefix = f"{row.under}." if row.under else ""
        assert all(f"`{prefix}{name}`" in page for name in row.names.split())
        assert row.reason in page
