"""Kernels that give the same bits each time (``run.deterministic``): what the environment says of it, and what PyTorch is told.

An operation that has no such kernel is computed all the same, and PyTorch warns of it in the worker's log.
"""

from __future__ import annotations

VARIABLES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "FLASH_ATTENTION_DETERMINISTIC": "1",
    "NCCL_ALGO": "Ring",
    "PYTHONHASHSEED": "0",
}
"""Read by cuBLAS, FlashAttention, NCCL and Python, each when it is loaded."""


def use_deterministic_kernels() -> None:
    """Choose them in this process."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
