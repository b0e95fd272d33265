"""In which order rows are drawn: pure functions of seed, epoch and number of rows.

Random numbers are raw words of numpy's PCG64 keyed by SeedSequence, whose streams numpy guarantees over versions and
platforms (NEP 19; its ``permutation`` is not covered). An order is recomputed from three integers, so that a data position
is saved as integers and restored without replaying the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said

_ORDER, _MIX = 0, 1
"""Separate streams for the order within a source and the choice of the source."""


def sequential(rows: int, *, seed: int, epoch: int) -> np.ndarray:
    """File order. int64 [rows]."""
    return np.arange(rows)


def shuffle(rows: int, *, seed: int, epoch: int) -> np.ndarray:
    """Every row once, in an order of the epoch's own. int64 [rows]."""
    return np.argsort(_words(rows, seed, _ORDER, epoch), kind="stable")


ORDERS: dict[str, Callable[..., np.ndarray]] = {"sequential": sequential, "shuffle": shuffle}
"""Orders of a whole epoch."""


def distinct(count: int, rows: int, *, seed: int, epoch: int, position: int) -> np.ndarray:
    """Draw ``count`` different rows from all of them, whatever was drawn before. int64 [count]."""
    return np.argsort(_words(rows, seed, _ORDER, epoch, position), kind="stable")[:count]


def easy_to_hard(columns: Sequence[Sequence[float]]) -> np.ndarray:
    """Rows by falling ease, by the first column, then the next; of equal ones the last in the file comes first. int64 [rows].

    Source: Trinity-RFT's OfflineEasy2HardSelector, buffer/selector/selector.py.
    """
    return np.lexsort(numbers_of(columns).T[::-1])[::-1]


def numbers_of(columns: Sequence[Sequence[float]]) -> np.ndarray:
    """Columns as float64 [rows, columns].

    Raises:
        RunError: they do not hold numbers.
    """
    try:
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
    except (TypeError, ValueError) as error:
        raise RunError(
            said("a difficulty column contains values that are not numbers: {error}", error=error),
            hint="set data.curriculum.keys to columns of numbers",
        ) from error


def draw_sources(count: int, shares: Sequence[float], *, seed: int, start: int) -> list[int]:
    """Draw the source of each of ``count`` prompts, ``start`` prompts having been drawn before.

    Args:
        count: prompts.
        shares: of the sources, summing to 1.
        seed: of the data order.
        start: draws made before; draw number ``start + i`` is the same whatever the size of the batch it falls in.
    """
    generator = np.random.PCG64(np.random.SeedSequence([seed, _MIX]))
    generator.advance(start)
    uniform = generator.random_raw(count).astype(np.float64) / 2.0**64
    return np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right").tolist()


def split_exactly(count: int, shares: Sequence[float], keys: Sequence[str]) -> list[int]:
    """Split ``count`` prompts by shares: floor(share * count) each, the remainder to the last source.

    Args:
        count: prompts.
        shares: of the sources, summing to 1.
        keys: where the config weighs each source, for messages.

    Source: ROLL's ``domain_interleave_probs``, roll/pipeline/rlvr/rlvr_pipeline.py.

    Raises:
        RunError: a source would never be drawn.
    """
    counts = [int(share * count + 1e-9) for share in shares]
    counts[-1] += count - sum(counts)
    if min(counts) == 0:
        empty = counts.index(0)
        raise RunError(
            said(
                "each batch is split exactly by weight, and {key} gets {share:.3g} of {count} prompts: none",
                key=keys[empty],
                share=shares[empty],
                count=count,
            ),
            hint=said(
                "raise its weight to at least {value:.3g} of all, or raise batch.prompts_per_step", value=1 / count
            ),
        )
    return counts


def _words(count: int, *key: int) -> np.ndarray:
    return np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
