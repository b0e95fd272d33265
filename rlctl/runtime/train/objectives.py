"""The losses of objectives that learn from given responses: preference pairs, and expert responses beside rollouts.

Per-token and per-pair values come from ``runtime.algorithms``; here they are chosen by config, weighted and added up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.algorithm import Aggregation, Algorithm, DpoObjective, MixObjective, PpoClip
from rlctl.runtime.algorithms.aggregation import AGGREGATIONS, Totals
from rlctl.runtime.algorithms.packed import sequence_sum
from rlctl.runtime.algorithms.preference import PAIR, dpo
from rlctl.runtime.algorithms.supervised import chord_phi_loss, negative_log_likelihood
from rlctl.runtime.train.interface import LossTerms
from rlctl.runtime.train.losses import TOKEN_MEAN, PolicyLoss, Regularizers, Weights, weights_of


@dataclass(frozen=True, slots=True)
class DpoLoss:
    """Mean over the pairs of a mini-batch of ``preference.dpo``, and what regularises it.

    A micro-batch holds whole pairs, chosen before rejected.
    """

    beta: float
    label_smoothing: float
    ipo: bool
    regularizers: Regularizers
    columns: tuple[str, ...] = ("reference_log_probs",)

    @classmethod
    def of(cls, algorithm: Algorithm, chosen: DpoObjective, *, max_response_tokens: int) -> DpoLoss:
        """Read the loss of a config; ``max_response_tokens`` as for ``PolicyLoss``.

        Raises:
            ConfigError: the KL has an estimator that there is not.
        """
        weights = weights_of(algorithm, max_response_tokens)
        return cls(chosen.beta, chosen.label_smoothing, chosen.ipo, Regularizers.of(algorithm, weights))

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metrics: dpo_loss, accuracy, margin, chosen_reward, rejected_reward, entropy."""
        lengths, pairs = tensors["lengths"], max(totals.sequences // PAIR, 1)
        found = dpo(
            tensors["log_probs"],
            tensors["reference_log_probs"],
            lengths,
            beta=self.beta,
            label_smoothing=self.label_smoothing,
            ipo=self.ipo,
        )
        loss, further = found.values.sum() / pairs, self.regularizers(tensors, totals)
        metrics = {name: values.sum() / pairs for name, values in found.metrics.items()}
        metrics["entropy"] = TOKEN_MEAN.total(tensors["entropy"].detach(), lengths, totals)
        return LossTerms(loss + further.loss, {"dpo_loss": loss.detach(), **metrics, **further.metrics})


CHORD = ("mu_warmup_steps", "mu_decay_steps", "mu_peak", "mu_valley", "enable_phi_function")
"""Arguments of ``algorithm.objective.args`` that make a mix CHORD's."""
CLIPS = ("clip_range", "clip_range_low", "clip_range_high")
MODES = ("sft_loss_agg_mode", "grpo_loss_agg_mode")
SIZES = ("train_batch_size_usual", "train_batch_size_expert")
SPLITS = ("use_dynamic_bsz", "ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu", "ngpus_trainer")
"""By these Trinity-RFT makes up for how a mini-batch is split, which changes nothing here."""


@dataclass(frozen=True, slots=True)
class Mu:
    """The weight of the experts: up to ``peak`` in a line, then down to ``valley`` in half a cosine.

    Source: CHORD-mu, arXiv:2508.11408; as in Trinity-RFT's chord_policy_loss.py (mu_schedule_function).
    """

    peak: float
    valley: float
    warmup: int = 0
    decay: int = 0

    def at(self, number: int) -> float:
        """In the ``number``-th mini-batch; the first is 1."""
        if number < self.warmup:
            return number / self.warmup * self.peak
        past = number - self.warmup
        if past >= self.decay:
            return self.valley
        return self.valley + (self.peak - self.valley) * 0.5 * (1 + math.cos(math.pi * past / self.decay))


@dataclass(frozen=True, slots=True)
class MixLoss:
    """(1 - mu) * policy loss of the responses rolled out + mu * imitation of the experts', each averaged over its own.

    KL is over both, entropy over what was rolled out.

    Source: MIX and CHORD in Trinity-RFT (mix_policy_loss.py, chord_policy_loss.py), normalised over the whole mini-batch.
    """

    policy: PolicyLoss
    """Without KL and entropy."""
    mu: float
    doubt: bool
    """Whether expert tokens are weighed by p (1 - p) (CHORD-phi)."""
    expert_weights: Weights
    kl: Regularizers
    entropy: Regularizers

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        chosen: MixObjective,
        policy: PolicyLoss,
        *,
        max_response_tokens: int,
        sizes: Sequence[int],
        number: int,
    ) -> MixLoss:
        """Read the loss of a config, for the ``number``-th mini-batch.

        Args:
            algorithm: the section.
            chosen: its objective.
            policy: the loss of what was rolled out, as ``rl`` would have it.
            max_response_tokens: of the section ``rollout``.
            sizes: responses of a mini-batch: rolled out, and of experts.
            number: of the mini-batch.

        Raises:
            PlanError: an argument that is not known, or does not fit.
        """
        args, longest = chosen.args, max_response_tokens
        known = (*CHORD, *CLIPS, *MODES, *SIZES, *SPLITS)
        for name in args:
            if name not in known:
                hint = nearest(name, known) or said("expected one of {names}", names=", ".join(known))
                raise PlanError(said("algorithm.objective.args of mix has no argument {name}", name=name), hint=hint)
        _check_sizes(sizes, args)
        weights = {name: _mode(algorithm, args.get(name), longest) for name in MODES}
        off = dataclasses.replace(policy.regularizers, kl_estimator=None, kl_coefficient=0.0, entropy_coefficient=0.0)
        if args.get("grpo_loss_agg_mode"):
            policy = dataclasses.replace(policy, weights=weights["grpo_loss_agg_mode"])
        chord = any(name in args for name in CHORD)
        mu = chosen.mu
        if chord:
            valley, peak = args.get("mu_valley", 0.1), args.get("mu_peak", 0.1)
            mu = Mu(peak, valley, args.get("mu_warmup_steps", 0), args.get("mu_decay_steps", 0)).at(number)
        return cls(
            policy=dataclasses.replace(policy, options=_clipped(algorithm, policy, args), regularizers=off),
            mu=mu,
            doubt=chord and bool(args.get("enable_phi_function", True)),
            expert_weights=dataclasses.replace(weights["sft_loss_agg_mode"], by_trajectory=False),
            kl=dataclasses.replace(policy.regularizers, entropy_coefficient=0.0),
            entropy=dataclasses.replace(policy.regularizers, kl_estimator=None, kl_coefficient=0.0),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sample that it reads."""
        return ("expert", *self.policy.columns, *self.kl.columns)

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metrics: those of the policy loss, expert_loss, mu, kl_loss."""
        lengths, expert = tensors["lengths"], tensors["expert"] > 0
        now = tensors["log_probs"].detach()  # nobody drew an expert's tokens: for them the policy of now is the old one
        old = now if self.policy.old_is_current else torch.where(expert, now, tensors["old_log_probs"])
        tensors = {**tensors, "old_log_probs": old}
        by_expert = sequence_sum(tensors["expert"], lengths) > 0
        usual = {name: tensor[~expert] for name, tensor in tensors.items() if name != "lengths"}
        usual["lengths"], given = lengths[~by_expert], lengths[by_expert]
        imitate = chord_phi_loss if self.doubt else negative_log_likelihood
        expert_loss = self.expert_weights.total(imitate(tensors["log_probs"][expert]).values, given, totals.experts)
        policy, kl = self.policy(usual, totals.rolled_out), self.kl(tensors, totals)
        entropy = self.entropy(usual, totals.rolled_out)
        metrics = policy.metrics | kl.metrics | {"expert_loss": expert_loss.detach()}
        metrics["mu"] = TOKEN_MEAN.total(torch.full_like(now, self.mu), lengths, totals)
        loss = (1 - self.mu) * policy.loss + self.mu * expert_loss + kl.loss + entropy.loss
        return LossTerms(loss, metrics)


def _mode(algorithm: Algorithm, name: str | None, longest: int) -> Weights:
    """How values add up: by a mode of Trinity's that an argument names, or as the config says."""
    if name is None:
        return weights_of(algorithm, longest)
    mode = name.replace("-", "_")
    if mode not in AGGREGATIONS:
        raise PlanError(
            said("algorithm.objective.args of mix names the unknown aggregation {name}", name=name),
            hint=nearest(mode, AGGREGATIONS),
        )
    aggregation = Aggregation(mode=mode, unit=algorithm.loss_aggregation.unit)  # type: ignore[arg-type]
    return weights_of(dataclasses.replace(algorithm, loss_aggregation=aggregation), longest)


def _clipped(algorithm: Algorithm, policy: PolicyLoss, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of the policy loss, with the bounds that arguments give."""
    both = args.get("clip_range")
    low, high = args.get("clip_range_low", both), args.get("clip_range_high", both)
    given = {name: value for name, value in (("clip_low", low), ("clip_high", high)) if value is not None}
    if given and not isinstance(algorithm.policy_loss, PpoClip):
        raise PlanError(
            said(
                "algorithm.objective.args of mix sets clip_range, but algorithm.policy_loss is {choice}",
                choice=algorithm.policy_loss.choice,
            ),
            hint="set the bounds in algorithm.policy_loss and omit clip_range",
        )
    return {**policy.options, **given}


def _check_sizes(sizes: Sequence[int], args: Mapping[str, Any]) -> None:
    """Refuse normalisers that are not the sizes of the mini-batch: a loss is a mean over what there is."""
    there = dict(zip(SIZES, sizes, strict=True))
    for name, size in there.items():
        if args.get(name, size) != size:
            raise PlanError(
                said(
                    "algorithm.objective.args.{name} is {args}, but a mini-batch has {size} such responses",
                    name=name,
                    args=args[name],
                    size=size,
                ),
                hint=said("set it to {size}, or omit it", size=size),
            )
