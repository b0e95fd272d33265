"""The critic learns from the larger of the plain and the clipped error."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from rlctl.runtime.algorithms.value_loss import clipped_value_loss, explained_variance


def test_by_hand() -> None:
    values = torch.tensor([1.0, 1.0, 2.0], requires_grad=True)
    old_values, returns = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([3.0, 2.0, -1.0])
    loss = clipped_value_loss(values, old_values, returns, clip=0.5)
    # (1-3)^2 / 2 = 2; plain (1-2)^2, clipped to 0.5: (0.5-2)^2 / 2 = 1.125; plain (2+1)^2 / 2 = 4.5, clipped 0.5: less
    assert_close(loss.values, torch.tensor([2.0, 1.125, 4.5]))
    assert loss.metrics["clip_fraction"].tolist() == [0.0, 1.0, 0.0]
    loss.values.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [-2.0, 0.0, 3.0]


def test_without_clip_it_is_half_the_squared_error() -> None:
    values, returns = torch.randn(5), torch.randn(5)
    loss = clipped_value_loss(values, values + 100, returns, clip=None)
    assert_close(loss.values, torch.nn.functional.mse_loss(values, returns, reduction="none") / 2)
    assert loss.metrics == {}


def test_explained_variance_by_hand() -> None:
    """Returns 0, 2, 4: variance 4; errors 0, 1, -1: variance 1."""
    returns = torch.tensor([0.0, 2.0, 4.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(torch.tensor([0.0, 1.0, 5.0]), returns) == pytest.approx(1 - 1 / 4.00001)
    assert explained_variance(torch.full((3,), 9.0), returns) == pytest.approx(0.0, abs=1e-5)
    assert explained_variance(returns[:1], returns[:1]) == 0.0
