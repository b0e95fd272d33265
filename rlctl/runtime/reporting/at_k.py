"""Numbers of several responses to one prompt: best, worst and majority of k draws, and the chance that one of k is right.

``best@k``, ``worst@k`` and ``maj@k`` are verl's (verl/trainer/ppo/metric_utils.py, process_validation_metrics): the mean over
1,000 draws of k of the n responses, with replacement. The draws are those of numpy's MT19937 with seed 42, as there, so the
numbers are verl's own. ``pass@k`` is the unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, equation 1).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

DRAWS = 1000
SEED = 42


def counts(n: int) -> list[int]:
    """The k for which n responses are looked at: 2, 4, 8, ... below n, and n; none of a single response."""
    if n < 2:
        return []
    return [*(2**power for power in range(1, (n - 1).bit_length())), n]


@cache
def draws(n: int, k: int) -> np.ndarray:
    """Which of n responses each draw of k takes. int64 [DRAWS, k]."""
    return np.random.RandomState(SEED).choice(n, size=(DRAWS, k), replace=True)


def best(values: Sequence[float], k: int) -> float:
    """Mean of the highest of k values."""
    return float(np.asarray(values, dtype=np.float64)[draws(len(values), k)].max(axis=1).mean())


def worst(values: Sequence[float], k: int) -> float:
    """Mean of the lowest of k values."""
    return float(np.asarray(values, dtype=np.float64)[draws(len(values), k)].min(axis=1).mean())


def majority(values: Sequence[float], votes: Sequence[str], k: int) -> float:
    """Mean value of what most of k responses answer.

    Args:
        values: of each response.
        votes: what each answers; of answers with as many votes, the one drawn first wins.
        k: responses of a draw.

    The value is that of the first drawn response with that answer.
    """
    total = 0.0
    for drawn in draws(len(values), k).tolist():
        winner = Counter(votes[index] for index in drawn).most_common(1)[0][0]
        total += values[next(index for index in drawn if votes[index] == winner)]
    return total / DRAWS


def pass_at(n: int, right: int, k: int) -> float:
    """Chance that at least one of k responses is right, of n of which ``right`` are: 1 - C(n - right, k) / C(n, k)."""
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)
