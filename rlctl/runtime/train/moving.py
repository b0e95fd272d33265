"""Tensors on their way to a GPU that is still at work."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device. A GPU takes it in its turn: from memory that is not pinned, PyTorch would wait for all work
    before it."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
