"""The losses an engine can be given: the policy gradient of the config, imitation, and the critic's.

Per-token values come from ``runtime.algorithms``; here they are chosen by config, weighted and added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.algorithm import Algorithm, RolloutCorrection
from rlctl.config.sections.train import ValueLoss
from rlctl.runtime.algorithms.aggregation import Totals, aggregate, token_weights
from rlctl.runtime.algorithms.correction import Rejection, keeps, mismatch
from rlctl.runtime.algorithms.correction import weights as importance_weights
from rlctl.runtime.algorithms.divergence import WHOLE_KL
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.algorithms.kl import estimate as estimate_kl
from rlctl.runtime.algorithms.packed import PerTokenLoss, marked
from rlctl.runtime.algorithms.supervised import negative_log_likelihood
from rlctl.runtime.algorithms.table import Algorithm as Function
from rlctl.runtime.algorithms.table import lookup
from rlctl.runtime.algorithms.value_loss import clipped_value_loss
from rlctl.runtime.experience.selection import corrects, fixed_aggregation, has_weights, loss_of
from rlctl.runtime.train.interface import LossTerms
from rlctl.runtime.types import Sample, trajectories_of

TRAJECTORY_TOKENS = "trajectory_tokens"
"""The column with the counted tokens of a sample's trajectory, all its rows together, at each token."""
NO_TENSORS: Mapping[str, Tensor] = {}


@dataclass(frozen=True, slots=True)
class Weights:
    """How per-token values add up."""

    mode: str
    scale_factor: float | None = None
    by_micro_batch: bool = False
    """Each micro-batch is aggregated by itself, and weighs as its share of the sequences, so that the loss depends on how a
    mini-batch is split. Source: ``loss_scale`` in Trinity-RFT 0.5, trinity/trainer/verl/dp_actor.py."""
    by_trajectory: bool = False
    """Whether a sequence of these means is a whole trajectory; ``totals`` then count those."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sample that they read."""
        return (TRAJECTORY_TOKENS,) if self.by_trajectory and self.mode == "seq_mean_token_mean" else ()

    def total(
        self, values: Tensor, lengths: Tensor, totals: Totals, tensors: Mapping[str, Tensor] = NO_TENSORS
    ) -> Tensor:
        """Sum values [N] with each token's weight in the mini-batch. A scalar. ``tensors`` hold their ``columns``."""
        share, over, mode = 1.0, totals, self.mode
        if self.columns:
            values, mode = values / tensors[TRAJECTORY_TOKENS], "seq_mean_token_sum"
        if self.by_micro_batch:
            over = Totals.of(lengths)
            share = over.sequences / max(totals.sequences, 1)
        weights = token_weights(mode, lengths, over, scale_factor=self.scale_factor, dtype=values.dtype)
        return share * aggregate(values, weights, lengths)


TOKEN_MEAN = Weights("token_mean")
"""How metrics are reduced that are no losses: indicators become fractions of all tokens."""


