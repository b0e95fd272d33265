"""Brings parameters that are spread over the workers together, on the first one or on all.

Many go in one message, as latency is what the gathering of a small model costs, and few enough that a large one needs little
more memory than it has parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from rlctl.runtime.sync.bucket import Table, parts

BUCKET_BYTES = 256 * 2**20
"""Of one message, all workers' parts together; a larger tensor is alone in its own."""


def whole(
    tensors: Iterable[tuple[str, Tensor]],
    *,
    bucket_bytes: int = BUCKET_BYTES,
    own: bool = True,
    everywhere: bool = False,
) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in full on rank 0 or ``everywhere``, none elsewhere, in order. Every worker is to exhaust it.

    They are copies; without ``own`` those that nobody had to gather are the parameters themselves.
    """
    here = everywhere or dist.get_rank() == 0
    for together, run in groupby(tensors, key=lambda item: _by_rows(item[1])):
        for bucket in parts(run, bucket_bytes) if together else ([item] for item in run):
            spread = [tensor for _, tensor in bucket if isinstance(tensor, DTensor)]
            found = _gather(spread, everywhere) if together else [_alone(bucket[0][1], own=own)]
            if here:
                yield from zip((name for name, _ in bucket), found, strict=True)


def _by_rows(tensor: Tensor) -> tuple[torch.dtype, torch.device] | None:
    """What tensors have in common that go into one message; None where there is nothing to gather by rows."""
    if not isinstance(tensor, DTensor) or tensor.placements != (Shard(0),):
        return None
    if tensor.device_mesh.size() != dist.get_world_size() or dist.get_world_size() == 1:
        return None
    return tensor.dtype, tensor.to_local().device


def _alone(tensor: Tensor, *, own: bool) -> Tensor:
    if isinstance(tensor, DTensor):
        if dist.get_world_size() > 1:
            return tensor.full_tensor().clone()
        tensor = tensor.to_local()
    return tensor.clone() if own else tensor


def from_first(tensors: list[tuple[str, Tensor]], device: torch.device) -> list[tuple[str, Tensor]]:
    """What rank 0 has, on every worker, on ``device``."""
    told = [Table.of(tensors)]
    dist.broadcast_object_list(told, src=0)
    (table,) = told
    if dist.get_rank() == 0:
        sent = [tensor.contiguous() for _, tensor in tensors]
    else:
        alike = zip(table.dtypes, table.shapes, strict=True)
        sent = [torch.empty(shape, dtype=dtype, device=device) for dtype, shape in alike]
    for tensor in sent:
        dist.broadcast(tensor, src=0)
    return list(zip(table.names, sent, strict=True))


def _gather(tensors: list[DTensor], everywhere: bool) -> list[Tensor]:
    """The tensors in full, on rank 0 or everywhere. Each worker sends its rows, padded to those of the first, which has most."""
    world = dist.get_world_size()
    sizes = [_share(tensor, world) for tensor in tensors]
    local = tensors[0].to_local()
    sent = torch.zeros(sum(sizes), dtype=local.dtype, device=local.device)
    for tensor, place in zip(tensors, sent.split(sizes), strict=True):
        part = tensor.to_local().flatten()
        place[: len(part)] = part
    received = [torch.empty_like(sent) for _ in range(world)] if everywhere or dist.get_rank() == 0 else None
    if everywhere:
        dist.all_gather(received, sent)
    else:
        dist.gather(sent, received)
    if received is None:
        return []
    parts = zip(*(flat.split(sizes) for flat in received), strict=True)
    return [torch.cat(part)[: tensor.numel()].view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def _share(tensor: DTensor, world: int) -> int:
    """Numbers of the rows that the first of ``world`` workers holds, as ``torch.chunk`` deals them out."""
    rows = tensor.shape[0]
    return -(-rows // world) * (tensor.numel() // rows) if rows else 0
