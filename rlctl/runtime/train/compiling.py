"""Whether torch.compile pays: on a GPU it joins passes over tensors that would wait for memory one after the other."""

from __future__ import annotations

import torch
from torch.utils._triton import has_triton

from rlctl.config.sections.train import Train


def compiles(train: Train, device: torch.device) -> bool:
    """Whether ``train.compile`` takes effect: on a GPU with a compiler. A model small enough for a CPU compiles longer than it
    saves."""
    return train.compile and device.type == "cuda" and has_triton()
