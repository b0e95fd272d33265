"""The process group that the workers of one model meet in: gloo on CPU, NCCL on GPU."""

from __future__ import annotations

import ipaddress
import os
import socket
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said

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
    timeout: float = 1800.0,
    register_timeout: float = 300.0,
    threads: int | None = None,
) -> None:
    """Meet the other workers; returns when all are there.

    Args:
        address: host of rank 0.
        port: a free port on it, the same for all.
        timeout: seconds to wait for the others in a collective.
        register_timeout: seconds to wait for them here.
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
            has = said(
                "worker {get_rank} of {get_world_size}", get_rank=dist.get_rank(), get_world_size=dist.get_world_size()
            )
            raise RunError(
                said(
                    "this process is {has} and cannot be worker {rank} of {world_size} too",
                    has=has,
                    rank=rank,
                    world_size=world_size,
                )
            )
        return
    if world_size > 1:
        _take_interface_towards(address, port)
    try:
        dist.init_process_group(
            BACKENDS[device],
            store=_meeting_place(rank, world_size, address, port, timedelta(seconds=register_timeout)),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout),
        )
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise RunError(
            said(
                "worker {rank} of {world_size} could not connect to the other workers at {address}:{port}: {error}",
                rank=rank,
                world_size=world_size,
                address=address,
                port=port,
                error=error,
            ),
            hint="check that the other workers started and that the port is reachable",
        ) from error


_offered: dict[int, Any] = {}
"""What listens on ports of this process, until the worker that will use it is made."""


def offer(address: str) -> int:
    """Listen on a free port for the worker of rank 0 that ``join`` makes in this process: nobody can take it in between.

    Args:
        address: where the other workers reach this machine. If that is the loopback, no other machine can connect; torch
            itself listens everywhere.
    """
    store: Any
    if ipaddress.ip_address(address).is_loopback:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=socket.SOMAXCONN)
        port = listener.getsockname()[1]
        store = dist.TCPStore(  # type: ignore[attr-defined]
            address, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
    else:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    _offered[store.port] = store
    return int(store.port)


def _meeting_place(rank: int, world_size: int, address: str, port: int, timeout: timedelta) -> Any:
    offered = _offered.pop(port, None) if rank == 0 else None
    if offered is not None:
        offered.set_timeout(timeout)
        return offered
    return dist.TCPStore(address, port, world_size, is_master=rank == 0, timeout=timeout)  # type: ignore[attr-defined]


def _take_interface_towards(address: str, port: int) -> None:
    """Let gloo use the network interface that reaches the first worker, unless GLOO_SOCKET_IFNAME names one.

    Left alone it takes that of the machine's own name, which on many machines is the loopback: others cannot reach it.
    """
    import psutil

    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    try:
        family, kind, _, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:
        return  # gloo says what it cannot reach
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            os.environ["GLOO_SOCKET_IFNAME"] = name
            return


def leave() -> None:
    """Leave the group, if this process is in one, and give the device's cached memory back."""
    if dist.is_initialized():
        dist.destroy_process_group()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
