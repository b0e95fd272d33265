"""The packed layout, what moves numbers between its two grains, and sums along a sequence.

    tokens     [N]  one number a counted token, sequence after sequence
    sequences  [B]  one number a sequence
    lengths    [B]  int64, counted tokens of each sequence, N in all; 0 is allowed

Tokens that the loss does not count (a prompt, a tool's output) are not in it at all: the counted tokens before and
after them are neighbours. Example: lengths [2, 0, 1], sequences [a, b, c], tokens [a1, a2, c1].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PerTokenLoss:
    """A loss before aggregation: sum the values with the weights of ``aggregation``."""

    values: Tensor
    """[N], with gradient."""
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """Each [N], without gradient: reduce them with token weights too (``token_mean`` gives a fraction or a mean)."""


def sequence_index(lengths: Tensor, tokens: int | None = None) -> Tensor:
    """Return for each token the position of its sequence: lengths [2, 0, 1] give [0, 0, 2]. int64 [N].

    ``tokens``: N. Without it a GPU is waited for, to learn the sum of ``lengths``.
    """
    return spread(torch.arange(len(lengths), device=lengths.device), lengths, tokens)


def spread(values: Tensor, lengths: Tensor, tokens: int | None = None) -> Tensor:
    """Give every token its sequence's value: [B] to [N]. ``tokens`` as for ``sequence_index``."""
    return torch.repeat_interleave(values, lengths, output_size=tokens)


def sequence_sum(values: Tensor, lengths: Tensor) -> Tensor:
    """Sum the tokens of each sequence: [N] to [B]; an empty sequence gives 0."""
    return values.new_zeros(len(lengths)).index_add(0, sequence_index(lengths, len(values)), values)


def marked(mask: Tensor, lengths: Tensor) -> Tensor:
    """Count the tokens of each sequence that are marked: bool [N] to int64 [B]."""
    sums, ends = torch.cat((lengths.new_zeros(1), mask.cumsum(0))), lengths.cumsum(0)
    return sums[ends] - sums[ends - lengths]


def last_tokens(lengths: Tensor) -> Tensor:
    """Return the positions in [N] of the last token of each sequence that has one, int64."""
    return (lengths.cumsum(0) - 1)[lengths > 0]


def discounted_sum(values: Tensor, lengths: Tensor, discount: float) -> Tensor:
    """Return y_t = sum_k discount^k x_{t+k} within each sequence. [N] to [N].

    By doubling: after the pass with stride s each y_t holds 2s terms, so a response of T tokens takes log2 T passes.
    """
    index = sequence_index(lengths, len(values))
    total = values
    stride, longest = 1, int(lengths.max()) if len(lengths) else 0
    while stride < longest:
        ahead = torch.where(index[stride:] == index[:-stride], total[stride:], 0.0)
        total = torch.cat((total[:-stride] + discount**stride * ahead, total[-stride:]))
        stride *= 2
    return total
