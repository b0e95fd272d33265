"""All experts of a worker in one product: its numbers are PyTorch's, and no copy of the weights waits for the backward pass."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_product_is_that_of_stacked_weights_of_which_none_is_kept(dtype: torch.dtype) -> None:
    from rlctl.runtime.train.megatron.experts import _product

    torch.manual_seed(0)
    tokens = torch.randn(20, 16, dtype=dtype).requires_grad_()
    weights = [torch.randn(24, 16, dtype=dtype).requires_grad_() for _ in range(3)]
    offsets = torch.tensor([5, 5, 20], dtype=torch.int32)  # the second gets no token
    kept: list[Tensor] = []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):  # type: ignore[func-returns-value]
        found = _product(tokens, weights, offsets)
    assert {each.data_ptr() for each in kept} == {each.data_ptr() for each in (tokens, offsets, *weights)}
    expected = F.grouped_mm(tokens, torch.stack(weights).transpose(1, 2), offs=offsets)
    grad = torch.randn_like(found)
    assert torch.equal(found, expected)
    inputs = [tokens, *weights]
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        assert torch.equal(mine, theirs)
