"""Estimates of memory, arithmetic and time, from a config and the shapes of its models. No torch."""

from rlctl.planning.memory import fitted
from rlctl.planning.memory.cost import StepCost, cost_of, forward_flops
from rlctl.planning.memory.fitting import Change, Fit, fit_of
from rlctl.planning.memory.gpus import GPUS, Gpu, known_gpu
from rlctl.planning.memory.lengths import Lengths
from rlctl.planning.memory.parts import GIB, MemoryEstimate, MemoryPart
from rlctl.planning.memory.phases import PhaseEstimate, phases_of
from rlctl.planning.memory.roles import adapter_parameters, context_tokens, mean_share, memory_of, micro_tokens

__all__ = [
    "GIB",
    "GPUS",
    "Change",
    "Fit",
    "Gpu",
    "Lengths",
    "MemoryEstimate",
    "MemoryPart",
    "PhaseEstimate",
    "StepCost",
    "adapter_parameters",
    "context_tokens",
    "cost_of",
    "fit_of",
    "fitted",
    "forward_flops",
    "known_gpu",
    "mean_share",
    "memory_of",
    "micro_tokens",
    "phases_of",
]
