"""How a step's samples become mini-batches, and mini-batches become shares: plain index arithmetic, the same everywhere.

samples ──mini_batches──▶ one list of samples an optimizer step ──split_over_replicas──▶ one share a worker
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlctl.config.sections.batch import Batch
from rlctl.runtime.seeds import derive_seed


def mini_batches(count: int, batch: Batch, *, seed: int, step: int) -> list[list[int]]:
    """Return the samples of every optimizer step of a step, over all epochs, as indices below ``count``.

    In the order of the samples, so that groups stay together, or shuffled anew in every epoch where ``batch.shuffle`` is
    set. The last mini-batch of an epoch is smaller where the samples do not divide.

    Args:
        count: samples of the step.
        batch: section ``batch``.
        seed: the run's, where ``batch.shuffle_seed`` is null.
        step: number of the step, so that every step is shuffled differently.
    """
    size = batch.mini_batch_responses or max(1, count)
    base = seed if batch.shuffle_seed is None else batch.shuffle_seed
    parts: list[list[int]] = []
    for epoch in range(batch.ppo_epochs):
        order = list(range(count))
        if batch.shuffle:
            random.Random(derive_seed(base, "mini-batches", step, epoch)).shuffle(order)
        parts += [order[start : start + size] for start in range(0, count, size)]
    return parts


def split_over_replicas(lengths: Sequence[int], replicas: int, *, balance: bool) -> list[list[int]]:
    """Return the share of each replica, as ascending indices into ``lengths``; every sample is in one share.

    Balanced: the longest first, each to the replica with the fewest tokens so far that is not full; no share has more than
    one sample more than another. Otherwise consecutive runs. How samples are shared changes speed, not numbers.

    Args:
        lengths: tokens of each sample.
        replicas: how many shares.
        balance: even out tokens.
    """
    sizes = [len(lengths) // replicas + (rank < len(lengths) % replicas) for rank in range(replicas)]
    if not balance:
        starts = [sum(sizes[:rank]) for rank in range(replicas)]
        return [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
    shares: list[list[int]] = [[] for _ in range(replicas)]
    tokens = [0] * replicas
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        open_ranks = [rank for rank in range(replicas) if len(shares[rank]) < sizes[rank]]
        rank = min(open_ranks, key=lambda rank: (tokens[rank], rank))
        shares[rank].append(index)
        tokens[rank] += lengths[index]
    return [sorted(share) for share in shares]
