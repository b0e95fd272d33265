"""The keys that each release of verl has, as a list of facts in ``known.txt``."""

from __future__ import annotations

from rlctl.adapters.engine import known


def known_keys(kind: str) -> known.Known:
    """Every key of a kind of file, with the releases that have it."""
    return known.known_keys("rlctl.adapters.verl", kind)
