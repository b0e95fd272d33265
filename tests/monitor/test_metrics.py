"""Columns of metrics hold what was told, and a thinned or smoothed one shows what the whole one would."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlctl.monitor.metrics import Series, StepTable, names_matching, operated

rows = st.lists(st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.floats(-1e6, 1e6))), max_size=30)


@given(rows)
def test_a_column_is_what_the_steps_said(told: list[dict[str, float | None]]) -> None:
    table = StepTable()
    for step, metrics in enumerate(told, 1):
        table.add(step, metrics)
    for name in "abc":
        found = table.series(name)
        expected = [(step, row[name]) for step, row in enumerate(told, 1) if row.get(name) is not None]
        assert list(zip(found.steps, found.values, strict=True)) == expected
    assert table.last("a") == (told[-1].get("a") if told else None)


def test_a_step_told_again_replaces_itself_and_what_came_after() -> None:
    table = StepTable()
    for step in range(1, 6):
        table.add(step, {"x": float(step)})
    table.add(3, {"x": 30.0, "y": 1.0})
    table.add(4, {"x": 40.0, "y": 2.0})
    assert list(table.series("x").values) == [1.0, 2.0, 30.0, 40.0]
    assert list(table.series("y").steps) == [3, 4]


def test_a_peak_of_one_step_is_seen_in_a_long_series() -> None:
    values = [math.sin(step / 500) for step in range(50_000)]
    values[31_415] = 9.0
    values[27_182] = -9.0
    thin = Series(range(50_000), values).thinned(200)
    assert len(thin) <= 200
    assert (max(thin.values), min(thin.values)) == (9.0, -9.0)
    assert list(thin.steps) == sorted(thin.steps)
    assert all(values[step] == value for step, value in zip(thin.steps, thin.values, strict=True))


def test_a_short_series_is_not_thinned() -> None:
    series = Series([1, 2, 3], [1.0, 5.0, 2.0])
    assert series.thinned(4) is series


@pytest.mark.parametrize("count", [101, 199, 200, 1000, 1234])
def test_a_thinned_series_has_the_extremes_of_equal_parts(count: int) -> None:
    values = [math.sin(step * step) for step in range(count)]
    thin = Series(range(count), values).thinned(100)
    length = math.ceil(count / 50)
    parts = [range(start, min(start + length, count)) for start in range(0, count, length)]
    ends = {end for part in parts for end in (min(part, key=values.__getitem__), max(part, key=values.__getitem__))}
    assert list(thin.steps) == sorted(ends)
    assert [values[step] for step in thin.steps] == list(thin.values)


def test_a_metric_is_zero_if_no_step_has_another_value() -> None:
    assert Series([1, 2], [0.0, 0.0]).is_zero
    assert Series([], []).is_zero
    assert not Series([1, 2, 3], [0.0, 0.0, 0.1]).is_zero


def test_smoothing_by_hand() -> None:
    """w = 0.5 over 2, 4, 8: means 1, 2.5, 5.25 over 0.5, 0.75, 0.875."""
    smooth = Series([1, 2, 3], [2.0, 4.0, 8.0]).smoothed(0.5)
    assert list(smooth.values) == pytest.approx([2.0, 2.5 / 0.75, 5.25 / 0.875])
    assert list(Series([1, 2], [3.0, 3.0]).smoothed(0.99).values) == pytest.approx([3.0, 3.0])


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("reward", ["reward/max", "reward/mean"]),
        ("^p.*kl", ["policy/kl"]),
        ("rwmn", ["reward/mean"]),
        ("KL", ["policy/kl"]),
        ("(", []),
    ],
)
def test_metrics_are_asked_for_by_expression_or_by_letters(pattern: str, found: list[str]) -> None:
    assert names_matching(["reward/mean", "policy/kl", "reward/max"], pattern) == found


@given(st.lists(st.tuples(st.integers(1, 9), st.dictionaries(st.sampled_from("ab"), st.floats(0, 9))), max_size=20))
def test_steps_taken_together_are_as_steps_taken_in_turn(told: list[tuple[int, dict[str, float]]]) -> None:
    together, in_turn, joined = StepTable(), StepTable(), StepTable()
    together.extend(told)
    for step, metrics in told:
        in_turn.add(step, metrics)
        alone = StepTable()
        alone.add(step, metrics)
        joined.join(alone)
    for table in (together, joined):
        assert list(table.steps) == list(in_turn.steps)
        assert [table.row(at) for at in range(len(table))] == [in_turn.row(at) for at in range(len(in_turn))]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=300), st.sampled_from([0.1, 0.6, 0.95, 0.99]))
def test_smoothing_by_rows_is_smoothing_in_turn(values: list[float], weight: float) -> None:
    mean, found = 0.0, []
    for place, value in enumerate(values, 1):
        mean = weight * mean + (1 - weight) * value
        found.append(mean / (1 - weight**place))
    smooth = Series(range(len(values)), values).smoothed(weight)
    assert list(smooth.values) == pytest.approx(found, rel=1e-6, abs=1e-5)


def test_a_window_and_the_point_nearest_to_a_step() -> None:
    series = Series([1, 3, 9], [10.0, 30.0, 90.0])
    assert list(series.between(2, 9).values) == [30.0, 90.0]
    assert series.at(0) == (1, 10.0)
    assert series.at(5) == (3, 30.0)
    assert series.at(100) == (9, 90.0)
    assert Series([], []).at(1) is None


def test_operators_of_a_step_are_told_in_their_order() -> None:
    table = StepTable()
    for step, kept in ((1, 48.0), (2, 64.0)):
        counts = {"operator/10_function/in": kept, "operator/10_function/out": 32.0}
        counts |= {"operator/2_reward_filter/in": 64.0, "operator/2_reward_filter/out": kept}
        table.add(step, {"reward/mean": 0.5, **counts, "operator/10_function/seen": 1.0})
    assert operated(table, 1) == [("2_reward_filter", 64, 48), ("10_function", 48, 32)]
    assert operated(table, 3) == []
