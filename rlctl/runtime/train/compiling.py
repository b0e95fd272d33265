"""torch.compile: on a GPU it joins passes over tensors that would wait for memory one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._triton import has_triton

from rlctl.config.sections.train import Train


def compiles(train: Train, device: torch.device) -> bool:
    """Whether ``train.compile`` takes effect: on a GPU with a compiler. A model small enough for a CPU compiles longer than it
    saves."""
    return train.compile and device.type == "cuda" and has_triton()


def compile_layers(layers: Iterable[torch.nn.Module], backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile what each layer computes, one code for all that are alike and for all lengths, but not what gathers parameters.

    A layer that cannot be compiled runs as it is.
    """
    torch._dynamo.config.suppress_errors = True
    for layer in layers:
        layer.forward = torch.compile(layer.forward, dynamic=True, backend=backend)
