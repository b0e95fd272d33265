"""Two texts compared word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

MOST = 4000
"""Words of each text that are compared; the rest is left out."""
_WORD = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")


class Kind(StrEnum):
    """What a difference of two texts does with some words."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Words:
    """Words side by side that have one fate."""

    kind: Kind
    text: str


def difference(before: str, after: str) -> Iterator[Words]:
    """The difference of two texts by words: unchanged, removed and added ones, in the order of the text."""
    old, new = _WORD.findall(before)[:MOST], _WORD.findall(after)[:MOST]
    for told, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
        if told == "equal":
            yield Words(Kind.SAME, "".join(old[a:b]))
            continue
        if a < b:
            yield Words(Kind.REMOVED, "".join(old[a:b]))
        if c < d:
            yield Words(Kind.ADDED, "".join(new[c:d]))


def is_cut(text: str) -> bool:
    """Whether only the beginning of a text is compared."""
    return len(_WORD.findall(text)) > MOST
