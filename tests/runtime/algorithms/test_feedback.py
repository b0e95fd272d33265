"""Responses are drawn anew by score, as verl's preference-feedback PPO draws them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from rlctl.runtime.algorithms.feedback import SMALLEST, drawn_anew, feedback_weights

SCORES = torch.tensor([1.0, -2.0, 0.0, 0.5], dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1.0, 4.0, 0.0, 0.25]),
        ({"power": 1.0}, [1.0, 2.0, 0.0, 0.5]),
        ({"reweight": "max_min", "power": 9.0}, [1.0, 1.0, 0.0, 0.0]),
        ({"reweight": "max_random"}, [0.4, 0.1, 0.1, 0.1]),
    ],
)
def test_weights_by_hand(options: Any, expected: list[float]) -> None:
    weights = torch.tensor(expected, dtype=torch.float64) + SMALLEST
    assert_close(feedback_weights(SCORES, **options), weights, rtol=1e-7, atol=0.0)


def test_as_many_are_drawn_in_proportion_and_alike_for_a_seed() -> None:
    weights = feedback_weights(torch.tensor([1.0, 3.0] + [0.0] * 3998))
    found = drawn_anew(weights, seed=3)
    assert len(found) == 4000
    assert found == drawn_anew(weights, seed=3) != drawn_anew(weights, seed=4)
    assert set(found) == {0, 1}
    assert found.count(1) / 4000 == pytest.approx(0.9, abs=0.03)


def test_a_step_in_which_nothing_scores_is_drawn_evenly() -> None:
    assert len(set(drawn_anew(feedback_weights(torch.zeros(50)), seed=1))) > 20
