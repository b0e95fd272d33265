"""Prompts drawn by difficulty: what feedback does to the draws, worked by hand, and that a restored cursor goes on exactly."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rlctl.runtime.data.difficulty import DifficultyCursor, Pacing

FEATURES = np.array([[0.0, 1.0], [0.2, 0.8], [0.5, 0.5], [0.1, 0.9], [0.0, 0.2], [0.9, 1.0]])


def cursor(**args: Any) -> DifficultyCursor:
    return DifficultyCursor(FEATURES, Pacing.of(args), seed=3)


def test_beliefs_move_as_the_formula_says() -> None:
    """One update with rewards 1 and 0 of rows 1 and 2, by hand: weak 0.35, strong 0.65, so the policy stands at 0.5."""
    moved = cursor(m=4, lamb=0.5, rho=0.25)
    moved.feedback({1: 1.0, 2: 0.0})
    other = DifficultyCursor(FEATURES, Pacing(), seed=0)
    other.restore(moved.state())
    stands = 0.15 / (0.3 + 1e-6)
    alphas, betas = other._beliefs
    assert other._stands == pytest.approx(stands)
    assert alphas[1] == pytest.approx(0.5 + 0.5 + 0.75 * 4 + 0.25 * 4)
    assert betas[1] == pytest.approx(1.0)
    assert alphas[0] == pytest.approx(1 + 0.25 * stands * 4)
    assert betas[0] == pytest.approx(1 + 0.25 * (1 - stands) * 4)


def test_the_nearest_to_the_target_are_drawn_where_tau_is_0() -> None:
    drawing = cursor(tau=0, target_reward=0.5)
    drawing.feedback({0: 1.0, 1: 0.0, 2: 0.5, 3: 0.5})
    assert set(drawing.take(2)) == {2, 3}


def test_a_batch_has_no_row_twice_while_there_are_as_many() -> None:
    drawing = cursor(tau=0.1, do_sample=True)
    assert all(len(set(drawing.take(6))) == 6 for _ in range(5))
    assert sorted(drawing.take(8))[:6] != list(range(8))
    assert drawing.epoch == 38 // 6


def test_a_surer_interpolation_needs_small_errors() -> None:
    drawing = cursor(adaptive_rho=True, rho=0.4)
    drawing.feedback({0: 0.5, 5: 0.5})
    assert drawing.state()["rho"] == pytest.approx(0.2)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_restored_cursor_goes_on_exactly(sampled: bool) -> None:
    whole = cursor(tau=0.2, do_sample=sampled)
    for step in range(4):
        whole.feedback({row: (row * 7 + step) % 3 / 2 for row in whole.take(3)})
    restored = cursor(tau=0.2, do_sample=sampled)
    restored.restore(json.loads(json.dumps(whole.state())))
    for _ in range(3):
        rows = whole.take(4)
        assert restored.take(4) == rows
        for each in (whole, restored):
            each.feedback(dict.fromkeys(rows, 0.25))
    assert restored.state() == whole.state()
