"""Numbers of the whole distribution that a token was drawn from, without gradient: what an advantage may read beside log-probs.

    entropy                 H = -sum of p log p
    squared_probabilities   sum of p^2
    expected_signal         sum of p S, with S = p (H + log p), the entropy signal of ``clipb`` and ``clipv``

A vocabulary may be in parts. Each part sums over its own softmax q, and ``joined`` makes of the sums those of p = w q, where w
is the part's share of the probability: a few numbers a token are all that workers have to tell each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from rlctl.runtime.algorithms.entropy import rows_at_once, rows_of_head, scaled_logits

STATISTICS = ("entropy", "squared_probabilities", "expected_signal")
LOG_PROBS = "log_probs"
"""The name of the log-prob of the token drawn among the statistics."""


def moments(log_q: Tensor) -> Tensor:
    """Return -sum of q log q, sum of q^2, and sum of q^2 log q over a part of the vocabulary: [rows, V] to [3, rows].

    ``log_q`` is written over: it may take a gigabyte.
    """
    q = log_q.clamp_(min=torch.finfo(log_q.dtype).min).exp()  # a token that cannot be drawn gives 0, not NaN
    weighted = log_q.mul_(q)
    entropy = -weighted.sum(-1)
    squared_logs = weighted.mul_(q).sum(-1)
    return torch.stack((entropy, q.square_().sum(-1), squared_logs))


def joined(parts: Tensor, log_shares: Tensor) -> Mapping[str, Tensor]:
    """Return every statistic, [N] each, of the moments of all parts and the logarithms of their shares.

    Args:
        parts: [P, 3, N], of each part.
        log_shares: [P, N], log w.
    """
    shares = log_shares.exp()
    entropies, squares, squared_logs = parts.unbind(1)
    entropy = (shares * (entropies - log_shares)).sum(0)
    squared = (shares.square() * squares).sum(0)
    expected = entropy * squared + (shares.square() * (squared_logs + log_shares * squares)).sum(0)
    return dict(zip(STATISTICS, (entropy, squared, expected), strict=True))


@torch.no_grad()
def statistics_of_logits(
    logits: Tensor, targets: Tensor, names: Sequence[str], *, temperature: float = 1.0, chunk: int | None = None
) -> Tensor:
    """Return numbers of softmax(logits / temperature), in the order of ``names``: [K, N].

    logits: [N, V]; targets: int64 [N]; ``names``: of ``STATISTICS``, or ``LOG_PROBS``; ``chunk``: rows at a time. Logits of less
    than float32 are worked on, and the results returned, in float32.
    """
    return _walked(lambda part: logits[part], targets, names, temperature, rows_at_once(logits, chunk), logits.dtype)


@torch.no_grad()
def statistics_of_hidden(
    hidden: Tensor,
    head: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    names: Sequence[str],
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> Tensor:
    """Return what ``statistics_of_logits`` says of logits = hidden head^T + bias, which are never whole: [K, N]."""
    rows = rows_of_head(head, chunk)
    return _walked(lambda part: F.linear(hidden[part], head, bias), targets, names, temperature, rows, hidden.dtype)


def _walked(
    logits: Callable[[slice], Tensor],
    targets: Tensor,
    names: Sequence[str],
    temperature: float,
    rows: int,
    dtype: torch.dtype,
) -> Tensor:
    wide = torch.promote_types(dtype, torch.float32)
    found = targets.new_empty(len(names), len(targets), dtype=wide)
    for start in range(0, len(targets), rows):
        part = slice(start, start + rows)
        scaled = scaled_logits(logits(part), temperature, wide)
        log_p = scaled.sub_(scaled.logsumexp(-1)[:, None])
        drawn = log_p.gather(-1, targets[part, None]).squeeze(-1)
        told = {LOG_PROBS: drawn, **joined(moments(log_p)[None], torch.zeros_like(drawn)[None])}
        found[:, part] = torch.stack([told[name] for name in names])
    return found
