"""Log-probs of the tokens drawn, and entropy of the distributions they were drawn from, out of logits.

Logits [N, V] are by far the largest tensor of a step, so they are walked through in chunks of rows, and what autograd
keeps is the logits themselves and two numbers a row: the softmax is worked out again in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 2**25
"""Logits worked on at a time when ``chunk`` is None: 128 MiB in float32, enough rows to keep a GPU busy."""

CPU_CHUNK_ELEMENTS = 2**18
"""The same on CPU: 1 MiB stays in the cache, which makes forward and backward several times faster."""


def log_probs_and_entropy(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0, chunk: int | None = None, upcast: bool = True
) -> tuple[Tensor, Tensor]:
    """Return log p(target) and the entropy in nats of softmax(logits / temperature), each [N].

    logits: [N, V]; targets: int64 [N]; ``chunk``: rows at a time. With ``upcast``, logits of less than float32 are
    worked on, and the results returned, in float32. A logit of -inf is a token that cannot be drawn.
    Both results are differentiable once.
    """
    log_probs, entropy = _LogProbs.apply(logits, targets, temperature, _rows(logits, chunk), upcast, True)
    return log_probs, entropy


def log_probs(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0, chunk: int | None = None, upcast: bool = True
) -> Tensor:
    """Return the log-probs of ``log_probs_and_entropy`` without the work of the entropy. [N]."""
    result, _ = _LogProbs.apply(logits, targets, temperature, _rows(logits, chunk), upcast, False)
    return result


def _rows(logits: Tensor, chunk: int | None) -> int:
    elements = CPU_CHUNK_ELEMENTS if logits.device.type == "cpu" else CHUNK_ELEMENTS
    return chunk or max(1, elements // max(1, logits.shape[-1]))


def _scaled(logits: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    return logits.to(dtype) / temperature


def _finite(log_p: Tensor) -> Tensor:
    """Bound -inf so that p * log p is 0, not NaN, for a token that cannot be drawn."""
    return log_p.clamp_(min=torch.finfo(log_p.dtype).min)


class _LogProbs(torch.autograd.Function):
    """With p = softmax(z / T): d log p_y / dz_j = ([j = y] - p_j) / T and d H / dz_j = -p_j (log p_j + H) / T."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, rows: int, upcast: bool, with_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32) if upcast else logits.dtype
        log_probs = torch.empty(len(logits), dtype=dtype, device=logits.device)
        normalizers = torch.empty_like(log_probs)
        entropy = torch.zeros_like(log_probs)
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            scaled = _scaled(logits[part], temperature, dtype)
            normalizers[part] = scaled.logsumexp(-1)
            log_p = scaled.sub_(normalizers[part, None])
            log_probs[part] = log_p.gather(-1, targets[part, None]).squeeze(-1)
            if with_entropy:
                entropy[part] = -(log_p.exp() * _finite(log_p)).sum(-1)
        ctx.save_for_backward(logits, targets, normalizers, entropy)
        ctx.temperature, ctx.rows, ctx.with_entropy = temperature, rows, with_entropy
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, normalizers, entropy = ctx.saved_tensors
        grad = torch.empty_like(logits)
        for start in range(0, len(logits), ctx.rows):
            part = slice(start, start + ctx.rows)
            log_p = _scaled(logits[part], ctx.temperature, normalizers.dtype).sub_(normalizers[part, None])
            p = log_p.exp()
            slope = -grad_log_probs[part, None] * p
            slope.scatter_add_(-1, targets[part, None], grad_log_probs[part, None])
            if ctx.with_entropy:
                slope -= grad_entropy[part, None] * p * (_finite(log_p) + entropy[part, None])
            grad[part] = slope / ctx.temperature
        return grad, None, None, None, None, None
