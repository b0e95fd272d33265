"""Supervised fine-tuning minimizes the cross-entropy of the counted tokens."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from rlctl.runtime.algorithms.aggregation import Totals, aggregate, token_weights
from rlctl.runtime.algorithms.entropy import log_probs
from rlctl.runtime.algorithms.supervised import negative_log_likelihood


def test_token_mean_is_torch_cross_entropy() -> None:
    logits, targets = torch.randn(6, 11), torch.randint(0, 11, (6,))
    lengths = torch.tensor([4, 0, 2])
    weights = token_weights("token_mean", lengths, Totals.of(lengths))
    loss = aggregate(negative_log_likelihood(log_probs(logits, targets)).values, weights, lengths)
    assert_close(loss, torch.nn.functional.cross_entropy(logits, targets))
