"""Pages of which one is in sight, and which turn only when somebody turns them."""

from __future__ import annotations

from textual.widgets import TabbedContent, TabPane

SMALL = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def numbered(number: int, title: str) -> str:
    """A tab's title with the digit that opens it."""
    return f"{SMALL[number]}{title}"


class Pages(TabbedContent):
    """Tabs that do not follow the focus: word of it may come late, and would turn back to a page that was just left."""

    def _on_tab_pane_focused(self, event: TabPane.Focused) -> None:
        event.stop()
        event.prevent_default()
