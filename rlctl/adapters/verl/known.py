"""The keys that each release of verl has, as a list of facts in ``known.txt``: which kinds of file, which releases, which key."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from rlctl.adapters.rules import split
from rlctl.documents.paths import KeyPath


@cache
def _lines() -> list[tuple[str, frozenset[str], KeyPath]]:
    text = (files("rlctl.adapters.verl") / "known.txt").read_text(encoding="utf-8")
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            kind, releases, key = line.split(" ", 2)
            found.append((kind, frozenset(f"0.{digit}" for digit in releases), split(key)))
    return found


@cache
def known_keys(kind: str) -> dict[KeyPath, frozenset[str]]:
    """Every key of a kind of file, with the releases that have it."""
    found: dict[KeyPath, frozenset[str]] = {}
    for name, releases, path in _lines():
        if name == kind:
            found[path] = found.get(path, frozenset()) | releases
    return found
