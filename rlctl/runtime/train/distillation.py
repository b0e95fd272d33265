"""Learning from a teacher's distributions: which loss ``algorithm.distillation`` asks for, and what it reads.

sft            (1 - c) * imitation + c * divergence, over the whole vocabulary or the teacher's likeliest tokens (ROLL)
rl             policy loss + c * divergence on the policy's own responses, or the divergence alone (verl):
               of distributions, or estimated from the tokens drawn (``estimator``)
               with ``policy_gradient`` - c * estimate is added to the advantages instead, or takes their place (ROLL, Trinity)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.algorithm import Algorithm
from rlctl.config.sections.train import Train
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.divergence import DIVERGENCES, divergence, drawn_js
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.algorithms.kl import estimate as estimate_kl
from rlctl.runtime.algorithms.table import lookup
from rlctl.runtime.train.interface import LossFunction, LossTerms
from rlctl.runtime.train.losses import TOKEN_MEAN, SftLoss, Weights
from rlctl.runtime.types import Sample

VERL = "distillation_loss."
OFFLINE = ("kd_temperature", "teacher_temperature", "adaptive_kl_alpha", "skew_lambda", "distill_on_prompt")
DRAWN_JS, OF_DRAWN_JS = "drawn_js", ("lambda_coef", "temperature")
"""The estimate of ``js_divergence`` from the tokens drawn, and its arguments."""
ONLINE = (
    *("estimator", "with_rewards", "policy_gradient", f"{VERL}loss_max_clamp", f"{VERL}log_prob_min_clamp"),
    *OF_DRAWN_JS,
)
ELSEWHERE = ("logits_transfer_backend", f"{VERL}use_chunked_topk", f"{VERL}chunked_topk_chunk_size")
"""Of how a framework computes it; no number hangs on them."""
DEVICES = ("n_gpus_per_node", "nnodes", "teacher_models.teacher_model.", "teacher_model.", "teacher_engine.")
"""Beginnings of settings of the teacher's own engine; here it is computed as the policy is."""
ESTIMATORS = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
"""Names of verl and ROLL, where they are not ours."""
MAX_CLAMP, MIN_CLAMP = 10.0, -10.0
"""verl's defaults: of a token's divergence, and of log-probs that are compared."""


