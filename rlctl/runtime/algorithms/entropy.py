"""Log-probs of the tokens drawn, and entropy of the distributions they were drawn from.

Logits [N, V] are by far the largest tensor of a step, so they are walked through in chunks of rows. Two ways in:

    out of logits         what autograd keeps is the logits and two numbers a row; the softmax is worked out again backward
    out of hidden states  the logits of one chunk are all there ever is: they are worked out again backward too
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 2**25
"""Logits worked on at a time when ``chunk`` is None: 128 MiB in float32, enough rows to keep a GPU busy."""

CPU_CHUNK_ELEMENTS = 2**18
"""The same on CPU: 1 MiB stays in the cache, which makes forward and backward several times faster."""

PRODUCT_ELEMENTS = 2**26
"""Logits of one product of hidden states and head: 256 MiB in float32."""

GRADIENT_ELEMENTS = 5 * 2**26
"""Logits whose gradient goes into a head at a time on a GPU, at most: 1.25 GiB in float32, 2,176 rows of 151,936 tokens.

Each time the head's gradient is read and written whole, which takes as long as the products if these have 384 rows."""

MEMORY_PER_LOGIT = 256
"""Bytes of a GPU for each logit of ``GRADIENT_ELEMENTS``, at least: one is worked on in 14 bytes at most."""

CPU_PRODUCT_ELEMENTS = 2**21
"""The same on CPU."""

TILE_ROWS = 128
"""A GPU works on so many rows of a product together, and on as many if there are fewer."""

LEAST_ROWS = 16
"""Rows of such a product, at least: with fewer it would wait for the head's weights to be read."""


def log_probs_and_entropy(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0, chunk: int | None = None, upcast: bool = True
) -> tuple[Tensor, Tensor]:
    """Return log p(target) and the entropy in nats of softmax(logits / temperature), each [N].

    logits: [N, V]; targets: int64 [N]; ``chunk``: rows at a time. With ``upcast``, logits of less than float32 are
    worked on, and the results returned, in float32. A logit of -inf is a token that cannot be drawn.
    Both results are differentiable once. A loss that doesn't read the entropy costs none of its gradient.
    """
    log_probs, entropy = _LogProbs.apply(logits, targets, temperature, rows_at_once(logits, chunk), upcast, True)
    return log_probs, entropy


def log_probs(
    logits: Tensor, targets: Tensor, *, temperature: float = 1.0, chunk: int | None = None, upcast: bool = True
) -> Tensor:
    """Return the log-probs of ``log_probs_and_entropy`` without the work of the entropy. [N]."""
    result, _ = _LogProbs.apply(logits, targets, temperature, rows_at_once(logits, chunk), upcast, False)
    return result


