"""Which functions of ``runtime.algorithms`` a config's section ``algorithm`` chooses, with which options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.algorithm import Algorithm, OtherLoss, StepReinforce
from rlctl.config.sections.algorithm import Other as OtherAdvantage
from rlctl.runtime.algorithms.advantages import ADVANTAGES
from rlctl.runtime.algorithms.further_losses import FURTHER_LOSSES
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.algorithms.table import Algorithm as Function
from rlctl.runtime.algorithms.table import lookup

FURTHER_ESTIMATORS = (
    *("asymre", "clipb", "clipv", "gdpo", "gpg", "none"),
    *("optimal_token_baseline", "rec", "reward", "tir_optimal_token_baseline"),
)
"""Kinds of the advantage ``other`` that are computed."""

TWINS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "asymre_verl": ("asymre", {}),
    "grpo_verl": ("grpo", {}),
    "opmd_verl": ("opmd", {"opmd_baseline": "baseline"}),
}
"""Kinds that Trinity-RFT computes in the trainer instead: the same numbers, and what arguments are called here."""

PARTS = "gdpo_reward_keys"
"""The argument that names the rewards of gdpo."""

_NOT_OPTIONS = {"whiten", "clip", "kl_order"}
"""Settings of an advantage that are arguments of ``estimate``, not of the estimator."""

_CARRIED_ARGS = {
    *("clip_low", "clip_high", "clip_ratio_c", "clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio"),
    *("ppo_kl_coef", "dro_beta", "pg_clip", "pg_clip_low", "pg_clip_high", "use_pg_clip_range", "dual_clip_loss"),
}
"""Arguments that configs of verl and ROLL have for every loss; one that does not read them is not changed by them."""


def estimator_of(algorithm: Algorithm) -> tuple[str, dict[str, Any]]:
    """The name of the advantage estimator and its options.

    Raises:
        PlanError: nothing computes it, or not with these arguments.
    """
    chosen = algorithm.advantage
    if not isinstance(chosen, OtherAdvantage):
        options = {key: value for key, value in dataclasses.asdict(chosen).items() if key not in _NOT_OPTIONS}
        if options.pop("level", "token") == "turn":
            return "turn_gae", options
        if isinstance(chosen, StepReinforce):  # its steps are what is normalised
            scopes = algorithm.reward_shaping.normalize
            options |= {"mean": scopes.mean, "std": scopes.std}
        return chosen.choice, options
    name, renamed = TWINS.get(chosen.kind, (chosen.kind, {"gdpo_reward_weights": "weights"}))
    if chosen.kind not in (*FURTHER_ESTIMATORS, *TWINS):
        known = ", ".join((*FURTHER_ESTIMATORS, *TWINS))
        raise PlanError(
            said(
                "rlctl has no algorithm.advantage of type {kind!r}; expected one of {known}",
                kind=chosen.kind,
                known=known,
            )
        )
    args = {renamed.get(argument, argument): value for argument, value in chosen.args.items() if value is not None}
    if chosen.kind == "gdpo" and not args.pop(PARTS, None):
        raise PlanError(
            "gdpo normalizes several rewards separately, but the config names none",
            hint=said(
                "set algorithm.advantage.args.{parts} to names of rewards, or of numbers that a reward function "
                "returns",
                parts=PARTS,
            ),
        )
    unknown = sorted(set(args) - set(ADVANTAGES[name].options))
    if unknown:
        raise PlanError(
            said("algorithm.advantage of type {kind} has no argument {unknown}", kind=chosen.kind, unknown=unknown[0])
        )
    return name, args


def reward_parts(algorithm: Algorithm) -> tuple[str, ...]:
    """The rewards that the estimator reads one by one; empty where it reads their sum."""
    chosen = algorithm.advantage
    if not isinstance(chosen, OtherAdvantage) or chosen.kind != "gdpo":
        return ()
    return tuple(chosen.args.get(PARTS) or ())


def measured_by(algorithm: Algorithm) -> tuple[str, ...]:
    """What of ``algorithms.distributions`` the estimator reads, which the pass for the old policy's log-probs tells too."""
    return ADVANTAGES[estimator_of(algorithm)[0]].measures


def reads_old(algorithm: Algorithm) -> bool:
    """Whether the estimator reads something of the pass for the old policy's log-probs."""
    estimator = ADVANTAGES[estimator_of(algorithm)[0]]
    return bool(estimator.measures) or "old_log_probs" in estimator.reads


def needs_greedy(algorithm: Algorithm) -> bool:
    """Whether each prompt is answered greedily too, for a baseline."""
    return ADVANTAGES[estimator_of(algorithm)[0]].needs_greedy


def corrects(algorithm: Algorithm) -> bool:
    """Whether the difference between rollout and training engine changes weights or masks."""
    chosen = algorithm.rollout_correction
    return chosen is not None and (
        chosen.importance_sampling.level != "none" or bool(chosen.rejection) or chosen.veto_threshold is not None
    )


def corrects_before_loss(algorithm: Algorithm) -> bool:
    """Whether ``Shaping`` corrects, with the old policy's log-probs; else the loss does, with those of the moment."""
    return corrects(algorithm) and algorithm.old_log_probs != "rollout"


def has_weights(algorithm: Algorithm) -> bool:
    """Whether samples have the column ``policy_weights``, which multiplies the policy loss."""
    chosen = algorithm.rollout_correction
    corrected = corrects_before_loss(algorithm) and chosen is not None and chosen.importance_sampling.level != "none"
    return corrected or algorithm.loss_weights.difficulty or algorithm.loss_weights.length


def loss_of(algorithm: Algorithm) -> tuple[Function, dict[str, Any]]:
    """The function that computes the policy loss of a config, and its options.

    Raises:
        PlanError: there is none, or it has no such argument.
    """
    choice, correction = algorithm.policy_loss, algorithm.rollout_correction
    if correction is not None and correction.use_policy_gradient and algorithm.old_log_probs == "rollout":
        return POLICY_LOSSES["policy_gradient"], {"importance_weight": "none"}
    if not isinstance(choice, OtherLoss):
        options = {item.name: getattr(choice, item.name) for item in dataclasses.fields(choice)}
        by_segment = options.pop("ratio", "token") == "segment"
        return lookup(POLICY_LOSSES, choice.choice + "_segments" * by_segment, "policy loss"), options
    if choice.kind not in FURTHER_LOSSES:
        known = ", ".join(sorted(FURTHER_LOSSES))
        raise PlanError(
            said(
                "rlctl has no algorithm.policy_loss of type {kind!r}; expected one of {known}",
                kind=choice.kind,
                known=known,
            )
        )
    function = FURTHER_LOSSES[choice.kind]
    unknown = sorted(set(choice.args) - set(function.options) - _CARRIED_ARGS)
    if unknown:
        raise PlanError(
            said("algorithm.policy_loss of type {kind} has no argument {unknown}", kind=choice.kind, unknown=unknown[0])
        )
    return function, {name: value for name, value in choice.args.items() if name in function.options}


def fixed_aggregation(algorithm: Algorithm) -> str | None:
    """The mode in which a framework adds up this loss whatever its ``loss_aggregation`` says; None where it obeys."""
    choice = algorithm.policy_loss
    if not isinstance(choice, OtherLoss):
        return None
    if choice.kind == "rec":
        return "seq_mean_token_mean" if choice.args.get("clip_mode") == "gspo-one-side" else "token_mean"
    return "seq_mean_token_mean" if choice.kind == "geo_mean" else None
