"""Matrix products of float32 layers on an AMD processor: by oneDNN, where PyTorch itself takes MKL.

MKL uses AVX-512 on Intel's processors only. oneDNN uses it on all, and takes half the time for the same sums in another order,
so results differ by rounding. It compiles code for each shape that it meets, in 0.2 to 0.5 ms, and keeps that of 1,024 shapes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 512
"""Rows that are multiplied and summed at a time, which stay in the cache of a core."""
SMALL = 2**20
"""Multiplications of a product that MKL does as fast: a call of oneDNN takes 10 us more."""


def use(model: torch.nn.Module, device: torch.device) -> None:
    """Compute the linear layers of a model by ``linear`` if that is faster on this machine; before any of them is wrapped."""
    if device.type == "cpu" and faster():
        for module in model.modules():
            if type(module) is torch.nn.Linear:
                module.forward = MethodType(forward, module)  # type: ignore[method-assign]


@cache
def faster() -> bool:
    """Whether oneDNN uses instructions of this processor that MKL does not."""
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def forward(layer: torch.nn.Linear, inputs: Tensor) -> Tensor:
    """That of a layer."""
    return linear(inputs, layer.weight, layer.bias)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """As ``torch.nn.functional.linear``, differentiable once; other types than float32 are PyTorch's own."""
    if inputs.dtype != torch.float32 or weight.dtype != torch.float32:
        return F.linear(inputs, weight, bias)
    rows = inputs.reshape(-1, inputs.shape[-1])
    output: Tensor = _Linear.apply(rows, weight, bias) if torch.is_grad_enabled() else times(rows, weight, bias)
    return output if inputs.dim() == 2 else output.view(*inputs.shape[:-1], len(weight))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return times(rows, weight, bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            times(grad, weight.T) if needs_rows else None,
            summed_products(grad, rows) if needs_weight else None,
            grad.sum(0) if needs_bias else None,
        )


def times(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return rows weight^T + bias: of [N, K] and [M, K] it is [N, M]."""
    if rows.numel() * len(weight) < SMALL or not faster():
        return F.linear(rows, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


def summed_products(left: Tensor, right: Tensor) -> Tensor:
    """Return left^T right: of [N, M] and [N, K] it is [M, K]."""
    if left.shape[1] > right.shape[1]:  # fewer rows of a result are faster
        return summed_products(right, left).T
    total = left.new_zeros(left.shape[1], right.shape[1])
    for first, second in zip(left.split(BLOCK), right.split(BLOCK), strict=True):
        total += times(first.T, second.T)
    return total
