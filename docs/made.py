"""Adds to some pages of the site what is printed from the code: a page in the repository holds the head only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlctl.checks.messages_page import messages
from rlctl.cli.gallery_page import gallery
from rlctl.cli.reference import commands
from rlctl.planning.support_page import support

MADE: Mapping[str, Callable[[], str]] = {
    "reference/cli.md": commands,
    "reference/messages.md": messages,
    "reference/support.md": support,
    "gallery.md": gallery,
    "zh/gallery.md": partial(gallery, "zh"),
}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """MkDocs calls this with the text of each page."""
    made = MADE.get(page.file.src_uri)
    return f"{markdown}\n{made()}" if made else markdown
