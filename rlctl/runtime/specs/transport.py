"""The transport that a run's weights take: that of its way (``rlctl.planning.weight_transfer``)."""

from __future__ import annotations

from pathlib import Path

from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.planning.plan import Device
from rlctl.planning.support import generating
from rlctl.planning.weight_transfer import way_of
from rlctl.runtime.sync.device import Ipc, Nccl
from rlctl.runtime.sync.transport import Folder, HostMemory, Transport


def transport_of(config: Config, device: Device, place: Path) -> Transport:
    """The transport of a stage; ``place`` is its folder."""
    parallel = config.rollout.parallel
    match way_of(config, generating(config, device), device).name:
        case "nccl":
            return Nccl(parallel.tensor_parallel_size * parallel.pipeline_parallel_size)
        case "ipc":
            return Ipc(_workers_of(config))
        case "checkpoint":
            return Folder(place / "sync")
    return HostMemory()


def _workers_of(config: Config) -> tuple[tuple[int, ...], ...]:
    """By engine, the policy's workers on its GPUs."""
    parallel = config.rollout.parallel
    each = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    policy, rollout = arithmetic.devices_of(config, "policy"), arithmetic.devices_of(config, "rollout")
    workers = [policy.index(device) for device in rollout]
    return tuple(tuple(workers[start : start + each]) for start in range(0, len(workers), each))
