"""Policy losses: how advantages push log-probs. One number a token, before aggregation.

All tensors are [N], packed. ``log_probs`` carries the gradient; ``old_log_probs`` and ``advantages`` are constants.
Correction weights of off-policy rollout multiply ``values`` afterwards. Every loss reports ``ratio`` and ``approx_kl``
(the k1 estimate of KL(old || new)), those that clip also ``clip_fraction``: 1 where clipping changed the loss.

To add one: see ``rlctl.runtime.algorithms``.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms.packed import PerTokenLoss, sequence_index, sequence_sum, spread
from rlctl.runtime.algorithms.table import Algorithm

ImportanceWeight = Literal["none", "ratio", "truncated_ratio"]

LOG_RATIO_LIMIT = 20.0
"""exp overflows float32 at 88; past 20 a ratio is a bug in the log-probs, and one such token must not end a run."""

GSPO_LOG_RATIO_LIMIT = 10.0
"""The same for a ratio that is a geometric mean over a response, from above only, as in verl's core_algos.py."""


def ppo_clip(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
) -> PerTokenLoss:
    """Return max(-A r, -A clip(r, 1 - low, 1 + high)), and where A < 0 at most -A * ``dual_clip``; r = new / old.

    ``dual_clip`` bounds the loss of a bad token that became much more likely; None is off. Metric
    ``dual_clip_fraction``: 1 where it did.

    Raises:
        ConfigError: dual_clip is not above 1.

    Source: Schulman et al., arXiv:1707.06347; dual clip, Ye et al., arXiv:1912.09729; high apart from low, DAPO,
    arXiv:2503.14476; limits as in verl's core_algos.py (compute_policy_loss_vanilla).
    """
    log_ratio = bounded_log_ratio(log_probs, old_log_probs)
    return _clipped(log_ratio.exp(), log_ratio, advantages, clip_low, clip_high, dual_clip)


def ppo_clip_segments(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    lengths: Tensor,
    segments: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
) -> PerTokenLoss:
    """Return the loss of ``ppo_clip`` with one ratio a segment: the geometric mean of the ratios of its tokens.

    The ratio has the gradient of all its tokens. ``segments`` [N] numbers the segments within each sequence: turns of an agent.

    Source: ratio_type segment of ROLL's agentic_actor_worker.py (compute_segment_masked_mean).
    """
    log_ratio = bounded_log_ratio(log_probs, old_log_probs)
    starts = segments.new_ones(len(segments), dtype=torch.bool)
    sequences = sequence_index(lengths, len(segments))
    starts[1:] = (segments[1:] != segments[:-1]) | (sequences[1:] != sequences[:-1])
    sizes = lengths.new_zeros(len(segments)).index_add(0, starts.cumsum(0) - 1, torch.ones_like(sequences))
    means = sequence_sum(log_ratio, sizes) / sizes.clamp(min=1)
    return _clipped(
        spread(means, sizes, len(segments)).exp(), log_ratio.detach(), advantages, clip_low, clip_high, dual_clip
    )


def _clipped(
    ratio: Tensor, token_log_ratio: Tensor, advantages: Tensor, low: float, high: float, dual_clip: float | None
) -> PerTokenLoss:
    """The clipped loss of a ratio of tokens or responses, with the bound of dual clip."""
    if dual_clip is not None and dual_clip <= 1.0:
        raise ConfigError(
            said("algorithm.policy_loss.dual_clip is {dual_clip}; expected above 1", dual_clip=dual_clip),
            hint="null turns it off",
        )
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    values = torch.maximum(plain, clipped)
    metrics = ratio_metrics(token_log_ratio, ratio, clipped > plain)
    if dual_clip is not None:
        bound = -advantages * dual_clip
        bounded = (advantages < 0) & (values > bound)
        values = torch.where(bounded, bound, values)
        metrics["dual_clip_fraction"] = bounded.to(ratio.dtype)
    return PerTokenLoss(values, metrics)


def gspo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    lengths: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    dual_clip: float | None = None,
) -> PerTokenLoss:
    """Return the clipped loss with one ratio a response, s = exp(mean over its tokens of log new - log old).

    The value of the ratio is the response's, its gradient the token's own (GSPO-token): with equal advantages within a
    response and ``seq_mean_token_mean`` that is the gradient of GSPO. A clip is about 1e-4 wide, not 1e-1.

    ``dual_clip`` is that of ``ppo_clip``.

    Source: Zheng et al., arXiv:2507.18071; limits as in verl's core_algos.py (compute_policy_loss_gspo).
    """
    token_log_ratio = (log_probs - old_log_probs).detach()
    means = sequence_sum(token_log_ratio, lengths) / lengths.clamp(min=1)
    log_ratio = (log_probs - log_probs.detach() + spread(means, lengths, len(log_probs))).clamp(
        max=GSPO_LOG_RATIO_LIMIT
    )
    return _clipped(log_ratio.exp(), token_log_ratio, advantages, clip_low, clip_high, dual_clip)


