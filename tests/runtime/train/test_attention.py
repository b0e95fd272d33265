"""Attention over sequences laid end to end is that of every sequence alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rlctl.common.errors import RunError
from rlctl.runtime.train import attention
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


def by_sequence(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, longest_q: int, longest_k: int, **options: Any
) -> Tensor:
    """What ``varlen_attn`` computes, by its documentation: [tokens, heads, dim], causal, the window as (left, right)."""
    assert starts_q.dtype == torch.int32
    assert longest_q == longest_k == int(starts_q.diff().max())
    left, right = options["window_size"]
    assert right == 0
    outputs = []
    for start, end in zip(starts_q.tolist(), starts_k[1:].tolist(), strict=False):
        position = torch.arange(end - start)
        distance = position[:, None] - position
        mask = (distance >= 0) & ((left < 0) | (distance <= left))
        a, b, c = (tensor[start:end].transpose(0, 1)[None] for tensor in (q, k, v))
        found = F.scaled_dot_product_attention(a, b, c, attn_mask=mask, scale=options["scale"], enable_gqa=True)
        outputs.append(found[0].transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_flash_attention_gets_each_sequence_once_without_padding(
    monkeypatch: pytest.MonkeyPatch, window: int | None, shared: bool
) -> None:
    monkeypatch.setattr(attention, "runs_flash", lambda query: False)
    torch.manual_seed(0)
    rows = Rows.of(torch.tensor(LENGTHS))
    if shared:  # the 3 tokens of the first sequence are also the first 3 of the third
        rows = rows.sharing(torch.tensor([0, 1, 2, *range(6, 16)]), torch.tensor([0, 1, 2, 0, 1, 2, *range(3, 13)]))
    tokens = len(rows.to_tokens)
    q, k, v = (torch.randn(1, heads, tokens, 8, dtype=torch.float64).requires_grad_() for heads in (4, 2, 2))
    probe = torch.randn(1, tokens, 4, 8, dtype=torch.float64)

    def taken() -> tuple[Tensor, ...]:
        output, _ = packed_attention(torch.nn.Identity(), q, k, v, None, rows=rows, sliding_window=window)
        return output, *torch.autograd.grad((output * probe).sum(), (q, k, v))

    expected = taken()
    monkeypatch.setattr(attention, "runs_flash", lambda query: True)
    monkeypatch.setattr(attention, "varlen_attn", by_sequence)
    for found, wanted in zip(taken(), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_the_kernel_of_torch_takes_what_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """On no device: PyTorch's own shapes of forward and backward pass, without numbers."""
    monkeypatch.setattr(attention, "runs_flash", lambda query: True)
    q, k, v = (
        torch.empty(1, heads, 16, 8, dtype=torch.bfloat16, device="meta", requires_grad=True) for heads in (4, 2, 2)
    )
    rows = Rows.of(torch.tensor(LENGTHS)).to(torch.device("meta"))
    output, _ = packed_attention(torch.nn.Identity(), q, k, v, None, rows=rows)
    output.sum().backward()
    assert output.shape == (1, 16, 4, 8)
    assert k.grad is not None
    assert k.grad.shape == k.shape
    assert output.grad_fn is not None
    assert "varlen_attn" in str(output.grad_fn.next_functions)
