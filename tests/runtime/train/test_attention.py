"""Attention over sequences laid end to end is that of every sequence alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rlctl.common.errors import RunError
from rlctl.runtime.train.attention import packed_attention
from rlctl.runtime.train.rows import Rows

LENGTHS = [3, 0, 7, 1, 5]


def alone(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """PyTorch's attention, one sequence at a time with an explicit mask."""
    outputs = []
    for a, b, c in zip(*(torch.split(tensor, LENGTHS, 2) for tensor in (q, k, v)), strict=True):
        position = torch.arange(a.shape[2])
        distance = position[:, None] - position
        mask = (distance >= 0) & (distance < (window or 100))
        outputs.append(F.scaled_dot_product_attention(a, b, c, attn_mask=mask, scale=0.3, enable_gqa=True))
    return torch.cat(outputs, 2).transpose(1, 2)


@pytest.mark.parametrize("window", [None, 2, 50])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 3e-2)])
def test_values_and_gradients_are_those_of_single_sequences(
    window: int | None, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 16, 8, dtype=dtype).requires_grad_() for heads in (4, 2, 2))
    probe = torch.randn(1, 16, 4, 8, dtype=dtype)
    output, _ = packed_attention(
        torch.nn.Identity(), q, k, v, None, rows=Rows.of(torch.tensor(LENGTHS)), scaling=0.3, sliding_window=window
    )
    mine = torch.autograd.grad((output * probe).sum(), (q, k, v))
    wide = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
    expected = alone(wide[0], wide[1], wide[2], window)
    theirs = torch.autograd.grad((expected * probe.double()).sum(), wide)
    for found, wanted in zip((output, *mine), (expected, *theirs), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("extra", [{"softcap": 30.0}, {"s_aux": torch.zeros(4)}])
def test_what_it_does_not_compute_is_refused(extra: dict[str, Any]) -> None:
    q = torch.zeros(1, 4, 2, 8)
    with pytest.raises(RunError, match="uses attention logit capping or attention sinks"):
        packed_attention(torch.nn.Identity(), q, q, q, None, rows=Rows.of(torch.tensor([2])), **extra)
