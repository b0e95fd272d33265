"""What moves to CPU memory while a GPU is needed for something else: activations between passes, optimizers between turns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

LEAST_BYTES = 2**20
"""Smaller tensors stay: moving them costs more than they take."""


class OffloadedActivations(saved_tensors_hooks):
    """A context for a forward pass: what autograd keeps of it waits in CPU memory until the backward pass asks for it.

    With recomputed activations that is the input of each layer. Weights stay: they are kept by others anyway.
    """

    def __init__(self, *, least_bytes: int = LEAST_BYTES) -> None:
        super().__init__(self._pack, self._unpack)
        self._least_bytes = least_bytes
        self.moved = 0
        """Tensors moved so far."""

    def _pack(self, tensor: Tensor) -> tuple[torch.device, Tensor]:
        small = tensor.numel() * tensor.element_size() < self._least_bytes
        if small or _is_weight(tensor) or not tensor.is_floating_point():
            return tensor.device, tensor
        self.moved += 1
        pinned = tensor.device.type == "cuda"
        place = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        return tensor.device, place.copy_(tensor, non_blocking=pinned)

    def _unpack(self, packed: tuple[torch.device, Tensor]) -> Tensor:
        device, tensor = packed
        return tensor.to(device, non_blocking=True)


def _is_weight(tensor: Tensor) -> bool:
    source = tensor if tensor._base is None else tensor._base
    return isinstance(source, torch.nn.Parameter)


def move_optimizer(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move an optimizer's state; what is counted on CPU stays there."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor) and _belongs_on_device(name, value):
                state[name] = value.to(device)


def _belongs_on_device(name: str, value: Any) -> bool:
    return bool(name != "step" or value.device.type != "cpu")
