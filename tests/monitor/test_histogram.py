"""Every value is counted once, in the part it belongs to."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rlctl.monitor.histogram import histogram


def test_few_values_are_counted_as_they_are() -> None:
    assert histogram([1.0, 0.0, 1.0, math.nan]) == [(0.0, 0.0, 1), (1.0, 1.0, 2)]
    assert histogram([]) == []


def test_many_values_are_counted_in_equal_parts() -> None:
    parts = histogram([float(value) for value in range(101)], most=4)
    assert [(low, high) for low, high, _ in parts] == [(0, 25), (25, 50), (50, 75), (75, 100)]
    assert [count for _, _, count in parts] == [25, 25, 25, 26]


@given(st.lists(st.floats(-1e6, 1e6), max_size=60))
def test_none_is_lost(values: list[float]) -> None:
    assert sum(count for _, _, count in histogram(values)) == len(values)
