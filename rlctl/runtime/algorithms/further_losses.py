"""Policy losses of one framework, chosen as ``policy_loss: {name: other, kind: ..., args: ...}``: one number a token.

Tensors and metrics as in ``policy_losses``. The names and arguments of a kind are those of its framework.

To add one: see ``rlctl.runtime.algorithms``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlctl.errors import ConfigError
from rlctl.runtime.algorithms.packed import PerTokenLoss, sequence_sum, spread
from rlctl.runtime.algorithms.policy_losses import bounded_log_ratio, ratio_metrics
from rlctl.runtime.algorithms.table import Algorithm

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
    values = spread(-advantage * ratio, lengths)
    return PerTokenLoss(values, ratio_metrics(log_ratio, spread(ratio, lengths), outside))


def dro(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, dro_beta: float) -> PerTokenLoss:
    """Return -(A log new - beta / 2 * (log new - log old)^2).

    Raises:
        ConfigError: dro_beta is not above 0.

    Source: Direct Reward Optimisation, arXiv:2405.19107; as in verl's core_algos.py (compute_policy_loss_dro).
    """
    if dro_beta is None or dro_beta <= 0:
        raise ConfigError(f"the dro_beta of dro is {dro_beta}; expected above 0")
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


def sft(log_probs: Tensor) -> PerTokenLoss:
    """Return -log new of every response, whatever its reward: RAFT where a filter keeps the good ones only.

    Source: Trinity-RFT's sft_loss.py, which its ``raft`` takes; RAFT, arXiv:2304.06767.
    """
    return PerTokenLoss(-log_probs)


FURTHER_LOSSES: dict[str, Algorithm] = {
    "dppo_kl": Algorithm(dppo_kl),
    "dppo_tv": Algorithm(dppo_tv),
    "dro": Algorithm(dro),
    "geo_mean": Algorithm(geo_mean),
    "kimi15": Algorithm(kimi15),
    "opmd": Algorithm(opmd),
    "sft": Algorithm(sft),
}
