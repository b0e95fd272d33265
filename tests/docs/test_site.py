"""The pages are a site without a warning: each is in the navigation, and its links and anchors lead somewhere. README's picture is of this rlctl."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import get_files
from mkdocs.structure.nav import get_navigation
from mkdocs.structure.pages import Page

from tests.docs import pictures

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation(caplog: pytest.LogCaptureFixture) -> None:
    """``make docs`` builds the site strictly; what takes it seconds, rendering, is left to it: test_pages.py reads the links."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    files = get_files(config)
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        navigation = get_navigation(files, config)
    shown = {page.file.src_uri for page in navigation.pages}
    assert shown == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cli", "## `rlctl convert`"),
        ("messages", "### `mistyped-key`"),
        ("support", "| `train.packing` | supported |"),
    ],
)
def test_the_site_adds_to_a_page_what_is_printed_from_the_code(name: str, line: str) -> None:
    """The repository has the head of these pages only."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    files = get_files(config)
    file = files.get_file_from_path(f"reference/{name}.md")
    assert file is not None
    head = file.content_string
    page = config.plugins.on_page_markdown(head, page=Page(None, file, config), config=config, files=files)
    assert page.startswith(head)
    assert f"\n{line}\n" in page
    assert len(head.splitlines()) < 20, f"git checkout docs/reference/{name}.md: docs/made.py adds the rest"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_stay_on_the_site(page: Path) -> None:
    """A file of the repository outside docs is linked by its address, as the site does not have it."""
    for target in re.findall(r"\]\((?!https?://)([^)\s#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).resolve().is_relative_to(ROOT / "docs"), target


def test_the_picture_in_the_readme_shows_what_the_command_prints() -> None:
    """Its text, not its colours: ``make docs`` draws it again."""
    assert _words(pictures.PICTURE.read_text(encoding="utf-8")) == _words(pictures.drawn(pictures.printed()))


def _words(picture: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", picture.partition("</style>")[2]).split())
