"""The experts of a worker, all in one call (``train.engine.moe.grouped_gemm``): PyTorch's grouped product of matrices.

Megatron-core's own grouped experts need packages for GPUs. These have the weights of its ``SequentialMLP``, one by one under
the same names, so that files, checkpoints and exports know nothing of how they are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import tensor_parallel
from megatron.core.transformer.moe.experts import SequentialMLP
from torch import Tensor

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said

BYTES = 16
"""What a row of a grouped product has to be a multiple of."""


class GroupedExperts(SequentialMLP):
    """Gated experts without biases; tokens are sorted by expert, as the dispatcher hands them over."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        down = self.local_experts[0].linear_fc2.weight
        uneven = next((size for size in down.shape if size * down.element_size() % BYTES), None)
        if uneven is not None:
            raise PlanError(
                said(
                    "train.engine.moe.grouped_gemm needs rows of whole multiples of {bytes} bytes, but a worker's "
                    "part of an expert is {shape} x {shape2} values of {element_size} bytes",
                    bytes=BYTES,
                    shape=down.shape[1],
                    shape2=down.shape[0],
                    element_size=down.element_size(),
                ),
                hint="set it to false, or lower train.engine.expert_tensor_parallel_size",
            )

    def forward(
        self, permuted_local_hidden_states: Tensor, tokens_per_expert: Tensor, permuted_probs: Tensor
    ) -> tuple[Tensor, None]:
        """[tokens, hidden] to the same, each token times the weight its router gave it."""
        hidden = permuted_local_hidden_states
        if not hidden.numel():  # a product of nothing is left to the experts themselves
            output, _ = super().forward(hidden, tokens_per_expert, permuted_probs)
            return output, None
        offsets = tokens_per_expert.cumsum(0).to(hidden.device, torch.int32)
        both = _product(hidden, [expert.linear_fc1.weight for expert in self.local_experts], offsets)
        down = [expert.linear_fc2.weight for expert in self.local_experts]
        if not _again(self.config.recompute_granularity, self.config.recompute_modules):
            return _product(_gate(both, permuted_probs), down, offsets), None
        kept = tensor_parallel.CheckpointWithoutOutput()
        output = _product(kept.checkpoint(_gate, both, permuted_probs), down, offsets)
        kept.discard_output_and_register_recompute(output)
        return output, None


def _product(tokens: Tensor, weights: list[Tensor], offsets: Tensor) -> Tensor:
    """Each token times the weight [out, in] of its expert."""
    product: Tensor = _Product.apply(tokens, offsets, *weights)
    return product


class _Product(torch.autograd.Function):
    """The product keeps the weights as they are for the backward pass, which stacks them again: kept stacked, every layer would
    hold a copy of its experts from forward to backward pass. The stack itself lives for one product."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, offsets: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(tokens, offsets, *weights)
        return F.grouped_mm(tokens, torch.stack(weights).transpose(1, 2), offs=offsets)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tokens, offsets, *weights = ctx.saved_tensors
        grad = grad.contiguous()
        to_tokens = F.grouped_mm(grad, torch.stack(weights), offs=offsets) if ctx.needs_input_grad[0] else None
        if not any(ctx.needs_input_grad[2:]):
            return to_tokens, None, *(None for _ in weights)
        return to_tokens, None, *F.grouped_mm(grad.T, tokens, offs=offsets).unbind()


def _gated(both: Tensor, probs: Tensor) -> Tensor:
    """SwiGLU, times the router's weight, in the number type of the tokens."""
    gate, linear = both.chunk(2, -1)
    return (F.silu(gate) * linear * probs.unsqueeze(-1)).to(both.dtype)


_gate: Callable[[Tensor, Tensor], Tensor] = _gated


def compile_gates() -> None:
    """Compute the activations of experts through torch.compile from now on, in this process."""
    global _gate
    _gate = torch.compile(_gated, dynamic=True)


def _again(granularity: str | None, modules: list[str] | None) -> bool:
    """Whether the activation is computed again in the backward pass."""
    return granularity == "selective" and "moe_act" in (modules or ())
