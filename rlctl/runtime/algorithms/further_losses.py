"""Policy losses of one framework, chosen as ``policy_loss: {type: ..., args: {...}}``: one number a token.

Tensors and metrics as in ``policy_losses``. The names and arguments of a kind are those of its framework.

To add one: see ``rlctl.runtime.algorithms``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlctl.common.errors import ConfigError
from rlctl.common.messages.reasons import said
from rlctl.runtime.algorithms.packed import PerTokenLoss, sequence_sum, spread
from rlctl.runtime.algorithms.policy_losses import bounded_log_ratio, ratio_metrics
from rlctl.runtime.algorithms.supervised import chord_phi_loss, weighted_by_probability
from rlctl.runtime.algorithms.table import Algorithm, lookup

PROBABILITY_MARGIN = 1e-8
"""Added to 1 - p before its log, as in verl."""


def dppo_tv(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    clip_ratio_c: float = 20.0,
) -> PerTokenLoss:
    """Return -min(r, c) A log new with a constant weight, and 0 where new - old (probabilities) has left its bounds.

    The bound is ``clip_high`` from above where A > 0, -``clip_low`` from below elsewhere.

    Source: DPPO with the binary total variation, arXiv:2602.04879; as in verl's core_algos.py (compute_policy_loss_dppo_tv).
    """
    moved = log_probs.detach().exp() - old_log_probs.exp()
    inside = torch.where(advantages > 0, moved <= clip_high, moved >= -clip_low)
    return _dppo(log_probs, old_log_probs, advantages, inside, clip_ratio_c)


def dppo_kl(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    clip_ratio_c: float = 20.0,
) -> PerTokenLoss:
    """Return the loss of ``dppo_tv`` with the bounds on KL(old || new) of drawing this token or another.

    A token on its way back to the old policy is always inside.

    Source: DPPO with the binary KL, arXiv:2602.04879; as in verl's core_algos.py (compute_policy_loss_dppo_kl).
    """
    new, old = log_probs.detach().exp(), old_log_probs.exp()
    others = ((1 - old + PROBABILITY_MARGIN) / (1 - new + PROBABILITY_MARGIN)).log()
    divergence = old * (old_log_probs - log_probs.detach()) + (1 - old) * others
    inside = torch.where(
        advantages > 0, (divergence <= clip_high) | (new <= old), (divergence <= clip_low) | (new >= old)
    )
    return _dppo(log_probs, old_log_probs, advantages, inside, clip_ratio_c)


def _dppo(log_probs: Tensor, old: Tensor, advantages: Tensor, inside: Tensor, bound: float) -> PerTokenLoss:
    log_ratio = bounded_log_ratio(log_probs, old)
    ratio = log_ratio.exp().detach()
    values = -advantages * ratio.clamp(max=bound) * log_probs * inside
    return PerTokenLoss(values, ratio_metrics(log_ratio, ratio, ~inside))


def geo_mean(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    lengths: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> PerTokenLoss:
    """Return -A s with s = exp(mean over the response of the clipped log ratios) and A the mean of its advantages.

    The log ratio is clipped above at ``clip_high`` where A > 0, below at -``clip_low`` where A < 0. Every token of a
    response has the response's loss, so with ``seq_mean_token_mean``, which verl always takes, it counts once.

    Source: Geometric-Mean Policy Optimization, arXiv:2507.20673; as in verl's core_algos.py (compute_policy_loss_geo_mean).
    """
    log_ratio = log_probs - old_log_probs
    sign = advantages.sign()
    clipped = sign * torch.minimum(sign * log_ratio, sign * log_ratio.clamp(-clip_low, clip_high))
    ratio = (sequence_sum(clipped, lengths) / lengths.clamp(min=1)).exp()
    advantage = sequence_sum(advantages, lengths) / lengths.clamp(min=1)
    outside = (log_ratio < -clip_low) | (log_ratio > clip_high)
    values = spread(-advantage * ratio, lengths, len(log_ratio))
    return PerTokenLoss(values, ratio_metrics(log_ratio, spread(ratio, lengths, len(log_ratio)), outside))


def dro(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, dro_beta: float) -> PerTokenLoss:
    """Return -(A log new - beta / 2 * (log new - log old)^2).

    Raises:
        ConfigError: dro_beta is not above 0.

    Source: Direct Reward Optimisation, arXiv:2405.19107; as in verl's core_algos.py (compute_policy_loss_dro).
    """
    if dro_beta is None or dro_beta <= 0:
        raise ConfigError(
            said("algorithm.policy_loss.args.dro_beta is {dro_beta}; expected above 0", dro_beta=dro_beta)
        )
    return _quadratic(log_probs, old_log_probs, advantages, dro_beta)


def kimi15(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, tau: float = 0.1) -> PerTokenLoss:
    """Return -A log new + tau / 2 * (log new - log old)^2.

    Source: Kimi k1.5, arXiv:2501.12599, equation 3; as in ROLL's actor_pg_worker.py, whose tau is always 0.1.
    """
    return _quadratic(log_probs, old_log_probs, advantages, tau)


def _quadratic(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, strength: float) -> PerTokenLoss:
    log_ratio = log_probs - old_log_probs
    ratio = bounded_log_ratio(log_probs, old_log_probs).exp()
    return PerTokenLoss(-advantages * log_probs + 0.5 * strength * log_ratio.square(), ratio_metrics(log_ratio, ratio))


def opmd(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, tau: float = 1.0) -> PerTokenLoss:
    """Return -A log new / (1 + tau).

    Source: online policy mirror descent in one step, Trinity-RFT's opmd_policy_loss.py.
    """
    log_ratio = bounded_log_ratio(log_probs, old_log_probs)
    return PerTokenLoss(-advantages * log_probs / (1 + tau), ratio_metrics(log_ratio, log_ratio.exp()))


def sppo(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, epsilon: float = 0.3) -> PerTokenLoss:
    """Return -A log r where 1 / (1 + epsilon) <= r <= 1 + epsilon, else 0.

    Source: Trinity-RFT's sppo_loss_fn.py.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.detach().exp()
    outside = (ratio < 1 / (1 + epsilon)) | (ratio > 1 + epsilon)
    return PerTokenLoss(-advantages * log_ratio * ~outside, ratio_metrics(log_ratio, ratio, outside))