@dataclass(frozen=True, slots=True)
class LiveCorrection:
    """Correction by the log-probs of the moment, where those of the rollout engine stand for the old policy's.

    Tokens are rejected; weights are for the plain policy gradient only, as a clipped ratio to the rollout engine corrects
    by itself. Source: compute_policy_loss_bypass_mode in verl's core_algos.py.
    """

    rules: tuple[Rejection, ...]
    chosen: RolloutCorrection

    @classmethod
    def of(cls, chosen: RolloutCorrection) -> LiveCorrection:
        """Read the section ``algorithm.rollout_correction``.

        Raises:
            PlanError: it asks for something that takes more than a micro-batch to know.
        """
        weighted = chosen.use_policy_gradient and chosen.importance_sampling.level != "none"
        sampling = chosen.importance_sampling
        for key, wanted in (("normalize", sampling.normalize), ("level", sampling.level == "segment")):
            if weighted and wanted:
                raise PlanError(
                    said(
                        "algorithm.rollout_correction.importance_sampling.{key} is {value} with old_log_probs rollout; "
                        "weights from current log-probs see only one micro-batch",
                        key=key,
                        value=getattr(sampling, key),
                    ),
                    hint="set algorithm.old_log_probs to recompute",
                )
        return cls(Rejection.parse(chosen.rejection, chosen.rejection_bounds), chosen)

    def factors(self, log_ratio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """What multiplies the policy loss of each token, and whether it is kept: [N], bool [N]."""
        chosen = self.chosen
        kept = keeps(log_ratio, lengths, self.rules, chosen.veto_threshold)
        weights = torch.ones_like(log_ratio)
        if chosen.use_policy_gradient and chosen.importance_sampling.level != "none":
            weights = importance_weights(
                log_ratio,
                lengths,
                chosen.importance_sampling.level,
                upper=chosen.importance_sampling.threshold,
                lower=chosen.importance_sampling.lower_threshold,
            )
        return weights * kept, kept


@dataclass(frozen=True, slots=True)
class Regularizers:
    """Coefficient * KL to the reference - coefficient * entropy: what any objective may have beside its loss."""

    weights: Weights
    kl_estimator: str | None
    kl_coefficient: float
    entropy_coefficient: float

    @classmethod
    def of(cls, algorithm: Algorithm, weights: Weights, *, kl_weight: float = 1.0) -> Regularizers:
        """Read those of a config; ``kl_weight`` multiplies the coefficient of the KL.

        Raises:
            ConfigError: no such estimator.
        """
        kl = algorithm.kl_in_loss
        if kl is not None and kl.estimator != "full":
            lookup(KL_ESTIMATORS, kl.estimator, "KL estimator")
        return cls(
            weights=weights,
            kl_estimator=kl.estimator if kl and kl.coefficient else None,
            kl_coefficient=kl_weight * kl.coefficient if kl else 0.0,
            entropy_coefficient=algorithm.entropy_coefficient,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sample that they read."""
        reference = ("reference_log_probs",) if self.kl_estimator and self.kl_estimator != "full" else ()
        return (*reference, *self.weights.columns)

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metric: kl_loss, without its coefficient."""
        log_probs, lengths = tensors["log_probs"], tensors["lengths"]
        loss, metrics = log_probs.new_zeros(()), {}
        if self.kl_estimator is not None:
            kl = self.weights.total(self._kl(tensors), lengths, totals, tensors)
            loss, metrics["kl_loss"] = loss + self.kl_coefficient * kl, kl.detach()
        if self.entropy_coefficient != 0:
            entropy = self.weights.total(tensors["entropy"], lengths, totals, tensors)
            loss = loss - self.entropy_coefficient * entropy
        return LossTerms(loss, metrics)

    def _kl(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Of every token, [N]: of the whole distributions, or an estimate from the token drawn."""
        if self.kl_estimator is None or self.kl_estimator == "full":
            return tensors[WHOLE_KL]
        reference, old = tensors["reference_log_probs"], tensors.get("old_log_probs")
        return estimate_kl(self.kl_estimator, tensors["log_probs"], reference, old)


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Weight * (policy loss + coefficient * KL to the reference) - coefficient * entropy."""

    function: Function
    options: Mapping[str, Any]
    weights: Weights
    regularizers: Regularizers
    old_is_current: bool
    old_is_rollout: bool = False
    """Whether the rollout engine's log-probs stand for the old policy's."""
    weight: float = 1.0
    has_token_weights: bool = False
    """Whether samples have the column ``policy_weights``."""
    live: LiveCorrection | None = None

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
        function, options = loss_of(algorithm)
        rollout = algorithm.old_log_probs == "rollout"
        correction = algorithm.rollout_correction
        weights = weights_of(algorithm, max_response_tokens)
        fixed = fixed_aggregation(algorithm)
        if (
            getattr(algorithm.policy_loss, "kind", "") == "geo_mean"
            and correction is not None
            and correction.importance_sampling.level in ("token", "segment")
        ):
            raise PlanError(
                said(
                    "a whole-response loss (geo_mean) takes no token-level weights, but the level is {level}",
                    level=correction.importance_sampling.level,
                ),
                hint="set algorithm.rollout_correction.importance_sampling.level to sequence or geometric",
            )
        return cls(
            function=function,
            options=options,
            weights=Weights(fixed, by_trajectory=weights.by_trajectory) if fixed else weights,
            regularizers=Regularizers.of(algorithm, weights, kl_weight=algorithm.loss_weights.rl),
            old_is_current=old_is_current,
            old_is_rollout=rollout,
            weight=algorithm.loss_weights.rl,
            has_token_weights=has_weights(algorithm),
            live=LiveCorrection.of(correction) if correction and rollout and corrects(algorithm) else None,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sample that it reads."""
        old = () if self.old_is_current else ("old_log_probs",)
        weights: tuple[str, ...] = ("policy_weights",) if self.has_token_weights else ()
        weights += tuple(name for name in ("chosen", "segments") if name in self.function.reads)
        found = ("advantages", "rollout_log_probs", *old, *self.regularizers.columns, *weights, *self.weights.columns)
        return tuple(dict.fromkeys(found))

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metrics: policy_loss, kl_loss, entropy, mismatch_*, and those of the policy loss."""
        log_probs, lengths = tensors["log_probs"], tensors["lengths"]
        if self.old_is_current:
            tensors = {**tensors, "old_log_probs": log_probs.detach()}
        policy: PerTokenLoss = self.function(tensors, **self.options)
        trained = log_probs.detach() if self.old_is_rollout else tensors["old_log_probs"]
        indicators = {
            "entropy": tensors["entropy"].detach(),
            **policy.metrics,
            **mismatch(trained.to(log_probs.dtype), tensors["rollout_log_probs"].to(log_probs.dtype)),
        }
        values = policy.values
        if self.has_token_weights:
            values = values * tensors["policy_weights"]
        if self.live is not None:
            factors, kept = self.live.factors(trained - tensors["rollout_log_probs"], lengths)
            values = values * factors
            indicators["rejected_share"] = (~kept).to(values.dtype)
        policy_loss = self.weights.total(values, lengths, totals, tensors)
        further = self.regularizers(tensors, totals)
        metrics = {"policy_loss": policy_loss.detach(), **further.metrics}
        metrics |= {name: TOKEN_MEAN.total(values, lengths, totals) for name, values in indicators.items()}
        return LossTerms(self.weight * policy_loss + further.loss, metrics)


@dataclass(frozen=True, slots=True)
class SftLoss:
    """Negative log-likelihood of the counted tokens."""

    weights: Weights = TOKEN_MEAN
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, algorithm: Algorithm, *, max_response_tokens: int) -> SftLoss:
        """Read the loss of a config; ``max_response_tokens`` as for ``PolicyLoss``."""
        return cls(weights_of(algorithm, max_response_tokens))

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metric: entropy."""
        lengths = tensors["lengths"]
        loss = self.weights.total(negative_log_likelihood(tensors["log_probs"]).values, lengths, totals)
        return LossTerms(loss, {"entropy": TOKEN_MEAN.total(tensors["entropy"].detach(), lengths, totals)})


@dataclass(frozen=True, slots=True)
class CriticLoss:
    """Coefficient * clipped squared error of the critic's values."""

    clip: float | None
    weights: Weights
    coefficient: float = 1.0
    columns: tuple[str, ...] = ("old_values", "returns")

    @classmethod
    def of(cls, chosen: ValueLoss, *, max_response_tokens: int) -> CriticLoss:
        """Read the section ``critic.value_loss``; ``max_response_tokens`` is the scale of seq_mean_token_sum_norm."""
        norm = chosen.aggregation == "seq_mean_token_sum_norm"
        weights = Weights(chosen.aggregation, float(max_response_tokens) if norm else None)
        return cls(chosen.clip, weights, chosen.coefficient)

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metrics: value_loss, value_mean, and clip_fraction where values are clipped."""
        values, lengths = tensors["values"], tensors["lengths"]
        per_token = clipped_value_loss(values, tensors["old_values"], tensors["returns"], clip=self.clip)
        loss = self.weights.total(per_token.values, lengths, totals)
        indicators = {"value_mean": values.detach(), **per_token.metrics}
        metrics = {name: TOKEN_MEAN.total(each, lengths, totals) for name, each in indicators.items()}
        return LossTerms(self.coefficient * loss, {"value_loss": loss.detach(), **metrics})


def weights_of(algorithm: Algorithm, max_response_tokens: int) -> Weights:
    """How the per-token values of a config add up.

    Raises:
        PlanError: means are over trajectories and taken for each micro-batch, which may have only a part of one.
    """
    aggregation = algorithm.loss_aggregation
    by_trajectory = counts_trajectories(algorithm)
    if by_trajectory and aggregation.per_micro_batch:
        raise PlanError(
            "algorithm.loss_aggregation has unit trajectory and per_micro_batch true, but a micro-batch may contain only some "
            "rows of a trajectory",
            hint="set per_micro_batch to false",
        )
    scale = None
    if aggregation.mode == "seq_mean_token_sum_norm":
        scale = aggregation.scale_factor or float(max_response_tokens)
    return Weights(aggregation.mode, scale, by_micro_batch=aggregation.per_micro_batch, by_trajectory=by_trajectory)


def counts_trajectories(algorithm: Algorithm) -> bool:
    """Whether means over responses count an agent's trajectory once, however many rows it has."""
    return algorithm.loss_aggregation.unit == "trajectory" and algorithm.objective.choice in ("rl", "mix")


def counted_tokens(samples: Sequence[Sample]) -> list[int]:
    """Tokens of each sample that the loss counts."""
    masks = [sample.mask for sample in samples]
    return marked(torch.cat(masks), torch.tensor(list(map(len, masks)))).tolist() if masks else []


def totals_of(samples: Sequence[Sample], *, by_trajectory: bool = False) -> Totals:
    """Count a whole mini-batch, over all its replicas; a sample that a filter left out is no sequence of it.

    ``by_trajectory``: a sequence is a trajectory, all rows of which are in the mini-batch.
    """
    counted = [sample for sample in samples if sample.counted]
    lengths = counted_tokens(counted)
    experts = [length for length, sample in zip(lengths, counted, strict=True) if sample.expert]
    sequences = len(set(trajectories_of(counted))) if by_trajectory else len(lengths)
    return Totals(sum(lengths), sequences, sum(experts), len(experts))


def add_trajectory_tokens(samples: Sequence[Sample]) -> None:
    """Write the column ``trajectory_tokens``."""
    owners, lengths = trajectories_of(samples), counted_tokens(samples)
    of_each = Counter[int]()
    for owner, length in zip(owners, lengths, strict=True):
        of_each[owner] += length
    for owner, sample in zip(owners, samples, strict=True):
        sample.columns[TRAJECTORY_TOKENS] = torch.full((len(sample),), max(1.0, of_each[owner]))
