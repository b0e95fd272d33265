"""The last layer of a model whose vocabulary is shared by the tensor workers: log-probs and entropy, without whole logits.

Each worker walks through its part of the vocabulary in chunks of rows, as ``algorithms.entropy`` does, and keeps three numbers
a row: the logarithm of its sum, the log-prob of the token drawn where it has it, and the entropy of its part alone. One gather
of these is all that the workers say to each other; the logits of a chunk are worked out again in the backward pass.

    lse = logsumexp over the parts      log p = log p within its part + lse of the part - lse
    H = lse - sum over parts of w (lse of the part - H of the part)      with w = exp(lse of the part - lse)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from megatron.core.transformer import TransformerConfig
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlctl.runtime.algorithms.distributions import LOG_PROBS, joined, moments
from rlctl.runtime.algorithms.entropy import read_rows, rows_of_gradient, rows_of_head, scaled_logits, slope_rows

NEVER = -1e30
"""The logit of a row of the vocabulary that only fills it up: finite, so that a part of such rows alone has an entropy."""
NEVER_IN_FLOAT16 = -6e4


@dataclass(frozen=True, slots=True)
class Read:
    """What is asked of the last layer."""

    select: Tensor
    """int64 [n]: places in this worker's tokens."""
    targets: Tensor
    """int64 [n]: the tokens drawn there."""
    vocabulary: int
    """Tokens that there are; the rows of the last layer behind them fill it up."""
    temperature: float = 1.0
    with_entropy: bool = True
    statistics: tuple[str, ...] = ()
    """What of ``algorithms.distributions`` is told in place of log-probs and entropy, without gradient; none where empty."""


def read_logits(
    layer: Any, config: TransformerConfig, hidden: Tensor, read: Read, shared: Tensor | None
) -> tuple[Tensor, ...]:
    """Log-probs and entropy, or the statistics that ``read`` asks, [n] each, of what it selects of hidden states
    [tokens, 1, hidden].

    ``shared``: the embedding, where it is the last layer too.
    """
    weight: Tensor = layer.weight if shared is None else shared
    if config.sequence_parallel:
        hidden = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=True)
    chosen = hidden.flatten(0, 1).index_select(0, read.select)
    if not config.sequence_parallel:
        chosen = copy_to_tensor_model_parallel_region(chosen)
    first = parallel_state.get_tensor_model_parallel_rank() * len(weight)
    group = parallel_state.get_tensor_model_parallel_group()
    if read.statistics:
        return shared_statistics(chosen, weight, read, first, group)
    log_probs, entropy = _SharedLogProbs.apply(chosen, weight, read, first, group)
    return log_probs, entropy