def rec(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    lengths: Tensor,
    *,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    epsilon_low_prime: float | None = None,
    epsilon_high_prime: float | None = None,
    clip_mode: str = "none",
    weight: str = "none",
    regularizer: str = "none",
    regularizer_coef: float = 0.0,
    temp: float = 1.0,
) -> PerTokenLoss:
    """Return -w A log new where the ratio is inside, else 0, plus a regularizer on every token.

    ``clip_mode`` none, two-side, one-side (above where A >= 0, below where A <= 0), gspo-one-side (the same with the
    geometric mean of the response's ratios), ring (two-side, and good tokens below 1 - ``epsilon_low_prime``, bad ones
    above 1 + ``epsilon_high_prime``). ``weight`` w: 1, the ratio, its geometric mean, or exp(A / ``temp``).
    ``regularizer``: k2 adds coef * (log r)^2, forward-kl takes coef * log new off.

    Raises:
        ConfigError: a mode that there is not; ring without its primes, for which Trinity-RFT has two defaults.

    Source: Group-relative REINFORCE is secretly off-policy, arXiv:2509.24203; Trinity-RFT's rec_policy_loss.py.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.detach().exp()
    means = spread((sequence_sum(log_ratio.detach(), lengths) / lengths.clamp(min=1)).exp(), lengths, len(ratio))
    above = (means if clip_mode == "gspo-one-side" else ratio) <= 1 + epsilon_high
    below = (means if clip_mode == "gspo-one-side" else ratio) >= 1 - epsilon_low
    one_sided = (above & (advantages >= 0)) | (below & (advantages <= 0))
    inside = {
        "none": torch.ones_like(above),
        "two-side": above & below,
        "one-side": one_sided,
        "gspo-one-side": one_sided,
    }
    if clip_mode == "ring":
        if epsilon_low_prime is None or epsilon_high_prime is None:
            raise ConfigError("the ring of rec takes epsilon_low_prime and epsilon_high_prime")
        far_good = (advantages >= 0) & (ratio <= 1 - epsilon_low_prime)
        far_bad = (advantages <= 0) & (ratio >= 1 + epsilon_high_prime)
        inside["ring"] = (above & below) | far_good | far_bad
    weights = {
        "none": torch.ones_like(ratio),
        "importance_sampling": ratio,
        "gspo_importance_sampling": means,
        "advantage": (advantages / temp).exp(),
    }
    added = {
        "none": torch.zeros_like(log_probs),
        "k2": regularizer_coef * log_ratio.square(),
        "forward-kl": -regularizer_coef * log_probs,
    }
    kept = lookup(inside, clip_mode, "clip_mode of rec")
    values = -lookup(weights, weight, "weight of rec") * advantages * log_probs * kept
    values = values + lookup(added, regularizer, "regularizer of rec")
    return PerTokenLoss(values, ratio_metrics(log_ratio, ratio, ~kept))


def sft(log_probs: Tensor) -> PerTokenLoss:
    """Return -log new of every response, whatever its reward: RAFT where a filter keeps the good ones only.

    Source: Trinity-RFT's sft_loss.py, which its ``raft`` takes; RAFT, arXiv:2304.06767.
    """
    return PerTokenLoss(-log_probs)


def clip_cov(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    chosen: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> PerTokenLoss:
    """Return max(-A r, -A clip(r, 1 - low, 1 + high)), and 0 without a gradient for the tokens that are ``chosen``.

    ``covers_for_clip`` chooses them: tokens whose covariance of log-prob and advantage is high, which cost entropy most.

    Source: Cui et al., The entropy mechanism of RL, arXiv:2505.22617, Clip-Cov; as in verl's core_algos.py.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip_low, 1 + clip_high)
    values = torch.maximum(plain, clipped) * (chosen == 0)
    return PerTokenLoss(values, ratio_metrics(log_ratio, ratio, chosen != 0))


