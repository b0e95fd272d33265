"""The difference between the engine that drew tokens and the one that trains on them, and what is done about it.

Packed tensors; ``log_ratio`` [N] = log training - log rollout, a constant. Weights multiply the policy loss, rejected
tokens leave it. Ratios are cut to exp(+-20) before anything else.

Source: rollout_corr_helper.py in verl; the geometric and segment levels are ROLL's (train_infer_corrections.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms.packed import sequence_index, sequence_sum, spread

Level = Literal["token", "sequence", "segment", "geometric"]

LOG_RATIO_LIMIT = 20.0
"""Keeps ratios and their products finite in float32."""

_RULE = re.compile(r"(token|seq_sum|seq_mean|seq_max)_(k1|k2|k3)")


def ratios(log_ratio: Tensor, lengths: Tensor, level: Level, segments: Tensor | None = None) -> Tensor:
    """Return the ratio of each token at a level: [N].

    token: its own. sequence: the product over its response. geometric: the geometric mean over its response. segment: the
    geometric mean over its segment, ``segments`` being the lengths [S] of all segments in order (the turns of a response).
    """
    if level == "token":
        summed = log_ratio
    elif level == "sequence":
        summed = spread(sequence_sum(log_ratio, lengths), lengths, len(log_ratio))
    else:
        parts = lengths if level == "geometric" or segments is None else segments
        summed = spread(sequence_sum(log_ratio, parts) / parts.clamp(min=1), parts, len(log_ratio))
    return summed.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def weights(
    log_ratio: Tensor,
    lengths: Tensor,
    level: Level,
    *,
    upper: float = 2.0,
    lower: float | None = None,
    normalize: bool = False,
    segments: Tensor | None = None,
) -> Tensor:
    """Return the importance weights of tokens: the ratio cut at ``upper``, or 0 outside of ``lower`` to ``upper``. [N].

    ``normalize`` scales them to a mean of 1: over tokens at token level, else over responses that have a counted token.

    Source: truncation, IMPALA, arXiv:1802.01561; zeroing outside of the band, IcePop
    (https://ringtech.notion.site/icepop).
    """
    raw = ratios(log_ratio, lengths, level, segments)
    if lower is None:
        result = raw.clamp(max=upper)
    else:
        result = torch.where((raw >= lower) & (raw <= upper), raw, 0.0)
    if not normalize or not len(result):
        return result
    if level == "token":
        mean = result.mean()
    else:
        means = sequence_sum(result, lengths) / lengths.clamp(min=1)
        mean = means[lengths > 0].mean()
    return result / mean if mean > 1e-8 else result


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rule that rejects tokens or responses, as verl writes it: a level, an estimator and bounds."""

    level: str
    """token, seq_sum, seq_mean or seq_max."""
    estimator: str
    """k1: log rollout - log training, between the logs of the bounds; k2 and k3: at most ``high``."""
    low: float | None
    high: float

    @classmethod
    def parse(cls, rules: Sequence[str], bounds: Sequence[float | tuple[float, float]]) -> tuple[Rejection, ...]:
        """Read ``LEVEL_ESTIMATOR`` rules with an upper bound or ``(low, high)`` each, or one for all.

        One number for k1 stands for 1 / number to number.

        Raises:
            ConfigError: no such rule, or bounds that are missing, not positive or in the wrong order.
        """
        if rules and len(bounds) not in (1, len(rules)):
            raise ConfigError(
                said(
                    "{count} rejection rules have {bounds_count} bounds; expected one each, or one for all",
                    count=len(rules),
                    bounds_count=len(bounds),
                ),
                hint="set algorithm.rollout_correction.rejection_bounds",
            )
        if rules and len(bounds) == 1:
            bounds = [bounds[0]] * len(rules)
        return tuple(cls._one(rule, bound) for rule, bound in zip(rules, bounds, strict=bool(rules)))

    @classmethod
    def _one(cls, rule: str, bound: float | tuple[float, float]) -> Rejection:
        found = _RULE.fullmatch(rule)
        if found is None or rule == "seq_max_k1":
            raise ConfigError(
                said(
                    "unknown rejection rule {rule!r}; expected token, seq_sum, seq_mean or seq_max, and _k1, _k2 or _k3",
                    rule=rule,
                ),
                hint="there is no seq_max_k1" if rule == "seq_max_k1" else "for example seq_mean_k1",
            )
        level, estimator = found.groups()
        low, high = bound if isinstance(bound, tuple) else (None, bound)
        if high <= 0 or (low is not None and not 0 < low <= high):
            raise ConfigError(
                said("the bound of {rule} is {bound!r}; expected 0 < low <= high", rule=rule, bound=bound)
            )
        if low is not None and estimator != "k1":
            raise ConfigError(
                said("the bound of {rule} is {bound!r}; a divergence has an upper bound only", rule=rule, bound=bound)
            )
        if low is None and estimator == "k1":
            low = 1 / high
        return cls(level, estimator, low, high)

    def keeps(self, log_ratio: Tensor, lengths: Tensor) -> Tensor:
        """Return True for the tokens that pass. bool [N]."""
        safe = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        statistic = {"k1": lambda: -safe, "k2": lambda: 0.5 * safe.square(), "k3": lambda: safe.exp() - 1 - safe}
        values = statistic[self.estimator]()
        if self.level != "token":
            values = spread(self._over_sequences(values, lengths), lengths, len(values))
        if self.estimator == "k1" and self.low is not None:
            return (values >= math.log(self.low)) & (values <= math.log(self.high))
        return values <= self.high

    def _over_sequences(self, values: Tensor, lengths: Tensor) -> Tensor:
        if self.level == "seq_max":
            owners = sequence_index(lengths, len(values))
            return values.new_zeros(len(lengths)).scatter_reduce(0, owners, values, "amax", include_self=False)
        sums = sequence_sum(values, lengths)
        return sums if self.level == "seq_sum" else sums / lengths.clamp(min=1)


def survives_veto(log_ratio: Tensor, lengths: Tensor, threshold: float) -> Tensor:
    """Return False for all tokens of a response that has one whose ratio is below ``threshold``. bool [N].

    Source: rollout_token_veto_threshold of verl 0.6 and 0.7.
    """
    below = (log_ratio < math.log(threshold)).to(log_ratio.dtype)
    return spread(sequence_sum(below, lengths), lengths, len(below)) == 0


def keeps(log_ratio: Tensor, lengths: Tensor, rules: Sequence[Rejection], veto: float | None) -> Tensor:
    """Return True for the tokens that all rules and the veto let pass. bool [N]."""
    kept = torch.ones_like(log_ratio, dtype=torch.bool)
    for rule in rules:
        kept &= rule.keeps(log_ratio, lengths)
    return kept if veto is None else kept & survives_veto(log_ratio, lengths, veto)


def mismatch(log_probs: Tensor, rollout_log_probs: Tensor) -> dict[str, Tensor]:
    """Return what is reported of the difference, each [N]: estimates of KL(rollout || training), and plain differences.

    ``kl``: k1. ``k3``: the same, never negative. ``probability``: |p - q| of the drawn token. ``chi2``: ratio^2 - 1.
    """
    log_ratio = (log_probs - rollout_log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return {
        "mismatch_kl": -log_ratio,
        "mismatch_k3": log_ratio.exp() - 1 - log_ratio,
        "mismatch_probability": (log_probs.exp() - rollout_log_probs.exp()).abs(),
        "mismatch_chi2": (2 * log_ratio).exp() - 1,
    }
