"""Norms and gated MLPs of known models in float32 on a CPU, with fewer passes over memory than their own code.

    norm    a number a row times the row, times the weight      backward: 6 passes instead of 12
    MLP     down(silu(gate) * up)                               backward: block by block, so that all between stays in the cache

The formulas are Transformers', the backward passes written by hand. Results differ by rounding.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlctl.runtime.models.cpu_products import BLOCK, summed_products, times

NORMS = frozenset({"LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm"})
"""Classes that have a ``weight`` and a ``variance_epsilon``."""
MLPS = frozenset({"LlamaMLP", "MistralMLP", "Qwen2MLP", "Qwen3MLP"})
"""Classes that have ``gate_proj``, ``up_proj``, ``down_proj`` and ``act_fn``."""


def use(model: torch.nn.Module, device: torch.device) -> None:
    """Compute the layers of a model that are known here; before any of them is wrapped."""
    if device.type != "cpu":
        return
    module: Any
    for module in model.modules():
        name = type(module).__name__
        if name in NORMS:
            module.forward = MethodType(norm, module)
        if name in MLPS and module.config.hidden_act == "silu":
            module.forward = MethodType(mlp, module)


def norm(layer: Any, inputs: Tensor) -> Tensor:
    """The forward pass of a norm."""
    if inputs.dtype != torch.float32 or layer.weight.dtype != torch.float32:
        own: Tensor = type(layer).forward(layer, inputs)
        return own
    rows = inputs.reshape(-1, inputs.shape[-1])
    output: Tensor = _Norm.apply(rows, layer.weight, layer.variance_epsilon)
    return output.view(inputs.shape)


def mlp(layer: Any, inputs: Tensor) -> Tensor:
    """The forward pass of an MLP; its own if a part has an adapter, a bias or FSDP's hooks, or is not trained."""
    parts = (layer.gate_proj, layer.up_proj, layer.down_proj)
    plain = all(type(part) is torch.nn.Linear and part.bias is None for part in parts)
    weights = [part.weight for part in parts]
    trained = not torch.is_grad_enabled() or all(weight.requires_grad for weight in weights)
    if not plain or not trained or {inputs.dtype, *(weight.dtype for weight in weights)} != {torch.float32}:
        own: Tensor = type(layer).forward(layer, inputs)
        return own
    output: Tensor = _Mlp.apply(inputs.reshape(-1, inputs.shape[-1]), *weights)
    return output.view(inputs.shape)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        scale = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        scale.square_().div_(rows.shape[1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(rows, weight, scale)
        return (rows * scale).mul_(weight)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        rows, weight, scale = ctx.saved_tensors
        product = grad * rows
        of_weight = summed_products(product, scale)[:, 0] if ctx.needs_input_grad[1] else None
        along = torch.mv(product, weight)[:, None] * scale.pow(3).div_(-rows.shape[1])
        of_rows = torch.mul(grad, weight, out=product).mul_(scale).addcmul_(rows, along)
        return of_rows, of_weight, None


class _Mlp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        gated, raised = times(rows, gate), times(rows, up)
        ctx.save_for_backward(rows, gate, up, down, gated, raised)
        return times(F.silu(gated).mul_(raised), down)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows, gate, up, down, gated, raised = ctx.saved_tensors
        of_rows = torch.empty_like(rows)
        of_gate, of_up, of_down = gate.new_zeros(gate.T.shape), up.new_zeros(up.T.shape), torch.zeros_like(down)
        for x, g, u, d, out in zip(*(each.split(BLOCK) for each in (rows, gated, raised, grad, of_rows)), strict=True):
            silu = F.silu(g)
            of_down += times(d.T, (silu * u).T)
            of_product = times(d, down.T)
            of_u = silu.mul_(of_product)
            of_g = torch.ops.aten.silu_backward(of_product.mul_(u), g)
            of_gate += times(x.T, of_g.T)
            of_up += times(x.T, of_u.T)
            torch.add(times(of_g, gate.T), times(of_u, up.T), out=out)
        return of_rows, of_gate.T, of_up.T, of_down