def covers_for_clip(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    generator: torch.Generator,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    ratio: float = 0.0002,
    low: float = 1.0,
    high: float = 5.0,
) -> Tensor:
    """Return which tokens of a whole mini-batch ``clip_cov`` leaves out, bool [N].

    Out of those with ``low`` < covariance < ``high`` that the ratio does not clip, a share ``ratio`` of all tokens, at least
    one, is drawn. The covariance of a token is (A - mean A) (log p - mean log p).
    """
    moved = (log_probs - old_log_probs).exp()
    clipped = -advantages * moved.clamp(1 - clip_low, 1 + clip_high) > -advantages * moved
    covariance = (advantages - advantages.mean()) * (log_probs - log_probs.mean())
    candidates = ((covariance > low) & (covariance < high) & ~clipped).nonzero().flatten()
    order = torch.randperm(len(candidates), generator=generator)[: max(int(ratio * len(log_probs)), 1)]
    chosen = torch.zeros(len(log_probs), dtype=torch.bool)
    chosen[candidates[order]] = True
    return chosen


def kl_cov(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, chosen: Tensor, *, ppo_kl_coef: float = 1.0
) -> PerTokenLoss:
    """Return -A r, and for the tokens that are ``chosen`` (``covers_for_kl``) ``ppo_kl_coef`` * |log r| on top.

    Source: Cui et al., arXiv:2505.22617, KL-Cov; as in verl's core_algos.py.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.exp()
    values = -advantages * ratio + ppo_kl_coef * log_ratio.abs() * (chosen != 0)
    return PerTokenLoss(values, ratio_metrics(log_ratio, ratio, chosen != 0))


def covers_for_kl(log_probs: Tensor, advantages: Tensor, *, ratio: float = 0.0002) -> Tensor:
    """Return which tokens of a whole mini-batch ``kl_cov`` holds back, bool [N].

    The share ``ratio`` of all tokens, at least one, whose covariance (see ``covers_for_clip``) is the highest.
    """
    covariance = (advantages - advantages.mean()) * (log_probs - log_probs.mean())
    most = min(max(1, int(ratio * len(log_probs))), len(log_probs))
    chosen = torch.zeros(len(log_probs), dtype=torch.bool)
    chosen[covariance.topk(most).indices] = True
    return chosen


FURTHER_LOSSES: dict[str, Algorithm] = {
    "clip_cov": Algorithm(clip_cov),
    "dppo_kl": Algorithm(dppo_kl),
    "dppo_tv": Algorithm(dppo_tv),
    "dro": Algorithm(dro),
    "geo_mean": Algorithm(geo_mean),
    "kimi15": Algorithm(kimi15),
    "kl_cov": Algorithm(kl_cov),
    "opmd": Algorithm(opmd),
    "rec": Algorithm(rec),
    "sft": Algorithm(sft),
    "sft_is": Algorithm(weighted_by_probability),
    "sft_phi": Algorithm(chord_phi_loss),
    "sppo": Algorithm(sppo),
}
