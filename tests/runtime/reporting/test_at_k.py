"""Numbers of several responses are those of their definitions: counted out, or worked by hand."""

from __future__ import annotations

import itertools
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlctl.runtime.reporting import at_k
from rlctl.runtime.reporting.metrics import describe, evaluation_metrics


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_choices_of_k_with_a_right_one(right: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(right)))
    counted = fmean(any(chosen) for chosen in itertools.combinations(right, k))
    assert at_k.pass_at(len(right), sum(right), k) == pytest.approx(counted, abs=1e-12)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=4), st.data())
def test_best_and_worst_are_near_the_mean_over_all_draws(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(2, len(values)))
    drawn = list(itertools.product(values, repeat=k))
    tolerance = 0.1 * (max(values) - min(values)) + 1e-9  # 1,000 draws: six standard errors
    assert at_k.best(values, k) == pytest.approx(fmean(map(max, drawn)), abs=tolerance)
    assert at_k.worst(values, k) == pytest.approx(fmean(map(min, drawn)), abs=tolerance)


VERL = {
    "best": [0.67225, 0.88475, 0.94825],
    "worst": [0.22925, 0.073, 0.0265],
    "maj": [0.4435, 0.4305, 0.4095],
}


def test_which_k_are_looked_at() -> None:
    assert [at_k.counts(n) for n in (1, 2, 3, 4, 5, 8, 9)] == [
        [], [2], [2, 3], [2, 4], [2, 4, 5], [2, 4, 8], [2, 4, 8, 9],
    ]  # fmt: skip


def test_the_numbers_are_those_that_verl_computes() -> None:
    """Computed with verl's process_validation_metrics (2026-01-29) for the scores and predictions of one prompt."""
    scores, answers = [0.0, 1.0, 0.25, 1.0, 0.0, 0.5], ["a", "b", "c", "b", "a", "a"]
    found = {
        "best": [at_k.best(scores, k) for k in (2, 4, 6)],
        "worst": [at_k.worst(scores, k) for k in (2, 4, 6)],
        "maj": [at_k.majority(scores, answers, k) for k in (2, 4, 6)],
    }
    assert {name: pytest.approx(values, abs=1e-12) for name, values in VERL.items()} == found


def test_the_metrics_of_a_source_with_several_responses() -> None:
    found = evaluation_metrics(
        "gsm8k",
        totals=[1.0, 0.0, 0.0, 0.0],
        correct=[True, False, False, False],
        lengths=[],
        prompts=[0, 0, 1, 1],
        votes=["4", "5", "6", "6"],
    )
    assert {name.removeprefix("evaluation/gsm8k/") for name in found} == {
        "reward", "accuracy", "best", "mean@2", "std@2", "best@2", "worst@2", "maj@2", "pass@2",
    }  # fmt: skip
    assert (found["evaluation/gsm8k/pass@2"], found["evaluation/gsm8k/mean@2"]) == (0.5, 0.25)
    assert 0.2 < found["evaluation/gsm8k/maj@2"] < 0.3, (
        "half of the draws of the first prompt begin with the right answer"
    )
    assert all(describe(name) for name in found)


def test_a_single_response_has_no_numbers_of_several() -> None:
    found = evaluation_metrics("x", [1.0, 0.0], [True, False], [3, 5], [0, 1], ["4", "5"])
    assert not [name for name in found if "@" in name]
