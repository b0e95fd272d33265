"""Ulysses: several workers share one sequence. Each computes a slice of its tokens, and in attention a share of the heads.

    tokens [T] ──slice──▶ [T / S] ──layers──▶ q, k, v [heads, T / S] ──all to all──▶ [heads / S, T] ──attention──▶
    [heads / S, T] ──all to all──▶ [heads, T / S] ──layers, head──▶ log-probs [N of the slice] ──gather──▶ [N] everywhere

Every worker of a group computes the loss of all tokens and passes back the gradient of its own; over all workers the gradients
add up to that of the loss. Source: Jacobs et al. 2023, arXiv:2309.14509.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.runtime.train.microbatch import MicroBatch


@dataclass(frozen=True)
class SequenceGroup:
    """The workers that share a sequence with this one: neighbours in rank."""

    members: dist.ProcessGroup
    rank: int
    size: int

    def part_of(self, batch: MicroBatch) -> tuple[MicroBatch, list[int]]:
        """This worker's slice of a micro-batch laid end to end, and how many counted tokens each worker's slice predicts.

        The slices are of one length; what fills up the last one is dropped in attention.
        """
        total = batch.inputs["input_ids"].shape[1]
        width = -(-total // self.size)
        start = self.rank * width
        counts = torch.bincount(batch.selected // width, minlength=self.size).tolist()
        first = sum(counts[: self.rank])
        mine = slice(first, first + counts[self.rank])
        fed = {
            name: F.pad(batch.inputs[name], (0, width * self.size - total))[:, start : start + width]
            for name in ("input_ids", "position_ids")
        }
        sliced = dataclasses.replace(
            batch,
            inputs={**batch.inputs, **fed, "sequence": self},
            select=batch.select[mine] - start,
            targets=batch.targets[mine],
        )
        return sliced, counts

    def gather(self, values: Tensor, counts: list[int]) -> Tensor:
        """The values of all slices in order, [N], from this worker's, [counts[rank]]."""
        whole: Tensor = _Gather.apply(values, counts, self)
        return whole

    def slice_rows(self, rows: Tensor, fill: Tensor) -> Tensor:
        """This worker's slice of rows, [T, ...], that all workers have; ``fill``, [1, ...], fills up the last one."""
        width = -(-len(rows) // self.size)
        whole = torch.cat((rows, fill.expand(width * self.size - len(rows), *rows.shape[1:])))
        return whole[self.rank * width : (self.rank + 1) * width]

    def join_rows(self, rows: Tensor, total: int) -> Tensor:
        """The rows of all slices, [total, ...], from this worker's."""
        received = [torch.empty_like(rows) for _ in range(self.size)]
        dist.all_gather(received, rows.contiguous(), group=self.members)
        return torch.cat(received)[:total]

    def heads(self, query: Tensor, key: Tensor, value: Tensor, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        """From all heads of a slice, [1, heads, T / S, dim], to a share of the heads of all ``tokens``.

        Raises:
            PlanError: the heads do not divide.
        """
        every, shared = query.shape[1], key.shape[1]
        if every % self.size or (shared % self.size and self.size % shared):
            raise PlanError(
                said(
                    "train.engine.ulysses_sequence_parallel_size is {size}, which does not divide the model's {every} "
                    "attention heads and {shared} key-value heads",
                    size=self.size,
                    every=every,
                    shared=shared,
                ),
                hint="set train.engine.ulysses_sequence_parallel_size to a divisor of both",
            )
        if shared < self.size:
            key, value = (tensor.repeat_interleave(self.size // shared, 1) for tensor in (key, value))
        q, k, v = (self._to_heads(tensor)[:, :, :tokens] for tensor in (query, key, value))
        return q, k, v

    def _to_heads(self, tensor: Tensor) -> Tensor:
        heads = tensor[0].unflatten(0, (self.size, -1))  # [S, heads / S, T / S, dim]: a share for each worker
        received = self._exchange(heads)  # [S, heads / S, T / S, dim]: a slice from each worker
        return received.transpose(0, 1).flatten(1, 2).unsqueeze(0)

    def slice_of(self, output: Tensor) -> Tensor:
        """From a share of the heads of all tokens, [1, T, heads / S, dim], to all heads of a slice, [1, T / S, heads, dim]."""
        width = -(-output.shape[1] // self.size)
        padded = F.pad(output[0], (0, 0, 0, 0, 0, width * self.size - output.shape[1]))
        received = self._exchange(padded.unflatten(0, (self.size, width)))  # [S, T / S, heads / S, dim]
        return received.transpose(0, 1).flatten(1, 2).unsqueeze(0)

    def _exchange(self, tensor: Tensor) -> Tensor:
        received: Tensor = _Exchange.apply(tensor, self)
        return received


def make_group(size: int) -> SequenceGroup | None:
    """Meet the workers that share sequences with this one, ``size`` neighbours each; None where sequences are whole.

    Raises:
        PlanError: the workers do not divide.
    """
    if size == 1:
        return None
    world, rank = dist.get_world_size(), dist.get_rank()
    if world % size:
        raise PlanError(
            said(
                "train.engine.ulysses_sequence_parallel_size is {size} and there are {world} training workers; they "
                "do not divide",
                size=size,
                world=world,
            ),
            hint="set train.engine.ulysses_sequence_parallel_size to a divisor of the workers",
        )
    groups = [dist.new_group(list(range(start, start + size))) for start in range(0, world, size)]
    return SequenceGroup(groups[rank // size], rank % size, size)


class _Exchange(torch.autograd.Function):
    """Part i of the first dimension goes to worker i; what comes from it takes its place. Its own inverse."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: SequenceGroup) -> Tensor:
        ctx.group = group
        return _all_to_all(tensor, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _all_to_all(grad, ctx.group), None


def _all_to_all(tensor: Tensor, group: SequenceGroup) -> Tensor:
    sent = tensor.contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group.members)
    return received


class _Gather(torch.autograd.Function):
    """All workers compute the same from what is gathered, so the gradient of a slice is its part of it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, counts: list[int], group: SequenceGroup) -> Tensor:
        first = sum(counts[: group.rank])
        ctx.mine = slice(first, first + counts[group.rank])
        sent = F.pad(values, (0, max(counts) - len(values)))
        received = [torch.empty_like(sent) for _ in counts]
        dist.all_gather(received, sent, group=group.members)
        return torch.cat([part[:count] for part, count in zip(received, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad[ctx.mine], None, None
