"""Numbers that a user or a file gives: indexes, counts, arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DIGITS = 18
"""Every number of 18 digits fits 64 bits. Python refuses to read one of more than 4,300 digits."""


def natural(text: str) -> int | None:
    """The number that digits spell; None if it is something else, or larger than any index or count."""
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no switch."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def percentile(counts: Mapping[int, int], percent: float) -> int:
    """The smallest number that at least ``percent`` of all do not exceed, of how often each occurs; 0 if there are none."""
    total, reached = sum(counts.values()), 0
    for number, count in sorted(counts.items()):
        reached += count
        if reached >= percent / 100 * total:
            return number
    return 0
