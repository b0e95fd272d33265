"""What is left out and how much a response weighs, worked by hand."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from rlctl.runtime.algorithms.filters import (
    difficulty_weights,
    group_mean_between,
    length_weights,
    mean_one,
    short_or_right,
    unequal_groups,
)

GROUPS = torch.tensor([5, 2, 5, 2, 9, 5])


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [(0.0, [0, 1, 0, 1, 1, 0]), (0.7, [0, 1, 0, 1, 1, 0]), (0.71, [0, 0, 0, 0, 1, 0])],
)
def test_equal_groups_are_left_out(threshold: float, kept: list[int]) -> None:
    """Group 5 is equal, up to the rounding of its float32 mean; group 2 has the standard deviation sqrt(1/2); 9 is alone."""
    values = torch.tensor([0.1, 0.0, 0.1, 1.0, 0.3, 0.1])
    assert unequal_groups(values, GROUPS, threshold=threshold).tolist() == [bool(each) for each in kept]


def test_groups_on_a_bound_are_left_out() -> None:
    values = torch.tensor([0.5, 0.0, 0.5, 0.0, 1.0, 0.5])
    assert group_mean_between(values, GROUPS, low=0.0, high=1.0).tolist() == [True, False, True, False, False, True]


def test_long_wrong_responses_are_left_out() -> None:
    kept = short_or_right(torch.tensor([9, 9, 10, 10]), torch.tensor([1, 0, 0, 1]) > 0, max_tokens=10)
    assert kept.tolist() == [True, True, False, True]


def test_weights_by_hand() -> None:
    assert_close(difficulty_weights(torch.tensor([-1.0, 0.0, 0.5, 3.0])), torch.tensor([0.5, 0.5, 1.25, 2.0]))
    assert_close(length_weights(torch.tensor([10.0, 20.0, 15.0])), torch.tensor([1.5, 0.5, 1.0]))
    assert length_weights(torch.tensor([7.0, 7.0])).tolist() == [1.5, 1.5]
    assert length_weights(torch.zeros(0)).numel() == 0
    assert_close(mean_one(torch.tensor([1.0, 3.0])), torch.tensor([0.5, 1.5]))
