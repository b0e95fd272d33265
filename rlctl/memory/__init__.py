"""Estimates of memory, arithmetic and time, from a config and the shapes of its models. No torch."""

from rlctl.memory.cost import StepCost, cost_of, forward_flops
from rlctl.memory.gpus import GPUS, Gpu, known_gpu
from rlctl.memory.parts import GIB, MemoryEstimate, MemoryPart
from rlctl.memory.roles import adapter_parameters, context_tokens, memory_of, micro_tokens

__all__ = [
    "GIB",
    "GPUS",
    "Gpu",
    "MemoryEstimate",
    "MemoryPart",
    "StepCost",
    "adapter_parameters",
    "context_tokens",
    "cost_of",
    "forward_flops",
    "known_gpu",
    "memory_of",
    "micro_tokens",
]
