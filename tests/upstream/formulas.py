"""Formulas that all three drivers use for effective numbers, written from the frameworks' sources, and the names of what they tell.

A number is told once in a unit that all frameworks share. A *round* is what happens between two weight updates of rollout: a step of verl, the
steps of ``model_update_frequency`` in ROLL, ``sync_interval`` in Trinity.
"""

from __future__ import annotations

import math

ROUNDS = (0, 1, 2, 5, 10, 20, 50, 100)
"""Rounds at whose first update the learning rate is told, and the last one; of supervised training updates."""
NEVER = 1_000_000
"""A bound, or a number of steps, that nothing reaches."""
KL = {
    "kl": "k1",
    "k1": "k1",
    "abs": "abs",
    "mse": "k2",
    "k2": "k2",
    "low_var_kl": "k3",
    "k3": "k3",
    "corrected_k3": "k3",
}


def megatron_rate(
    style: str, peak: float, least: float, warmup: int, total: int, tick: int, start: float = 0.0
) -> float:
    """Megatron's ``OptimizerParamScheduler.get_lr``."""
    if warmup > 0 and tick <= warmup:
        return start + (peak - start) * tick / warmup
    if style == "constant":
        return peak
    if tick > total:
        return least
    share = (tick - warmup) / (total - warmup)
    if style == "linear":
        return least + (peak - least) * (1.0 - share)
    if style == "cosine":
        return least + (peak - least) * 0.5 * (math.cos(math.pi * share) + 1.0)
    return peak * math.sqrt(max(warmup, 1)) / math.sqrt(max(tick, 1))


def rounds_told(rounds: float) -> list[int]:
    """The rounds of a run at whose first update the learning rate is told."""
    last = max(0, math.ceil(rounds) - 1)
    return sorted({*(one for one in ROUNDS if one < rounds), last})


def bound(value: float | None) -> float | None:
    """A bound, or None where nothing reaches it."""
    return None if value is None or value >= NEVER else value


def kl(name: str, coefficient: float | None) -> list[object] | None:
    """A KL term, or None where its coefficient is 0."""
    plain = KL.get(name.rstrip("+"), name)
    return [plain, coefficient] if coefficient else None
