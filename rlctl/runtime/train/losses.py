"""The losses an engine can be given: the policy gradient of the config, and imitation.

Per-token values come from ``runtime.algorithms``; here they are chosen by config, weighted and added up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlctl.config.sections.algorithm import Algorithm, Cispo, Gspo, PolicyGradient, PpoClip
from rlctl.config.sections.algorithm import PolicyLoss as PolicyLossChoice
from rlctl.errors import PlanError
from rlctl.runtime.algorithms.aggregation import Totals, aggregate, token_weights
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.algorithms.packed import PerTokenLoss
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.algorithms.supervised import negative_log_likelihood
from rlctl.runtime.algorithms.table import lookup
from rlctl.runtime.train.interface import LossTerms
from rlctl.runtime.types import Sample

FUNCTIONS: dict[type[PolicyLossChoice], str] = {
    PpoClip: "ppo_clip",
    Gspo: "gspo",
    Cispo: "cispo",
    PolicyGradient: "policy_gradient",
}
"""Which entry of ``POLICY_LOSSES`` computes a choice; the choice's fields are its options."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How per-token values add up."""

    mode: str
    scale_factor: float | None = None

    def total(self, values: Tensor, lengths: Tensor, totals: Totals) -> Tensor:
        """Sum values [N] with each token's weight in the mini-batch. A scalar."""
        weights = token_weights(self.mode, lengths, totals, scale_factor=self.scale_factor, dtype=values.dtype)
        return aggregate(values, weights, lengths)


TOKEN_MEAN = Weights("token_mean")
"""How metrics are reduced that are no losses: indicators become fractions of all tokens."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Policy loss + coefficient * KL to the reference - coefficient * entropy."""

    function: str
    options: Mapping[str, Any]
    weights: Weights
    kl_estimator: str | None
    kl_coefficient: float
    entropy_coefficient: float
    old_is_current: bool

    @classmethod
    def of(cls, algorithm: Algorithm, *, max_response_tokens: int, old_is_current: bool = False) -> PolicyLoss:
        """Read the loss of a config.

        Args:
            algorithm: section ``algorithm``.
            max_response_tokens: the scale of seq_mean_token_sum_norm where the config gives none.
            old_is_current: the policy that drew is the one being trained, so its log-probs are those at hand, as a
                constant, and samples need no ``old_log_probs``. Right for the first optimizer step after they were drawn.

        Raises:
            PlanError: no function computes this loss.
        """
        choice = algorithm.policy_loss
        if type(choice) not in FUNCTIONS:
            known = ", ".join(kind.choice for kind in FUNCTIONS)
            raise PlanError(f"no function computes algorithm.policy_loss {choice.choice}; expected one of {known}")
        kl = algorithm.kl_in_loss
        if kl is not None:
            lookup(KL_ESTIMATORS, kl.estimator, "KL estimator")
        return cls(
            function=FUNCTIONS[type(choice)],
            options={item.name: getattr(choice, item.name) for item in dataclasses.fields(choice)},
            weights=_weights(algorithm, max_response_tokens),
            kl_estimator=kl.estimator if kl and kl.coefficient else None,
            kl_coefficient=kl.coefficient if kl else 0.0,
            entropy_coefficient=algorithm.entropy_coefficient,
            old_is_current=old_is_current,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sample that it reads."""
        old = () if self.old_is_current else ("old_log_probs",)
        reference = ("reference_log_probs",) if self.kl_estimator else ()
        return ("advantages", *old, *reference)

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metrics: policy_loss, kl_loss, entropy, and those of the policy loss."""
        log_probs, lengths = tensors["log_probs"], tensors["lengths"]
        if self.old_is_current:
            tensors = {**tensors, "old_log_probs": log_probs.detach()}
        policy: PerTokenLoss = POLICY_LOSSES[self.function](tensors, **self.options)
        losses = {"policy_loss": (1.0, policy.values)}
        if self.kl_estimator is not None:
            kl = KL_ESTIMATORS[self.kl_estimator](log_probs, tensors["reference_log_probs"])
            losses["kl_loss"] = (self.kl_coefficient, kl)
        indicators = {"entropy": tensors["entropy"].detach(), **policy.metrics}
        terms = {name: self.weights.total(values, lengths, totals) for name, (_, values) in losses.items()}
        loss = sum((losses[name][0] * term for name, term in terms.items()), log_probs.new_zeros(()))
        if self.entropy_coefficient != 0:
            loss = loss - self.entropy_coefficient * self.weights.total(tensors["entropy"], lengths, totals)
        metrics = {name: term.detach() for name, term in terms.items()}
        metrics |= {name: TOKEN_MEAN.total(values, lengths, totals) for name, values in indicators.items()}
        return LossTerms(loss, metrics)


@dataclass(frozen=True, slots=True)
class SftLoss:
    """Negative log-likelihood of the counted tokens."""

    weights: Weights = TOKEN_MEAN
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, algorithm: Algorithm, *, max_response_tokens: int) -> SftLoss:
        """Read the loss of a config; ``max_response_tokens`` as for ``PolicyLoss``."""
        return cls(_weights(algorithm, max_response_tokens))

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metric: entropy."""
        lengths = tensors["lengths"]
        loss = self.weights.total(negative_log_likelihood(tensors["log_probs"]).values, lengths, totals)
        return LossTerms(loss, {"entropy": TOKEN_MEAN.total(tensors["entropy"].detach(), lengths, totals)})


def _weights(algorithm: Algorithm, max_response_tokens: int) -> Weights:
    aggregation = algorithm.aggregation
    if aggregation.mode != "seq_mean_token_sum_norm":
        return Weights(aggregation.mode)
    return Weights(aggregation.mode, aggregation.scale_factor or float(max_response_tokens))


def totals_of(samples: Sequence[Sample]) -> Totals:
    """Count a whole mini-batch, over all its replicas."""
    return Totals.of(torch.tensor([int(sample.mask.sum()) for sample in samples], dtype=torch.int64))
