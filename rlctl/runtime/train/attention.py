"""Attention over sequences that lie end to end: padded to rows only here, so that no other layer computes padding.

Queries, keys and values come as [1, heads, tokens, dim], all sequences of a micro-batch in one row. On a GPU that flash
attention runs on they stay so. Elsewhere they are laid out as one row a sequence, padded on the right: a causal mask hides
the padding from every token that counts.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.train.rows import Rows
from rlctl.runtime.train.sequence import SequenceGroup

PACKED = "rlctl_packed"
"""The name under which Transformers knows ``packed_attention``."""

SHORT = 256
"""Rows up to this long are computed as two matrix products where numbers have 16 bits and there is no GPU: the fused CPU
kernel's backward pass is slow with them, 40 ms for 128 rows of 32 tokens where the products take 8."""


FLASH_DTYPES = (torch.float16, torch.bfloat16)
FLASH_HEAD_DIM = 256
"""At most."""
FLASH_CAPABILITY = (8, 0)
"""Of GPUs since Ampere."""


def register() -> None:
    """Make ``packed_attention`` known to Transformers; calling it again changes nothing."""
    AttentionInterface.register(PACKED, packed_attention)


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    rows: Rows,
    sequence: SequenceGroup | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend within each sequence, causally. Returns [1, tokens, heads, dim], and no attention weights.

    With ``sequence``, queries, keys, values and output are those of this worker's slice of the tokens.

    Raises:
        RunError: the model caps its attention logits or has attention sinks.
        PlanError: the heads do not divide over ``sequence``.
    """
    if softcap is not None or s_aux is not None:
        raise RunError(
            said(
                "{kind} uses attention logit capping or attention sinks, which this attention does not support",
                kind=type(module).__name__,
            ),
            hint="set model.attention to eager",
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    window = sliding_window if sliding_window is not None and sliding_window < rows.width else None
    if sequence is not None:
        query, key, value = sequence.heads(query, key, value, len(rows.to_tokens))
    if dropout == 0.0 and runs_flash(query):
        whole = _flash(query, key, value, rows, scale, window)
        return whole if sequence is None else sequence.slice_of(whole), None
    q, k, v = (_to_rows(tensor, rows) for tensor in (query, key, value))
    narrow = query.device.type == "cpu" and query.element_size() == 2
    if narrow and rows.width <= SHORT and dropout == 0.0:
        output = _short(q, k, v, scale, window)
    else:
        mask = None if window is None else _visible(rows.width, window, q.device)
        output = F.scaled_dot_product_attention(
            q.transpose(0, 1),
            k.transpose(0, 1),
            v.transpose(0, 1),
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=mask is None,
            scale=scale,
            enable_gqa=q.shape[0] != k.shape[0],
        ).transpose(0, 1)
    tokens: Tensor = _ToTokens.apply(output.flatten(1, 2), rows)
    whole = tokens.transpose(0, 1).unsqueeze(0)
    return whole if sequence is None else sequence.slice_of(whole), None


def runs_flash(query: Tensor) -> bool:
    """Whether flash attention takes such queries, on their device."""
    dim = query.shape[-1]
    if not query.is_cuda or query.dtype not in FLASH_DTYPES or dim > FLASH_HEAD_DIM or dim % 8:
        return False
    gpu = torch.cuda.get_device_properties(query.device)  # a constant to torch.compile, as get_device_capability is not
    return (gpu.major, gpu.minor) >= FLASH_CAPABILITY


def _flash(query: Tensor, key: Tensor, value: Tensor, rows: Rows, scale: float, window: int | None) -> Tensor:
    """Attend without padding; [1, tokens, heads, dim]. A token in several rows is laid into each."""
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    if rows.laid is not None:
        q, k, v = (tensor.index_select(0, rows.laid) for tensor in (q, k, v))
    before = -1 if window is None else window - 1
    output = varlen_attn(
        q.contiguous(),
        k.contiguous(),
        v.contiguous(),
        rows.starts,
        rows.starts,
        rows.width,
        rows.width,
        scale=scale,
        window_size=(before, 0),
        enable_gqa=q.shape[1] != k.shape[1],
    )
    assert isinstance(output, Tensor), "nothing else was asked for"
    return (output if rows.kept is None else output.index_select(0, rows.kept)).unsqueeze(0)


def _to_rows(tensor: Tensor, rows: Rows) -> Tensor:
    """[1, heads, tokens, dim] to [heads, rows, width, dim]."""
    laid: Tensor = _ToRows.apply(tensor[0], rows)
    return laid.unflatten(1, (rows.count, rows.width))


class _ToRows(torch.autograd.Function):
    """[heads, tokens, dim] to [heads, places, dim]. The gradient of padding is 0, as no token that counts sees it, so the
    way back is a copy, where the backward pass of ``index_select`` would be a slow sum; that is needed for shared tokens."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return tokens.index_select(1, rows.to_rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows: Rows = ctx.rows
        if rows.shared:
            tokens = grad.new_zeros(grad.shape[0], len(rows.to_tokens), grad.shape[2])
            return tokens.index_add_(1, rows.to_rows, grad), None
        return grad.index_select(1, rows.to_tokens), None


class _ToTokens(torch.autograd.Function):
    """[heads, places, dim] to [heads, tokens, dim]; padding gets the gradient 0."""

    @staticmethod
    def forward(ctx: Any, places: Tensor, rows: Rows) -> Tensor:
        ctx.rows = rows
        return places.index_select(1, rows.to_tokens)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        heads, _, dim = grad.shape
        places = grad.new_zeros(heads, len(ctx.rows.to_rows), dim)
        return places.index_copy_(1, ctx.rows.to_tokens, grad), None


def _visible(width: int, window: int | None, device: torch.device) -> Tensor:
    """Bool [width, width]: whether a query (first) sees a key."""
    position = torch.arange(width, device=device)
    distance = position[:, None] - position
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


def _short(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
    """The textbook formula; softmax in at least float32, as Transformers' eager attention has it."""
    heads, rows, width, dim = q.shape
    groups = heads // k.shape[0]
    k, v = ((t.repeat_interleave(groups, 0) if groups > 1 else t).reshape(heads * rows, width, dim) for t in (k, v))
    hidden = ~_visible(width, window, q.device)
    bias = torch.zeros(width, width, dtype=q.dtype).masked_fill_(hidden, torch.finfo(q.dtype).min)
    scores = torch.baddbmm(bias, q.reshape(heads * rows, width, dim), k.transpose(1, 2), alpha=scale)
    weights = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)
    return torch.bmm(weights, v).view(heads, rows, width, dim)
