"""Losses of preference pairs, one number a pair: a chosen response beside a rejected one to the same prompt.

Log-probs are [N], packed, with ``lengths`` [2P]: chosen, rejected, chosen, rejected, ... Log-probs of a response are summed
over its tokens, not averaged, as DPO does, and ROLL and Trinity-RFT with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlctl.runtime.algorithms.packed import sequence_sum

PAIR = 2
"""Sequences of a pair."""


@dataclass(frozen=True, slots=True)
class PerPairLoss:
    """A loss before it is averaged over the pairs of a mini-batch."""

    values: Tensor
    """[P], with gradient."""
    metrics: dict[str, Tensor]
    """Each [P], without gradient."""


def dpo(
    log_probs: Tensor,
    reference_log_probs: Tensor,
    lengths: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    ipo: bool = False,
) -> PerPairLoss:
    """Return -(1 - s) log sigmoid(beta x) - s log sigmoid(-beta x), or with ``ipo`` (x - 1 / (2 beta))^2.

    x = (log policy - log reference)(chosen) - the same (rejected); s = ``label_smoothing``. Metrics: the implicit rewards
    beta (log policy - log reference) as ``chosen_reward`` and ``rejected_reward``, their difference ``margin``, and
    ``accuracy``: 1 where the chosen one is larger.

    Source: Rafailov et al., arXiv:2305.18290, equation 7; smoothing, Mitchell, https://ericmitchell.ai/cdpo.pdf, equation 3;
    IPO, Azar et al., arXiv:2310.12036, equation 17, of sums as in ROLL's dpo/actor_worker.py (TRL divides by lengths).
    """
    gains = sequence_sum(log_probs - reference_log_probs, lengths).unflatten(0, (-1, PAIR))
    chosen, rejected = gains.unbind(1)
    lead = chosen - rejected
    if ipo:
        values = (lead - 1 / (2 * beta)).square()
    else:
        values = -(1 - label_smoothing) * logsigmoid(beta * lead) - label_smoothing * logsigmoid(-beta * lead)
    with torch.no_grad():
        metrics = {
            "accuracy": (lead > 0).to(lead.dtype),
            "margin": beta * lead,
            "chosen_reward": beta * chosen,
            "rejected_reward": beta * rejected,
        }
    return PerPairLoss(values, metrics)
