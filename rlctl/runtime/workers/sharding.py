"""How a step's samples become mini-batches, and mini-batches become shares: plain index arithmetic, the same everywhere.

samples ──mini_batches──▶ one list of samples an optimizer step ──split_over_replicas──▶ one share a worker
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

from rlctl.config.sections.batch import Batch
from rlctl.planning.models import read_shape
from rlctl.runtime.algorithms.preference import PAIR
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.train.microbatch import spread
from rlctl.runtime.types import Sample, trajectories_of


def mini_batches(count: int, batch: Batch, *, seed: int, step: int, size: int | None = None) -> list[list[int]]:
    """Return the samples of every optimizer step of a step, over all epochs, as indices below ``count``.

    In the order of the samples, so that groups stay together, or shuffled anew in every epoch where ``batch.shuffle`` is
    set. The last mini-batch of an epoch is smaller where the samples do not divide.

    Args:
        count: samples of the step.
        batch: section ``batch``.
        seed: the run's, where ``batch.shuffle_seed`` is null.
        step: number of the step, so that every step is shuffled differently.
        size: of a mini-batch, where it is not ``batch.mini_batch_responses``.
    """
    size = size or batch.mini_batch_responses or max(1, count)
    base = seed if batch.shuffle_seed is None else batch.shuffle_seed
    parts: list[list[int]] = []
    for epoch in range(batch.ppo_epochs):
        order = list(range(count))
        if batch.shuffle:
            random.Random(derive_seed(base, "mini-batches", step, epoch)).shuffle(order)
        parts += [order[start : start + size] for start in range(0, count, size)]
    return parts


def mini_batches_of(samples: Sequence[Sample], batch: Batch, *, seed: int, step: int) -> list[list[int]]:
    """As ``mini_batches``, over the trajectories of samples: all rows of one are in the same mini-batch."""
    if all(sample.trajectory is None for sample in samples):
        return mini_batches(len(samples), batch, seed=seed, step=step)
    rows: list[list[int]] = []
    for index, owner in enumerate(trajectories_of(samples)):
        if owner == len(rows):
            rows.append([])
        rows[owner].append(index)
    parts = mini_batches(len(rows), batch, seed=seed, step=step)
    return [[index for owner in part for index in rows[owner]] for part in parts]


def mixed_mini_batches(
    usual: int, experts: int, per_mini_batch: int, batch: Batch, *, seed: int, step: int
) -> list[list[int]]:
    """As ``mini_batches``, with ``per_mini_batch`` of the expert samples in each, which stand after the ``usual`` ones.

    They are taken in their order, round and round.
    """
    size = None if batch.mini_batch_responses is None else batch.mini_batch_responses - per_mini_batch
    parts = mini_batches(usual, batch, seed=seed, step=step, size=size)
    rounds = experts // per_mini_batch
    starts = [usual + (number % rounds) * per_mini_batch for number in range(len(parts))]
    return [[*part, *range(start, start + per_mini_batch)] for part, start in zip(parts, starts, strict=True)]


def split_pairs(costs: Sequence[float], replicas: int, *, balance: bool) -> list[list[int]]:
    """As ``split_over_replicas``, with the two sequences of each pair, which are neighbours, in one share."""
    pairs = [sum(costs[start : start + PAIR]) for start in range(0, len(costs), PAIR)]
    return [spread(share, len(costs), PAIR) for share in split_over_replicas(pairs, replicas, balance=balance)]


FEW_TOKENS = 24576.0
"""As verl's seqlen_balancing.py has it for a model of 7 billion parameters; see ``cost``."""


def cost(tokens: int, linear: float = FEW_TOKENS) -> float:
    """What a sequence costs to compute, in some unit: all layers once a token, and attention to every token before it.

    ``linear``: the length at which attention costs as much as all else; see ``linear_tokens``.
    """
    return tokens * (linear + tokens)


def linear_tokens(model_path: str) -> float:
    """Parameters a token is multiplied with, over the numbers it is attended with, which is ``memory.forward_flops``."""
    shape = read_shape(model_path)
    return FEW_TOKENS if shape is None else shape.active_parameters / (shape.layers * shape.attention_width)


def split_over_replicas(costs: Sequence[float], replicas: int, *, balance: bool) -> list[list[int]]:
    """Return the share of each replica, as ascending indices into ``costs``; every sample is in one share.

    Balanced: the most costly first, each to the replica with the least cost so far that is not full; no share has more than
    one sample more than another. Otherwise consecutive runs. How samples are shared changes speed, not numbers.

    Args:
        costs: of each sample.
        replicas: how many shares.
        balance: even out costs.
    """
    sizes = [len(costs) // replicas + (rank < len(costs) % replicas) for rank in range(replicas)]
    if not balance:
        starts = [sum(sizes[:rank]) for rank in range(replicas)]
        return [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
    order = sorted(range(len(costs)), key=lambda index: (-costs[index], index))
    if len(costs) <= replicas:
        return [[index] for index in order] + [[] for _ in range(replicas - len(costs))]
    shares: list[list[int]] = [[] for _ in range(replicas)]
    least = [(0.0, rank) for rank in range(replicas) if sizes[rank]]  # a heap of what is not full
    for index in order:
        total, rank = heapq.heappop(least)
        shares[rank].append(index)
        if len(shares[rank]) < sizes[rank]:
            heapq.heappush(least, (total + costs[index], rank))
    return [sorted(share) for share in shares]