@torch.no_grad()
def shared_statistics(
    hidden: Tensor, weight: Tensor, read: Read, first: int, group: dist.ProcessGroup
) -> tuple[Tensor, ...]:
    """The statistics that ``read`` asks of hidden states [n, hidden], [n] each: one gather of five numbers a token."""
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    rows, found = rows_of_head(weight), [hidden.new_empty(5, 0, dtype=dtype)]
    for start in range(0, len(hidden), rows):
        part = slice(start, start + rows)
        scaled = scaled_logits(_logits(hidden[part], weight, read, first), read.temperature, dtype)
        lse = scaled.logsumexp(-1)
        log_q = scaled.sub_(lse[:, None])
        drawn = log_q.gather(-1, _places(read.targets[part], first, weight)[:, None]).squeeze(-1)
        found.append(torch.cat((torch.stack((lse, drawn + lse)), moments(log_q))))
    every = _gather(torch.cat(found, 1), group)  # [parts, 5, n]
    lse, drawn = every[:, 0], every[:, 1]
    normalizers = lse.logsumexp(0)
    log_probs = drawn.gather(0, (read.targets // len(weight))[None]).squeeze(0) - normalizers
    told = {LOG_PROBS: log_probs, **joined(every[:, 2:], lse - normalizers)}
    return tuple(told[name] for name in read.statistics)


class ValueHead(torch.nn.Module):
    """One number a token, in float32 at least. Every tensor worker has all of it, and computes all of it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        device = None if config.use_cpu_initialization else torch.cuda.current_device()
        self.weight = torch.nn.Parameter(torch.zeros(1, config.hidden_size, dtype=config.params_dtype, device=device))
        self.bias = torch.nn.Parameter(torch.zeros(1, dtype=config.params_dtype, device=device))
        self._gathers = config.sequence_parallel

    def forward(self, hidden: Tensor, read: Read, shared: None = None) -> Tensor:
        """Values [n] at the places that ``read`` selects."""
        if self._gathers:
            hidden = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=False)
        values = self.values(hidden.flatten(0, 1).index_select(0, read.select)).squeeze(-1)
        return values.to(torch.promote_types(values.dtype, torch.float32))

    def values(self, hidden: Tensor) -> Tensor:
        """[n, hidden] to [n, 1]."""
        return F.linear(hidden, self.weight, self.bias)


class _SharedLogProbs(torch.autograd.Function):
    """Parts of the vocabulary read as whole ones, and joined; for the gradient see ``entropy._slope_rows``."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, read: Read, first: int, group: dist.ProcessGroup
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        rows, found = rows_of_head(weight), [hidden.new_empty(3, 0, dtype=dtype)]
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            logits, places = _logits(hidden[part], weight, read, first), _places(read.targets[part], first, weight)
            drawn, lse, entropy = read_rows(logits, places, read.temperature, dtype, read.with_entropy)
            del logits
            found.append(torch.stack((lse, drawn + lse, entropy)))
        lse, drawn, entropy = _gather(torch.cat(found, 1), group).unbind(1)  # [parts, n] each
        normalizers = lse.logsumexp(0)
        shares = (lse - normalizers).exp()
        owners = read.targets // len(weight)
        log_probs = drawn.gather(0, owners[None]).squeeze(0) - normalizers
        whole = normalizers - (shares * (lse - entropy)).sum(0) if read.with_entropy else torch.zeros_like(log_probs)
        ctx.save_for_backward(hidden, weight, normalizers, whole)
        ctx.read, ctx.first = read, first
        return log_probs, whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, normalizers, entropy = ctx.saved_tensors
        read, first = ctx.read, ctx.first
        grad_log_probs = torch.zeros_like(normalizers) if grads[0] is None else grads[0]
        grad_entropy = grads[1] if read.with_entropy else None  # None if the loss doesn't read the entropy
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        rows = (rows_of_gradient if needs_weight else rows_of_head)(weight)
        grad_hidden = torch.zeros_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=normalizers.dtype) if needs_weight else None
        for start in range(0, len(hidden), rows):
            part = slice(start, start + rows)
            targets = read.targets[part]
            slope = slope_rows(
                _logits(hidden[part], weight, read, first),
                _places(targets, first, weight),
                read.temperature,
                normalizers[part],
                None if grad_entropy is None else entropy[part],
                None if grad_entropy is None else grad_entropy[part],
                grad_log_probs[part],
                torch.where(_is_here(targets, first, weight), grad_log_probs[part], 0.0),
            )
            narrow = slope.to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = narrow @ weight
            if grad_weight is not None:
                grad_weight += narrow.T @ hidden[part]
            del slope, narrow  # before the next are there
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), None, None, None


def _logits(hidden: Tensor, weight: Tensor, read: Read, first: int) -> Tensor:
    """Those of one part, [rows, V / parts]."""
    logits = F.linear(hidden, weight)
    logits[:, max(0, read.vocabulary - first) :] = NEVER_IN_FLOAT16 if logits.dtype == torch.float16 else NEVER
    return logits


def _places(targets: Tensor, first: int, weight: Tensor) -> Tensor:
    """Where the tokens are in this part; some place where they are not."""
    return (targets - first).clamp(0, len(weight) - 1)


def _is_here(targets: Tensor, first: int, weight: Tensor) -> Tensor:
    return (targets >= first) & (targets < first + len(weight))


def _gather(mine: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[k, n] of every part, [parts, k, n]."""
    parts = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(parts, mine.contiguous(), group=group)
    return torch.stack(parts)
