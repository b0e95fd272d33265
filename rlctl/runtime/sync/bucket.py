"""Buckets: weights end to end in one piece of memory, with a table of their names, types and shapes.

Many small tensors cost as much as one large one this way: one message, one copy, one object to pickle.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Named = tuple[str, Tensor]
MIB = 2**20
ALIGNED = 16
"""Bytes at a multiple of which every tensor begins, so that it can be looked at as its own type."""


@dataclass(frozen=True, slots=True)
class Table:
    """What is in a bucket, in order."""

    names: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Iterable[Named]) -> Table:
        rows = [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors]
        names, dtypes, shapes = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(names, dtypes, shapes)

    @property
    def nbytes(self) -> int:
        """Of memory that holds all of it."""
        return sum(_room(dtype, shape) for dtype, shape in zip(self.dtypes, self.shapes, strict=True))

    def views(self, data: Tensor) -> Iterator[Named]:
        """The tensors in ``data``, uint8 [nbytes or more], as views of it."""
        place = 0
        for name, dtype, shape in zip(self.names, self.dtypes, self.shapes, strict=True):
            size = math.prod(shape) * dtype.itemsize
            yield name, data[place : place + size].view(dtype).view(shape)
            place += _room(dtype, shape)


def _room(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) * dtype.itemsize // ALIGNED) * ALIGNED


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """A table and its bytes. In another process they are those of shared memory: to be read, not written."""

    table: Table
    data: Tensor
    """uint8 [table.nbytes], on any device."""

    def tensors(self) -> list[Named]:
        """The weights, as views."""
        return list(self.table.views(self.data))

    def __reduce__(self) -> tuple[Any, ...]:
        return _bucket, (self.table, self.data.cpu().numpy())


def _bucket(table: Table, data: np.ndarray) -> Bucket:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of memory that may not be written to, which nobody does
        return Bucket(table, torch.from_numpy(data))


def parts(tensors: Iterable[Named], most: int) -> Iterator[list[Named]]:
    """The tensors in order, in lists of at most ``most`` bytes; a larger one is alone in its own."""
    return (part for part, _ in parts_and_last(tensors, most))


def parts_and_last(tensors: Iterable[Named], most: int) -> Iterator[tuple[list[Named], bool]]:
    """The same, each with whether it is the last."""
    part: list[Named] = []
    size = 0
    for name, tensor in tensors:
        added = tensor.numel() * tensor.element_size()
        if part and size + added > most:
            yield part, False
            part, size = [], 0
        part.append((name, tensor))
        size += added
    if part:
        yield part, True


class Packer:
    """Packs tensors into one piece of memory, that of the bucket before: a bucket is to be used up before the next is packed."""

    def __init__(self, device: torch.device) -> None:
        """``device``: where buckets are; tensors from a GPU reach the host through pinned memory."""
        self._device = device
        self._memory = torch.empty(0, dtype=torch.uint8)

    def pack(self, tensors: list[Named]) -> Bucket:
        """A bucket of copies."""
        table = Table.of(tensors)
        crosses = self._device.type == "cpu" and any(tensor.is_cuda for _, tensor in tensors)
        data = self._room(table.nbytes, pinned=crosses)
        for (_, tensor), (_, place) in zip(tensors, table.views(data), strict=True):
            place.copy_(tensor, non_blocking=crosses)
        if crosses:
            torch.cuda.current_stream().synchronize()
        return Bucket(table, data)

    def _room(self, size: int, *, pinned: bool) -> Tensor:
        if len(self._memory) < size:
            self._memory = torch.empty(0, dtype=torch.uint8)
            self._memory = torch.empty(size, dtype=torch.uint8, device=self._device, pin_memory=pinned)
        return self._memory[:size]