def log_probs_of_hidden(
    hidden: Tensor,
    head: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    with_entropy: bool = True,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what ``log_probs_and_entropy`` says of logits = hidden head^T + bias, which are never whole; each [N].

    hidden: [N, H]; head: [V, H]; bias: [V] or None. Without ``with_entropy`` the entropy is 0. The gradients of head and bias
    are added up in at least float32.
    """
    log_probs, entropy = _HeadLogProbs.apply(hidden, head, bias, targets, temperature, chunk, with_entropy)
    return log_probs, entropy


def compile_rows() -> None:
    """Work on rows through torch.compile from now on, in this process: the passes over a chunk of logits become one or two."""
    global _read, _slope
    _read = torch.compile(_read_rows, dynamic=True)
    _slope = torch.compile(_slope_rows, dynamic=True)


def rows_at_once(logits: Tensor, chunk: int | None = None) -> int:
    """Rows of [N, V] that are worked on at a time: ``chunk``, or as many as suit the device."""
    elements = CPU_CHUNK_ELEMENTS if logits.device.type == "cpu" else CHUNK_ELEMENTS
    return chunk or max(1, elements // max(1, logits.shape[-1]))


def rows_of_head(head: Tensor, chunk: int | None = None) -> int:
    """Rows of a product with a head [V, H] that are worked on at a time: ``chunk``, or as many as suit the device."""
    if head.device.type == "cpu":
        return chunk or max(LEAST_ROWS, CPU_PRODUCT_ELEMENTS // max(1, len(head)))
    return chunk or _whole_tiles(PRODUCT_ELEMENTS // max(1, len(head)))


def rows_of_gradient(head: Tensor, chunk: int | None = None) -> int:
    """The same if the head has a gradient: more rows, by the memory of the GPU."""
    if chunk or head.device.type == "cpu":
        return rows_of_head(head, chunk)
    elements = GRADIENT_ELEMENTS
    if head.device.type == "cuda":
        elements = min(elements, torch.cuda.get_device_properties(head.device).total_memory // MEMORY_PER_LOGIT)
    return _whole_tiles(elements // max(1, len(head)))


def _whole_tiles(rows: int) -> int:
    return rows - rows % TILE_ROWS if rows >= TILE_ROWS else max(LEAST_ROWS, rows)


def scaled_logits(logits: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    """Logits over temperature, in new memory."""
    if logits.dtype == dtype:
        return logits / temperature
    wide = logits.to(dtype)
    return wide if temperature == 1.0 else wide.div_(temperature)


def _finite(log_p: Tensor) -> Tensor:
    """Bound -inf so that p * log p is 0, not NaN, for a token that cannot be drawn."""
    return log_p.clamp_(min=torch.finfo(log_p.dtype).min)


def _read_rows(
    logits: Tensor, targets: Tensor, temperature: float, dtype: torch.dtype, with_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs, normalizers and entropy of some rows, each [rows]."""
    scaled = scaled_logits(logits, temperature, dtype)
    normalizers = scaled.logsumexp(-1)
    log_p = scaled.sub_(normalizers[:, None])
    drawn = log_p.gather(-1, targets[:, None]).squeeze(-1)
    entropy = -log_p.exp().mul_(_finite(log_p)).sum(-1) if with_entropy else torch.zeros_like(drawn)
    return drawn, normalizers, entropy


def _slope_rows(
    logits: Tensor,
    targets: Tensor,
    temperature: float,
    normalizers: Tensor,
    entropy: Tensor | None,
    grad_entropy: Tensor | None,
    grad_log_probs: Tensor,
    grad_drawn: Tensor,
) -> Tensor:
    """The gradient of the logits of some rows, [rows, V].

    With p = softmax(z / T): d log p_y / dz_j = ([j = y] - p_j) / T and d H / dz_j = -p_j (log p_j + H) / T.
    ``grad_drawn`` goes with [j = y]: ``grad_log_probs``, but 0 for a token that another part of the vocabulary has.
    """
    log_p = scaled_logits(logits, temperature, normalizers.dtype).sub_(normalizers[:, None])
    if entropy is None or grad_entropy is None:
        slope = log_p.exp_().mul_(-grad_log_probs[:, None])
        slope.scatter_add_(-1, targets[:, None], grad_drawn[:, None])
    else:
        p = log_p.exp()
        slope = p * -grad_log_probs[:, None]
        slope.scatter_add_(-1, targets[:, None], grad_drawn[:, None])
        slope.sub_(p.mul_(grad_entropy[:, None]).mul_(_finite(log_p).add_(entropy[:, None])))
    return slope if temperature == 1.0 else slope.div_(temperature)


def read_rows(
    logits: Tensor, targets: Tensor, temperature: float, dtype: torch.dtype, with_entropy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``_read_rows``, compiled after ``compile_rows``."""
    return _read(logits, targets, temperature, dtype, with_entropy)


def slope_rows(
    logits: Tensor,
    targets: Tensor,
    temperature: float,
    normalizers: Tensor,
    entropy: Tensor | None,
    grad_entropy: Tensor | None,
    grad_log_probs: Tensor,
    grad_drawn: Tensor,
) -> Tensor:
    """As ``_slope_rows``, compiled after ``compile_rows``."""
    return _slope(logits, targets, temperature, normalizers, entropy, grad_entropy, grad_log_probs, grad_drawn)


def _filled(grads: Sequence[Tensor | None], like: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
    """The gradients of log-probs and of entropy: zeros if the loss doesn't read log-probs, None if it doesn't read entropy."""
    log_probs, entropy = grads
    return torch.zeros_like(like) if log_probs is None else log_probs, entropy if with_entropy else None


def _of_entropy(entropy: Tensor, grad: Tensor | None, part: slice) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if grad is None else (entropy[part], grad[part])


_read: Callable[..., tuple[Tensor, Tensor, Tensor]] = _read_rows
_slope: Callable[..., Tensor] = _slope_rows


class _LogProbs(torch.autograd.Function):
    """Out of logits; see ``_slope_rows`` for the gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, rows: int, upcast: bool, with_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        dtype = torch.promote_types(logits.dtype, torch.float32) if upcast else logits.dtype
        log_probs = torch.empty(len(logits), dtype=dtype, device=logits.device)
        normalizers, entropy = torch.empty_like(log_probs), torch.empty_like(log_probs)
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            found = _read(logits[part], targets[part], temperature, dtype, with_entropy)
            log_probs[part], normalizers[part], entropy[part] = found
        ctx.save_for_backward(logits, targets, normalizers, entropy)
        ctx.temperature, ctx.rows, ctx.with_entropy = temperature, rows, with_entropy
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, targets, normalizers, entropy = ctx.saved_tensors
        grad_log_probs, grad_entropy = _filled(grads, normalizers, ctx.with_entropy)
        grad = torch.empty_like(logits)
        for start in range(0, len(logits), ctx.rows):
            part = slice(start, start + ctx.rows)
            grad[part] = _slope(
                logits[part],
                targets[part],
                ctx.temperature,
                normalizers[part],
                *_of_entropy(entropy, grad_entropy, part),
                grad_log_probs[part],
                grad_log_probs[part],
            )
        return grad, None, None, None, None, None


class _HeadLogProbs(torch.autograd.Function):
    """Out of hidden states: with dz of ``_slope_rows``, d hidden = dz head, d head = dz^T hidden, d bias = the sum of dz."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        chunk: int | None,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        rows = rows_of_head(head, chunk)
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        log_probs = torch.empty(len(hidden), dtype=dtype, device=hidden.device)
        normalizers, entropy = torch.empty_like(log_probs), torch.empty_like(log_probs)
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            found = _read(
                torch.nn.functional.linear(hidden[part], head, bias), targets[part], temperature, dtype, with_entropy
            )
            log_probs[part], normalizers[part], entropy[part] = found
        ctx.save_for_backward(hidden, head, bias, targets, normalizers, entropy)
        ctx.temperature, ctx.chunk, ctx.with_entropy = temperature, chunk, with_entropy
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, head, bias, targets, normalizers, entropy = ctx.saved_tensors
        grad_log_probs, grad_entropy = _filled(grads, normalizers, ctx.with_entropy)
        need_hidden, need_head, need_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_head = torch.zeros_like(head, dtype=normalizers.dtype) if need_head else None
        grad_bias = torch.zeros_like(bias, dtype=normalizers.dtype) if need_bias else None
        rows = (rows_of_gradient if need_head else rows_of_head)(head, ctx.chunk)
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            slope = _slope(
                torch.nn.functional.linear(hidden[part], head, bias),
                targets[part],
                ctx.temperature,
                normalizers[part],
                *_of_entropy(entropy, grad_entropy, part),
                grad_log_probs[part],
                grad_log_probs[part],
            )
            narrow = slope.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = narrow @ head
            if grad_head is not None:
                grad_head += narrow.T @ hidden[part]
            if grad_bias is not None:
                grad_bias += slope.sum(0)
            del slope, narrow  # before the next are there
        return (
            grad_hidden,
            None if grad_head is None else grad_head.to(head.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            *(None,) * 4,
        )
