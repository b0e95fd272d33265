"""Losses that learn from given responses rather than from rewards, one number a token before aggregation."""

from __future__ import annotations

from torch import Tensor

from rlctl.runtime.algorithms.packed import PerTokenLoss


def negative_log_likelihood(log_probs: Tensor) -> PerTokenLoss:
    """Return -log p of every counted token, [N]: with ``token_mean`` the cross-entropy of supervised fine-tuning."""
    return PerTokenLoss(-log_probs)
