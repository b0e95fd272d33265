"""KL(policy || reference): per-token estimators from the sampled token's log-probs, and controllers of the coefficient.

With x = log policy - log reference, on tokens drawn from the policy. All of them estimate the KL by their value, but as
a loss they pull differently: on average the gradient of k2 is that of the KL, that of k1 is zero, that of k3 is the
KL's in the other direction. A ``+`` after a name takes its value and the gradient of k2.

Source: Schulman, http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms.packed import sequence_sum
from rlctl.runtime.algorithms.table import lookup

KLEstimator = Callable[[Tensor, Tensor], Tensor]
"""(log_probs [N], reference_log_probs [N]) to the estimate [N]."""

K3_LOG_RATIO_LIMIT = 20.0
"""Keeps exp finite: without it the clamp of the result has the gradient 0 * inf."""

K3_LIMIT = 10.0
"""Reached where the policy finds a token some 13 times less likely than the reference does; the token then has no
gradient, and cannot outweigh a batch."""


def k1(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Return x: unbiased, may be negative."""
    return log_probs - reference_log_probs


def absolute(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Return |x|."""
    return (log_probs - reference_log_probs).abs()


def k2(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Return x^2 / 2: biased, low variance; its gradient is the KL's."""
    return 0.5 * (log_probs - reference_log_probs).square()


def k3_unclamped(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Return exp(-x) + x - 1: unbiased, never negative; overflows where the policy finds a token far less likely."""
    log_ratio = reference_log_probs - log_probs
    return log_ratio.exp() - log_ratio - 1


def k3(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Return exp(-x) + x - 1 of x within +-20, at most 10: ``low_var_kl`` of verl's core_algos.py."""
    log_ratio = (reference_log_probs - log_probs).clamp(-K3_LOG_RATIO_LIMIT, K3_LOG_RATIO_LIMIT)
    return (log_ratio.exp() - log_ratio - 1).clamp(max=K3_LIMIT)


CORRECTION_LIMIT = 2.0
"""Largest ratio to the old policy that ``estimate`` weighs k3_corrected with, as in Trinity-RFT."""


def straight_through(estimator: KLEstimator) -> KLEstimator:
    """Return an estimator with the value of ``estimator`` and the gradient of k2. Source: kl_penalty in verl."""

    def estimate(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
        gradient = k2(log_probs, reference_log_probs)
        return gradient - gradient.detach() + estimator(log_probs, reference_log_probs).detach()

    return estimate


KL_ESTIMATORS: dict[str, KLEstimator] = {
    "abs": absolute,
    "abs+": straight_through(absolute),
    "k1": k1,
    "k1+": straight_through(k1),
    "k2": k2,
    "k2+": k2,
    "k3": k3,
    "k3+": straight_through(k3),
    "k3_corrected": k3_unclamped,
    "k3_unclamped": k3_unclamped,
}
"""``k3_corrected`` is k3_unclamped where the tokens are the policy's own; ``estimate`` weighs it where they are older."""


def estimate(name: str, log_probs: Tensor, reference_log_probs: Tensor, old_log_probs: Tensor | None = None) -> Tensor:
    """Return the estimate called ``name``, all [N].

    With ``old_log_probs``, k3_corrected is min(policy / old policy, 2) * k3_unclamped, the weight with its gradient:
    tokens drawn from the old policy stand for the new one.

    Raises:
        ConfigError: no such estimator.

    Source: CorrectedK3Fn in Trinity-RFT's kl_fn.py.
    """
    result = lookup(KL_ESTIMATORS, name, "KL estimator")(log_probs, reference_log_probs)
    if name == "k3_corrected" and old_log_probs is not None:
        return (log_probs - old_log_probs).exp().clamp(max=CORRECTION_LIMIT) * result
    return result


@torch.no_grad()
def mean_over_responses(values: Tensor, lengths: Tensor) -> float:
    """Return the mean over responses of the means of their tokens, [N] and [B]: the KL that the controller steers."""
    if not len(lengths):
        return 0.0
    return float((sequence_sum(values.double(), lengths) / lengths.clamp(min=1)).mean())


class KLController(Protocol):
    """Holds the coefficient of the KL in the reward; the coefficient is its whole state."""

    coefficient: float

    def update(self, current_kl: float, sequences: int) -> None:
        """Take in the mean KL of a step of ``sequences`` responses."""


@dataclass
class FixedKL:
    """A coefficient that stays."""

    coefficient: float

    def update(self, current_kl: float, sequences: int) -> None:
        """Do nothing."""


@dataclass
class AdaptiveKL:
    """A coefficient that steers the KL towards a target: c *= 1 + clip(kl / target - 1, +-0.2) * sequences / horizon.

    Source: Ziegler et al., arXiv:1909.08593, section 2.2.
    """

    coefficient: float
    target: float
    """The KL aimed for, in nats a token as the caller measures it."""
    horizon: int
    """Responses over which a steady error of 20 % or more changes the coefficient by about 20 %."""

    def __post_init__(self) -> None:
        for name in ("target", "horizon"):
            if getattr(self, name) <= 0:
                raise ConfigError(
                    said(
                        "algorithm.kl_in_reward.{name} is {value}; expected above 0",
                        name=name,
                        value=getattr(self, name),
                    )
                )

    def update(self, current_kl: float, sequences: int) -> None:
        """Move the coefficient."""
        error = min(max(current_kl / self.target - 1, -0.2), 0.2)
        self.coefficient *= 1 + error * sequences / self.horizon
