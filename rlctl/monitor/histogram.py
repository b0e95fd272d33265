"""How values are spread: counts by value where there are few different ones, else by equal parts of their range."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable


def histogram(values: Iterable[float], most: int = 8) -> list[tuple[float, float, int]]:
    """Lowest value, highest value and count of each part, in order; values that are not finite are left out.

    Args:
        values: what is counted.
        most: parts, at most; as many different values are parts of their own.
    """
    found = [value for value in values if math.isfinite(value)]
    counts = Counter(found)
    if len(counts) <= most:
        return [(value, value, counts[value]) for value in sorted(counts)]
    low, high = min(found), max(found)
    width = (high - low) / most
    parts = Counter(min(int((value - low) / width), most - 1) for value in found)
    return [(low + part * width, low + (part + 1) * width, parts[part]) for part in range(most)]
