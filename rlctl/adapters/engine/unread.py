"""Keys that a framework accepts and never reads, by kind of file and release.

``unread/FRAMEWORK.tsv`` has a line for each: the kind of file, the key as schemas write it, and its releases, separated by tabs.
``tests/upstream/unread_keys.py`` derives the files from the source of the releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rlctl.adapters.engine.rules import matches, split, version_of
from rlctl.adapters.engine.schema import releases_in
from rlctl.adapters.engine.table import Table, generic
from rlctl.documents import Document, KeyPath

FOLDER = Path(__file__).parents[1] / "unread"


@cache
def unread(framework: str, kind: str, release: str) -> frozenset[KeyPath]:
    """The keys, by generic path, that a release never reads of a kind of file."""
    file = FOLDER / f"{framework}.tsv"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = (line.split("\t") for line in lines)
    return frozenset(split(key) for of, key, releases in rows if of == kind and release in releases_in(releases))


def written_unread(framework: str, kind: str, release: str, table: Table, document: Document) -> Iterator[KeyPath]:
    """The keys of a document that a release never reads, with a value that is neither the default nor that of another key.

    Args:
        framework: its name.
        kind: of the file.
        release: of the framework, as ``0.9``.
        table: of the kind, with its schema.
        document: the file's values.
    """
    known = unread(framework, kind, release)
    patterns = [path for path in known if "*" in path]
    for path, value in document.leaves() if known else ():
        place = generic(path)
        is_unread = place in known or any(matches(pattern, place) for pattern in patterns)
        follows = isinstance(value, str) and "${" in value  # another key, as defaults do
        if (
            is_unread
            and not follows
            and value not in (None, table.schema.default(place, version_of(release), table.composition))
        ):
            yield path
