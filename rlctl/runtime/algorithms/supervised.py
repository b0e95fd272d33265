"""Losses that learn from given responses rather than from rewards, one number a token before aggregation."""

from __future__ import annotations

import math

from torch import Tensor

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms.packed import PerTokenLoss


def negative_log_likelihood(log_probs: Tensor) -> PerTokenLoss:
    """Return -log p of every counted token, [N]: with ``token_mean`` the cross-entropy of supervised fine-tuning."""
    return PerTokenLoss(-log_probs)


def weighted_by_probability(log_probs: Tensor) -> PerTokenLoss:
    """Return -p log p with the first p a constant, [N]: the policy as its own importance weight.

    Source: On the generalization of SFT (DFT), arXiv:2508.05629; as in Trinity-RFT's chord_policy_loss.py (sft_is).
    """
    return PerTokenLoss(-log_probs.detach().exp() * log_probs)


def chord_phi_loss(log_probs: Tensor, *, cutoff_prob: float = 1.0) -> PerTokenLoss:
    """Return -p (1 - p) log p with p (1 - p) a constant, [N]: tokens that are certain either way weigh little.

    Below 1, ``cutoff_prob`` leaves tokens without a gradient whose p is above it.

    Raises:
        ConfigError: cutoff_prob is not in (0, 1].

    Source: CHORD-phi, arXiv:2508.11408, equation 7; as in Trinity-RFT's chord_policy_loss.py (sft_phi).
    """
    if not 0 < cutoff_prob <= 1:
        raise ConfigError(said("cutoff_prob is {cutoff_prob}; expected above 0 and at most 1", cutoff_prob=cutoff_prob))
    p = log_probs.detach().exp()
    return PerTokenLoss(-p * (1 - p) * log_probs.clamp(max=math.log(cutoff_prob)))
