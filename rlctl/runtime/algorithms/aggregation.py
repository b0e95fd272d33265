"""Aggregation: the weight of every token in the loss of an optimizer step.

A mode is a rule w(sequence's own length, totals of the mini-batch), and the loss is sum_t w_t * l_t over all counted
tokens of the mini-batch. As no weight looks at the micro-batch or the replica, the sum may be split in any way:

    totals = sum of Totals.of(lengths) over micro-batches and replicas       once, before the first backward
    loss   = aggregate(values, token_weights(mode, lengths, totals), lengths)    for each micro-batch; then backward

Gradients are to be *summed* over replicas. An engine that averages them multiplies the loss by their number.
Metrics take the same road: ``token_mean`` weights turn a per-token indicator into a fraction.

Formulas: agg_loss in verl's core_algos.py with its global numbers given (``batch_num_tokens``, ``global_batch_size``).
There as here a sequence without a counted token adds nothing to the sum and still counts as a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms.packed import spread
from rlctl.runtime.algorithms.table import Algorithm, lookup


@dataclass(frozen=True, slots=True)
class Totals:
    """What a mini-batch holds, over all its micro-batches and replicas; add the parts' to get the whole's."""

    tokens: int
    """Counted tokens."""
    sequences: int
    """Sequences, those without a counted token included."""
    expert_tokens: int = 0
    """Of these, tokens of expert responses (mix)."""
    expert_sequences: int = 0
    """Of these, expert responses."""

    @classmethod
    def of(cls, lengths: Tensor) -> Totals:
        """Count a part of the mini-batch. lengths: [B]."""
        return cls(tokens=int(lengths.sum()), sequences=len(lengths))

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.tokens + other.tokens,
            self.sequences + other.sequences,
            self.expert_tokens + other.expert_tokens,
            self.expert_sequences + other.expert_sequences,
        )

    @property
    def experts(self) -> Totals:
        """Of the expert responses alone."""
        return Totals(self.expert_tokens, self.expert_sequences)

    @property
    def rolled_out(self) -> Totals:
        """Of the others."""
        return Totals(self.tokens - self.expert_tokens, self.sequences - self.expert_sequences)


def token_mean(lengths: Tensor, totals: Totals) -> Tensor:
    """1 / all tokens: every token counts the same, long responses more. Empty sequences make no difference."""
    return torch.full_like(lengths, 1 / totals.tokens)


def token_sum(lengths: Tensor, totals: Totals) -> Tensor:
    """1: no normalization, a larger mini-batch is a larger step. Empty sequences make no difference."""
    return torch.ones_like(lengths)


def seq_mean_token_sum(lengths: Tensor, totals: Totals) -> Tensor:
    """1 / all sequences, empty ones counted."""
    return torch.full_like(lengths, 1 / totals.sequences)


def seq_mean_token_mean(lengths: Tensor, totals: Totals) -> Tensor:
    """1 / (own length * all sequences), empty ones counted: every response counts the same (GRPO as published)."""
    return 1 / (lengths.clamp(min=1) * totals.sequences)


def seq_mean_token_sum_norm(lengths: Tensor, totals: Totals, *, scale_factor: float) -> Tensor:
    """1 / (scale_factor * all sequences), empty ones counted (Dr. GRPO: scale_factor is the longest response allowed).

    verl without a factor takes the padded width of the batch at hand; here the factor has to be given.
    """
    return torch.full_like(lengths, 1 / (scale_factor * totals.sequences))


AGGREGATIONS: dict[str, Algorithm] = {
    "seq_mean_token_mean": Algorithm(seq_mean_token_mean),
    "seq_mean_token_sum": Algorithm(seq_mean_token_sum),
    "seq_mean_token_sum_norm": Algorithm(seq_mean_token_sum_norm),
    "token_mean": Algorithm(token_mean),
    "token_sum": Algorithm(token_sum),
}


def token_weights(
    mode: str,
    lengths: Tensor,
    totals: Totals,
    *,
    scale_factor: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the weight of each token of sequence b. int64 [B] to ``dtype`` [B]; worked out in float64.

    Raises:
        ConfigError: no such mode, a scale factor that is missing or not positive, or one for a mode that has none.
    """
    rule = lookup(AGGREGATIONS, mode, "aggregation")
    takes_factor = "scale_factor" in rule.options
    if takes_factor != (scale_factor is not None):
        wants = (
            "a scale factor, got none"
            if takes_factor
            else said("no scale factor, got {scale_factor}", scale_factor=scale_factor)
        )
        raise ConfigError(said("aggregation {mode} takes {wants}", mode=mode, wants=wants))
    if scale_factor is not None and scale_factor <= 0:
        raise ConfigError(
            said(
                "algorithm.loss_aggregation.scale_factor is {scale_factor}; {mode} expects a number above 0",
                mode=mode,
                scale_factor=scale_factor,
            )
        )
    options = {} if scale_factor is None else {"scale_factor": scale_factor}
    never_zero = Totals(max(totals.tokens, 1), max(totals.sequences, 1))
    return rule({"lengths": lengths.double(), "totals": never_zero}, **options).to(dtype)


def aggregate(values: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """Return sum_t w_t * l_t of a micro-batch: values [N], weights and lengths [B]. A scalar, 0 for no tokens."""
    return (values * spread(weights, lengths, len(values))).sum()
