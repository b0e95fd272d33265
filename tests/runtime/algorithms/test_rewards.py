"""Penalties on length and normalisation of rewards, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rlctl.runtime.algorithms.rewards import RunningMoments, length_penalty, normalized, overlong_penalty

GROUPS = torch.tensor([1, 0, 1, 0, 2])
REWARDS = torch.tensor([1.0, 2.0, 3.0, 6.0, 8.0], dtype=torch.float64)
# group 1: mean 2, std sqrt(2); group 0: mean 4, std sqrt(8); group 2: alone; all: mean 4, squares 9 + 4 + 1 + 4 + 16 = 34


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_overlong_penalty_grows_over_the_buffer() -> None:
    lengths = torch.tensor([10, 80, 90, 100, 120])
    free = overlong_penalty(lengths, limit=100, buffer=20, factor=0.5)
    assert_close(free, torch.tensor([0.0, 0.0, -0.25, -0.5, -1.0]))
    held = overlong_penalty(lengths, limit=100, buffer=20, factor=0.5, clamp=True)
    assert_close(held, torch.tensor([0.0, 0.0, -0.25, -0.5, -0.5]))


def test_the_length_penalty_is_in_proportion() -> None:
    assert_close(length_penalty(torch.tensor([0, 50, 100]), limit=100, coefficient=0.5), torch.tensor([0, -0.25, -0.5]))


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        (None, None, (1, 2, 3, 6, 8)),
        ("group", None, (-1, -2, 1, 2, 0)),
        ("batch", None, (-3, -2, -1, 2, 4)),
        ("group", "group", tuple(x / math.sqrt(2) for x in (-1, -1, 1, 1, 0))),
        ("batch", "batch", tuple(x / math.sqrt(34 / 4) for x in (-3, -2, -1, 2, 4))),
        ("group", "batch", tuple(x / math.sqrt(34 / 4) for x in (-1, -2, 1, 2, 0))),
        (None, "batch", tuple(x / math.sqrt(34 / 4) for x in (1, 2, 3, 6, 8))),
        ("batch", "group", (-3 / math.sqrt(2), -2 / math.sqrt(8), -1 / math.sqrt(2), 2 / math.sqrt(8), 0)),
    ],
)
def test_normalisation_by_hand(mean: str, std: str, expected: tuple[float, ...]) -> None:
    found = normalized(REWARDS, GROUPS, mean=mean, std=std)  # type: ignore[arg-type]
    assert_close(found, tensor(*expected), rtol=1e-5, atol=1e-9)


def test_equal_rewards_have_nothing_to_compare() -> None:
    rewards = torch.full((4,), 0.1)
    assert normalized(rewards, torch.tensor([0, 0, 1, 1]), mean=None, std="group").tolist() == [0, 0, 0, 0]


@given(st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=6), min_size=1, max_size=5))
def test_running_moments_are_those_of_everything_seen(batches: list[list[float]]) -> None:
    running = RunningMoments()
    for batch in batches:
        running.update(tensor(*batch))
    seen = tensor(*(value for batch in batches for value in batch))
    assert running.count == len(seen)
    assert running.mean == pytest.approx(float(seen.mean()), abs=1e-12)
    assert running.std == pytest.approx(float(seen.std()) if len(seen) > 1 else 0.0, abs=1e-9)


def test_running_normalisation_looks_at_all_that_was_seen() -> None:
    running = RunningMoments()
    running.update(tensor(0, 4))
    running.update(tensor(4, 8))  # 0, 4, 4, 8: mean 4, std sqrt(32 / 3)
    found = normalized(tensor(4, 8), torch.tensor([0, 0]), mean="running", std="running", running=running)
    assert_close(found, tensor(0, 4 / math.sqrt(32 / 3)), rtol=1e-6, atol=0)
