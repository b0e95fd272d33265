"""Sequences of small tensors that cross processes as a few large ones.

Pickling a tensor costs as much as copying some hundred kilobytes. These are plain tuples to whoever reads them, and only
pickle differently; unpickled, their tensors are views of the large ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class TensorTuple(tuple[Tensor, ...]):
    """CPU tensors of any shapes and dtypes."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        dtypes = list(dict.fromkeys(tensor.dtype for tensor in self))
        flat = [
            torch.cat([tensor.detach().reshape(-1) for tensor in self if tensor.dtype == dtype]) for dtype in dtypes
        ]
        layout = [(dtypes.index(tensor.dtype), tuple(tensor.shape)) for tensor in self]
        return _tensors, ([_bytes(tensor) for tensor in flat], dtypes, layout)


def _bytes(tensor: Tensor) -> np.ndarray:
    """The memory of a tensor of one dimension, which pickle hands over as it is; of a tensor it makes a file in memory."""
    return tensor.view(torch.uint8).numpy()


def _tensors(
    parts: Sequence[np.ndarray], dtypes: Sequence[torch.dtype], layout: Sequence[tuple[int, tuple[int, ...]]]
) -> TensorTuple:
    own = [part if part.flags.writeable else part.copy() for part in parts]  # what Ray hands over may not be written to
    flat = [torch.from_numpy(part).view(dtype) for part, dtype in zip(own, dtypes, strict=True)]
    return _split(flat, layout)


def _split(flat: Sequence[Tensor], layout: Sequence[tuple[int, tuple[int, ...]]]) -> TensorTuple:
    sizes = [[torch.Size(shape).numel() for place, shape in layout if place == index] for index in range(len(flat))]
    parts = [iter(tensor.split(size)) for tensor, size in zip(flat, sizes, strict=True)]
    return TensorTuple(next(parts[index]).view(shape) for index, shape in layout)


class NamedTensors(tuple[tuple[str, Tensor], ...]):
    """Pairs of a name and a CPU tensor, as the weights of a model."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, ([name for name, _ in self], TensorTuple(tensor for _, tensor in self))


def _named(names: Sequence[str], tensors: Iterable[Tensor]) -> NamedTensors:
    return NamedTensors(zip(names, tensors, strict=True))
