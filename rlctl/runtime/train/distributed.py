"""The process group that the workers of one model meet in: gloo on CPU, NCCL on GPU."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist

from rlctl.errors import RunError

Device = Literal["cpu", "cuda"]

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""On GPU gloo stays for what lives in CPU memory: counters, and parameters under CPU offload."""


def join(
    rank: int,
    world_size: int,
    address: str,
    port: int,
    *,
    device: Device = "cpu",
    timeout: float = 600.0,
    threads: int | None = None,
) -> None:
    """Meet the other workers; returns when all are there.

    Args:
        address: host of rank 0.
        port: a free port on it, the same for all.
        timeout: seconds to wait for the others, here and in every later collective.
        threads: CPU threads of this worker's kernels; sums are cut by thread, so another number gives other last bits.

    Raises:
        RunError: the others did not come in time, or this process already belongs to another group.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    if dist.is_initialized():
        if (dist.get_rank(), dist.get_world_size()) != (rank, world_size):
            has = f"worker {dist.get_rank()} of {dist.get_world_size()}"
            raise RunError(f"this process is {has} and cannot be worker {rank} of {world_size} too")
        return
    try:
        dist.init_process_group(
            BACKENDS[device],
            init_method=f"tcp://{address}:{port}",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout),
        )
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise RunError(
            f"worker {rank} of {world_size} could not meet the others at {address}:{port}: {error}",
            hint="see whether the other workers started, and whether the port can be reached",
        ) from error


def leave() -> None:
    """Leave the group, if this process is in one, and give the device's cached memory back."""
    if dist.is_initialized():
        dist.destroy_process_group()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