def cispo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 1.0,
    clip_high: float = 0.28,
) -> PerTokenLoss:
    """Return -clip(r, 1 - low, 1 + high) A log new, with the clipped ratio a constant: every token keeps a gradient.

    Source: MiniMax-M1, arXiv:2506.13585.
    """
    log_ratio = bounded_log_ratio(log_probs, old_log_probs)
    ratio = log_ratio.exp().detach()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return PerTokenLoss(-clipped * advantages * log_probs, ratio_metrics(log_ratio, ratio, clipped != ratio))


def policy_gradient(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    importance_weight: ImportanceWeight = "none",
    weight_bound: float = 1.0,
) -> PerTokenLoss:
    """Return -w A log new with a constant w: 1, the ratio r, or for truncated_ratio min(r, ``weight_bound``).

    Metric ``clip_fraction``, for truncated_ratio: 1 where the weight was cut.

    Source: Williams, Simple statistical gradient-following algorithms, 1992; truncation, IMPALA, arXiv:1802.01561.
    """
    log_ratio = bounded_log_ratio(log_probs, old_log_probs)
    ratio = log_ratio.exp().detach()
    if importance_weight == "none":
        return PerTokenLoss(-advantages * log_probs, ratio_metrics(log_ratio, ratio))
    if importance_weight == "ratio":
        return PerTokenLoss(-ratio * advantages * log_probs, ratio_metrics(log_ratio, ratio))
    weight = ratio.clamp(max=weight_bound)
    return PerTokenLoss(-weight * advantages * log_probs, ratio_metrics(log_ratio, ratio, weight != ratio))


def topr(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    positive_weight: float = 1.0,
    negative_weight: float = 1.0,
) -> PerTokenLoss:
    """Return -w A log new with w = ``positive_weight`` where A > 0, else ``negative_weight`` * min(r, 1), r a constant.

    Good responses are imitated whatever policy drew them, bad ones taper off as they become unlikely.

    Metric ``clip_fraction``: 1 where a bad token's ratio was cut.

    Source: Le Roux et al., arXiv:2503.14286, equation 8 with the advantage for the reward, as in Trinity-RFT's
    topr_policy_loss.py; the weights of the two parts are ROLL's (actor_pg_worker.py).
    """
    log_ratio = bounded_log_ratio(log_probs, old_log_probs)
    ratio = log_ratio.exp().detach()
    good = advantages > 0
    weight = torch.where(good, positive_weight, negative_weight * ratio.clamp(max=1.0))
    return PerTokenLoss(-weight * advantages * log_probs, ratio_metrics(log_ratio, ratio, ~good & (ratio > 1)))


def sapo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> PerTokenLoss:
    """Return -A (4 / tau) sigmoid(tau (r - 1)), tau = ``tau_positive`` where A > 0, else ``tau_negative``.

    At r = 1 its slope in r is that of the plain surrogate; away from 1 the gate closes softly.

    Raises:
        ConfigError: a tau is not above 0.

    Source: Soft Adaptive Policy Optimization, arXiv:2511.20347; as in verl's core_algos.py (compute_policy_loss_sapo).
    """
    if min(tau_positive, tau_negative) <= 0:
        raise ConfigError(
            said(
                "tau_positive and tau_negative of algorithm.policy_loss are {tau_positive} and {tau_negative}; "
                "expected above 0",
                tau_positive=tau_positive,
                tau_negative=tau_negative,
            )
        )
    log_ratio = bounded_log_ratio(log_probs, old_log_probs)
    ratio = log_ratio.exp()
    tau = torch.where(advantages > 0, ratio.new_tensor(tau_positive), ratio.new_tensor(tau_negative))
    return PerTokenLoss(-advantages * torch.sigmoid(tau * (ratio - 1)) * (4 / tau), ratio_metrics(log_ratio, ratio))


POLICY_LOSSES: dict[str, Algorithm] = {
    "cispo": Algorithm(cispo),
    "gspo": Algorithm(gspo),
    "policy_gradient": Algorithm(policy_gradient),
    "ppo_clip": Algorithm(ppo_clip),
    "ppo_clip_segments": Algorithm(ppo_clip_segments),
    "sapo": Algorithm(sapo),
    "topr": Algorithm(topr),
}
"""Called as ``POLICY_LOSSES[name](tensors, **options)``; ``tensors`` has ``log_probs`` and so on by name, ``lengths`` [B]."""


def bounded_log_ratio(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """Return log(new / old) within +-20. [N]."""
    return (log_probs - old_log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def ratio_metrics(log_ratio: Tensor, ratio: Tensor, clipped: Tensor | None = None) -> dict[str, Tensor]:
    """Return the metrics that losses have in common, each [N]."""
    metrics = {"ratio": ratio.detach(), "approx_kl": -log_ratio.detach()}
    if clipped is not None:
        metrics["clip_fraction"] = clipped.to(ratio.dtype)
    return metrics
