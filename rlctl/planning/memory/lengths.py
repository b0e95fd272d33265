"""How long responses are: a few quantiles, from what is known of a run.

typical     half of the limit on average, as in the middle one of measured runs
worst       every response at its limit
a pair      p50=1200,p99=8000: a log-normal distribution through both
a histogram or a run: the lengths themselves
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

QUANTILES = 64
"""Lengths that stand for all responses, from the shortest to the longest."""
SPREAD = 0.7
"""Standard deviation of the logarithm of a response's length, if nothing is known of it."""
TYPICAL = 0.5
"""Mean length of responses as a share of their limit: the median of the runs in ``benchmarks/measured/steps.toml``."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts and responses."""

    prompt: float
    """Mean."""
    responses: tuple[float, ...]
    """Lengths that are equally frequent, ascending."""

    @property
    def response(self) -> float:
        """Mean of the responses."""
        return sum(self.responses) / len(self.responses)

    @property
    def mean(self) -> float:
        """Mean of prompt and response together."""
        return self.prompt + self.response

    @property
    def longest(self) -> float:
        """The longest response."""
        return self.responses[-1]


def of_mean(prompt: float, mean: float, limit: float) -> Lengths:
    """Log-normal lengths with a mean, cut at a limit.

    Args:
        prompt: mean tokens of a prompt.
        mean: mean tokens of a response.
        limit: most tokens of a response.
    """
    if mean >= limit:
        return Lengths(prompt, (float(limit),) * QUANTILES)
    median = _bisected(lambda middle: _mean(_cut(middle, SPREAD, limit)) - mean, 1e-3, 1e3 * limit)
    return Lengths(prompt, _cut(median, SPREAD, limit))


def of_pair(prompt: float, first: tuple[float, float], second: tuple[float, float], limit: float) -> Lengths:
    """Log-normal lengths through two percentiles, cut at a limit.

    Args:
        prompt: mean tokens of a prompt.
        first: a percentile (0 to 100) and its tokens.
        second: another one.
        limit: most tokens of a response.
    """
    (low, short), (high, long) = sorted((first, second))
    normal = NormalDist()
    below, above = (normal.inv_cdf(percent / 100) for percent in (low, high))
    spread = (math.log(long) - math.log(short)) / (above - below)
    return Lengths(prompt, _cut(short / math.exp(spread * below), spread, limit))


def of_counts(prompt: float, counts: Sequence[tuple[float, float]], limit: float) -> Lengths:
    """The lengths of a histogram, cut at a limit.

    Args:
        prompt: mean tokens of a prompt.
        counts: lengths, each with how often it occurs.
        limit: most tokens of a response.
    """
    ordered = sorted(counts)
    total = sum(count for _, count in ordered)
    found: list[float] = []
    reached, place = 0.0, 0
    for length, count in ordered:
        reached += count
        while place < QUANTILES and reached >= (place + 0.5) / QUANTILES * total:
            found.append(min(float(length), limit))
            place += 1
    found[-1] = min(float(ordered[-1][0]), limit)
    return Lengths(prompt, tuple(found))


def _cut(median: float, spread: float, limit: float) -> tuple[float, ...]:
    normal = NormalDist()
    ranks = ((place + 0.5) / QUANTILES for place in range(QUANTILES))
    return tuple(min(limit, median * math.exp(spread * normal.inv_cdf(rank))) for rank in ranks)


def _mean(lengths: Sequence[float]) -> float:
    return sum(lengths) / len(lengths)


def _bisected(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return low
