"""Grouped attention computes what Transformers' sdpa computes, and masks hide exactly what a row must not see."""

from __future__ import annotations

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rlctl.runtime.rollout import attention
from rlctl.runtime.rollout.attention import grouped_attention, prompt_mask, row_mask
from rlctl.runtime.rollout.model import load_model

from .conftest import MakeModel


class Layer(torch.nn.Module):
    """What sdpa reads from an attention module."""

    num_key_value_groups = 3
    is_causal = True


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scaling", [None, 0.5])
def test_grouped_attention_is_sdpa(queries: int, dtype: torch.dtype, scaling: float | None) -> None:
    torch.manual_seed(0)
    query = torch.randn(4, 6, queries, 16).to(dtype)
    key, value = torch.randn(2, 4, 2, 9, 16).to(dtype)[:, :, :, 2:7]
    mask = row_mask(torch.tensor([2, 3, 4, 6]), 2, 6, window=None, dtype=dtype).expand(4, 1, queries, 5)
    for attention_mask in (mask, None):
        expected, _ = sdpa_attention_forward(Layer(), query, key, value, attention_mask, scaling=scaling)
        output, _ = grouped_attention(Layer(), query, key, value, attention_mask, scaling=scaling)
        torch.testing.assert_close(output, expected)


def visible(mask: torch.Tensor) -> list[str]:
    return ["".join("x" if value == 0 else "." for value in line) for line in mask.flatten(0, -2)]


def test_a_row_sees_its_prompt_and_its_response() -> None:
    starts = torch.tensor([1, 3])
    assert visible(row_mask(starts, 1, 5, window=None, dtype=torch.float32)) == ["xxxxx", "..xxx"]
    assert visible(row_mask(starts, 1, 5, window=2, dtype=torch.float32)) == ["...xx", "...xx"]


def test_a_prompt_sees_its_past_and_no_padding_but_itself() -> None:
    mask = prompt_mask(torch.tensor([0, 2]), 4, window=None, dtype=torch.float32)
    assert visible(mask[0]) == ["x...", "xx..", "xxx.", "xxxx"]
    assert visible(mask[1]) == ["x...", ".x..", "..x.", "..xx"]
    assert visible(prompt_mask(torch.tensor([0]), 4, window=2, dtype=torch.float32)) == ["x...", "xx..", ".xx.", "..xx"]


def test_the_attention_that_packs_sequences_in_training_is_auto_here(make_model: MakeModel) -> None:
    """verl's documents give flash_attention_2 as the default."""
    cpu = torch.device("cpu")
    how = {"dtype": torch.float32, "device": cpu, "trust_remote_code": False}
    made = [load_model(str(make_model()), implementation=name, **how) for name in ("auto", "flash_attention_2")]
    assert {model.config._attn_implementation for model in made} == {attention.GROUPED}