@dataclass(frozen=True, slots=True)
class Teaching:
    """What ``algorithm.distillation`` asks for."""

    teacher: str
    """Model path."""
    rule: str
    """Of ``DIVERGENCES``; where ``estimator`` is set, it is estimated from the tokens drawn."""
    coefficient: float
    options: Mapping[str, Any]
    """Of ``divergence``."""
    estimator: str | None = None
    with_rewards: bool = True
    policy_gradient: bool = False
    drawn: Mapping[str, float] = field(default_factory=dict)
    """Of ``drawn_js``, where that is the estimator."""
    clamp: float | None = None
    on_prompt: bool = False
    """Whether prompts are learnt from too (sft)."""

    @classmethod
    def of(cls, algorithm: Algorithm, train: Train, *, temperature: float) -> Teaching | None:
        """Read ``algorithm.distillation``; None where there is none.

        Args:
            algorithm: the section.
            train: the section of the policy, whose workers hold the teacher too.
            temperature: of the policy's logits in training.

        Raises:
            PlanError: it asks for something that is not computed.
            ConfigError: a divergence or an estimator that there is not.
        """
        chosen = algorithm.distillation
        if chosen is None:
            return None
        imitates = algorithm.objective.choice == "sft"
        _check(algorithm, train, imitates)
        args = {name: value for name, value in chosen.args.items() if value is not None}
        lookup(DIVERGENCES, chosen.loss, "algorithm.distillation.loss")
        names = DIVERGENCES[chosen.loss].options
        options: dict[str, Any] = {name: args[name] for name in names if name in args}
        options["top_k"] = chosen.top_k
        if imitates:
            softened = float(args.get("kd_temperature", 1))
            options |= {
                "temperature": softened,
                "teacher_temperature": softened * float(args.get("teacher_temperature", 1)),
            }
            on_prompt = bool(args.get("distill_on_prompt", False))
            return cls(chosen.teacher, chosen.loss, chosen.coefficient, options, on_prompt=on_prompt)
        with_rewards = bool(args.get("with_rewards", True))
        policy_gradient = bool(args.get("policy_gradient", False))
        estimator = None
        if chosen.loss == "reverse_kl" and chosen.top_k is None:
            named = str(args.get("estimator", "k1" if policy_gradient else "k3"))
            estimator = ESTIMATORS.get(named, named)
            lookup(KL_ESTIMATORS, estimator, "estimator of algorithm.distillation.args")
        elif policy_gradient and chosen.loss == "js_divergence" and chosen.top_k is None:
            estimator = DRAWN_JS
        elif policy_gradient:
            raise PlanError(
                said(
                    "algorithm.distillation.args.policy_gradient uses the divergence of the sampled token as a reward, "
                    "but {loss} covers many tokens",
                    loss=chosen.loss,
                ),
                hint="set algorithm.distillation.loss to reverse_kl or js_divergence and top_k to null, "
                "or policy_gradient to false",
            )
        drawn = {name: float(args[name]) for name in OF_DRAWN_JS if name in args}
        if drawn and estimator != DRAWN_JS:
            raise PlanError(
                said(
                    "algorithm.distillation.args.{next} is only for js_divergence as a reward of the sampled token",
                    next=next(iter(drawn)),
                ),
                hint="set algorithm.distillation.loss to js_divergence and args.policy_gradient to true, or remove it",
            )
        if estimator == "k1" and not policy_gradient:
            raise PlanError(
                "the gradient of k1 does not depend on the teacher, so as a loss it teaches nothing",
                hint="set the estimator of algorithm.distillation.args to k3, or policy_gradient to true",
            )
        options |= {
            "temperature": temperature,
            "renormalize": False,
            "least_log_prob": args.get(f"{VERL}log_prob_min_clamp", MIN_CLAMP),
        }
        return cls(
            chosen.teacher,
            chosen.loss,
            chosen.coefficient,
            options,
            estimator=estimator,
            with_rewards=with_rewards,
            policy_gradient=policy_gradient,
            drawn=drawn,
            clamp=args.get(f"{VERL}loss_max_clamp", None if policy_gradient else MAX_CLAMP),
        )

    @property
    def compares(self) -> bool:
        """Whether whole distributions are compared; else the teacher's log-probs of the tokens drawn."""
        return self.estimator is None

    def of_logits(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The divergence of logits [N, V], at every row."""
        return divergence(self.rule, student, teacher, **self.options)

    def of_log_probs(self, log_probs: Tensor, teacher: Tensor) -> Tensor:
        """The estimate from log-probs of the tokens drawn, [N]."""
        assert self.estimator is not None, "distributions are compared"
        if self.estimator == DRAWN_JS:
            return self.clamped(drawn_js(log_probs, teacher, **self.drawn))
        return self.clamped(estimate_kl(self.estimator, log_probs, teacher))

    def clamped(self, values: Tensor) -> Tensor:
        """Within the bound, on both sides: an estimate may be negative."""
        return values if self.clamp is None else values.clamp(-self.clamp, self.clamp)

    def compared(self, values: Tensor) -> Tensor:
        """Divergences within the bound; over the likeliest tokens alone one may be negative, which counts as 0."""
        return self.clamped(values if self.options["top_k"] is None else values.clamp(min=0))


def _check(algorithm: Algorithm, train: Train, imitates: bool) -> None:
    """Refuse what is not computed.

    Raises:
        PlanError: an objective without distillation, arguments that nothing reads, or an engine that cannot compare.
    """
    chosen, objective = algorithm.distillation, algorithm.objective.choice
    assert chosen is not None, "there is a teacher"
    if objective in ("dpo", "mix"):
        raise PlanError(
            said(
                "{objective} trains on given responses, but algorithm.distillation names a teacher", objective=objective
            ),
            hint="remove one of the two, or use two stages",
        )
    if not chosen.teacher:
        raise PlanError("algorithm.distillation names no teacher", hint="set algorithm.distillation.teacher to a model")
    known = (*(OFFLINE if imitates else ONLINE), *ELSEWHERE)
    for name in chosen.args:
        if name not in known and (imitates or not name.startswith(DEVICES)):
            hint = nearest(name, known) or said("expected one of {names}", names=", ".join(known))
            raise PlanError(
                said(
                    "algorithm.distillation.args of {objective} has no argument {name}", objective=objective, name=name
                ),
                hint=hint,
            )
    check_comparable(train)
    advantage = algorithm.advantage
    whitened = advantage.whiten and not type(advantage).whiten
    if chosen.args.get("policy_gradient") and (whitened or advantage.clip is not None):
        raise PlanError(
            "the teacher's term is added to advantages that are already whitened or clipped",
            hint="set algorithm.advantage.whiten to false and algorithm.advantage.clip to null",
        )


def check_comparable(train: Train) -> None:
    """Refuse engines that make no whole distributions.

    Raises:
        PlanError: sequences are cut over workers, or logits are never made.
    """
    if getattr(train.engine, "ulysses_sequence_parallel_size", 1) != 1:
        raise PlanError(
            "this loss compares distributions over whole sequences, but train.engine.ulysses_sequence_parallel_size splits them",
            hint="set train.engine.ulysses_sequence_parallel_size to 1",
        )
    if train.fused_kernels.enabled:
        raise PlanError(
            "this loss needs logits, which train.fused_kernels.enabled never materializes",
            hint="set train.fused_kernels.enabled to false",
        )


@dataclass(frozen=True, slots=True)
class DistilledImitation:
    """(1 - coefficient) * imitation + coefficient * divergence, of the counted tokens.

    Source: ROLL's distill_worker.py.
    """

    imitation: SftLoss
    coefficient: float
    weights: Weights
    columns: tuple[str, ...] = ()

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metrics: imitation, divergence, entropy."""
        imitation = self.imitation(tensors, totals)
        apart = self.weights.total(tensors["divergence"], tensors["lengths"], totals, tensors)
        loss = (1 - self.coefficient) * imitation.loss + self.coefficient * apart
        told = {"imitation": imitation.loss.detach(), "divergence": apart.detach()}
        return LossTerms(loss, imitation.metrics | told)


@dataclass(frozen=True, slots=True)
class DistilledPolicy:
    """Policy loss + coefficient * divergence, or the divergence alone where rewards are left out.

    Source: distillation_ppo_loss in verl's trainer/distillation/losses.py.
    """

    policy: LossFunction
    teaching: Teaching
    weights: Weights

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a sample that it reads."""
        policy = self.policy.columns if self.teaching.with_rewards else ()
        teacher = () if self.teaching.compares else ("teacher_log_probs",)
        return tuple(dict.fromkeys((*policy, *teacher, *self.weights.columns)))

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        """See ``LossFunction``. Metrics: divergence, and those of the policy loss, or entropy."""
        teaching, lengths = self.teaching, tensors["lengths"]
        if teaching.compares:
            values = teaching.compared(tensors["divergence"])
        else:
            values = teaching.of_log_probs(tensors["log_probs"], tensors["teacher_log_probs"])
        apart = self.weights.total(values, lengths, totals, tensors)
        told = {"divergence": apart.detach()}
        if not teaching.with_rewards:
            told["entropy"] = TOKEN_MEAN.total(tensors["entropy"].detach(), lengths, totals)
            return LossTerms(apart, told)
        policy = self.policy(tensors, totals)
        return LossTerms(policy.loss + teaching.coefficient * apart, policy.metrics | told)


def into_advantages(teaching: Teaching, samples: Sequence[Sample]) -> dict[str, float]:
    """Take coefficient * estimate off the column ``advantages``, or put it in its place; return metrics.

    Samples have ``old_log_probs`` and ``teacher_log_probs``.

    Source: compute_advantage in ROLL's functionals.py (use_opd, is_pure_opd).
    """
    total, tokens = 0.0, 0
    for sample in samples:
        columns, mask = sample.columns, sample.mask
        apart = teaching.of_log_probs(columns["old_log_probs"][mask], columns["teacher_log_probs"][mask])
        earned = columns["advantages"] if teaching.with_rewards else torch.zeros(len(sample))
        columns["advantages"] = earned - teaching.coefficient * torch.zeros(len(sample)).masked_scatter(mask, apart)
        total, tokens = total + float(apart.sum()), tokens + len(apart)
    return {"distillation/divergence": total / max(tokens, 1)}


def distilled(loss: LossFunction, teaching: Teaching | None, weights: Weights) -> LossFunction:
    """The loss with what a teacher adds to it; the loss itself where there is no teacher, or it is in the advantages.

    ``weights``: how the divergences of tokens add up.
    """
    if teaching is None or teaching.policy_gradient:
        return loss
    if isinstance(loss, SftLoss):
        return DistilledImitation(loss, teaching.coefficient, weights)
    return DistilledPolicy(loss, teaching, weights)
