"""Attention of the built-in engine: its masks, and a decode kernel call that does not copy the keys of grouped queries.

Masks are additive, [batch, 1, queries, keys], in the model's dtype: the one form that every implementation takes as it is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

GROUPED = "rlctl_grouped_sdpa"
"""The name under which Transformers knows ``grouped_attention``."""


def register() -> None:
    """Make ``grouped_attention`` known to Transformers; calling it again changes nothing."""
    AttentionInterface.register(GROUPED, grouped_attention)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as Transformers' ``sdpa`` does; one query per row reads the shared key heads in place instead of repeating them.

    The query heads that share a key head become that head's queries: [rows, heads, 1, dim] is [rows, key heads, group, dim].
    Inference only: no dropout.

    Returns:
        [batch, queries, heads, dim], and no attention weights.
    """
    rows, heads, queries, dim = query.shape
    if queries != 1 or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], dim)
    # Measured on CPU: two float32 products take 0.7 of the fused kernel's time at 26 keys, as much at 1,000; bfloat16 twice.
    if query.device.type == "cpu" and query.dtype == torch.float32:
        scale = dim**-0.5 if kwargs.get("scaling") is None else kwargs["scaling"]
        scores = torch.matmul(grouped * scale, key.transpose(2, 3))
        if attention_mask is not None:
            scores += attention_mask
        output = torch.matmul(scores.softmax(-1), value)
    else:
        output = F.scaled_dot_product_attention(
            grouped, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling")
        )
    return output.reshape(rows, 1, heads, value.shape[-1]), None


def prompt_mask(padding: torch.Tensor, length: int, *, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """Return [prompts, 1, length, length] for prompts with ``padding`` (int64 [prompts]) empty positions on their left.

    An empty position attends to itself, so that no row of the mask is empty (its softmax would be NaN).
    """
    position = torch.arange(length, device=padding.device)
    query, key = position[:, None], position[None, :]
    visible = (key <= query) & (key >= padding[:, None, None])
    if window is not None:
        visible &= query - key < window
    return _additive(visible | (key == query), dtype)[:, None]


def row_mask(starts: torch.Tensor, low: int, cursor: int, *, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """Return [rows, 1, 1, cursor - low + 1]: each row sees the slots from its start (int64 [rows]) to the cursor."""
    if window is not None:
        starts = starts.clamp(min=cursor - window + 1)
    slots = torch.arange(low, cursor + 1, device=starts.device)
    return _additive(slots >= starts[:, None], dtype)[:, None, None]


def _additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)
