"""The keys that each release of a dialect has, as a list of facts in the ``known.txt`` of its package.

A line is a kind of file, the releases as minor numbers of ``0.x``, and a key. A part ``*`` stands for an index or a name of the
user's, a last ``**`` for all that users name themselves below.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from rlctl.adapters.rules import split
from rlctl.documents.paths import KeyPath


@cache
def known_keys(package: str, kind: str) -> Mapping[KeyPath, frozenset[str]]:
    """Every key of a kind of file, with the releases that have it."""
    text = (files(package) / "known.txt").read_text(encoding="utf-8")
    found: dict[KeyPath, frozenset[str]] = {}
    for line in text.splitlines():
        if line.startswith(f"{kind} "):
            _, releases, key = line.split(" ", 2)
            path = split(key)
            found[path] = found.get(path, frozenset()) | {f"0.{digit}" for digit in releases}
    return found
