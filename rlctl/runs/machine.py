"""What this machine offers, asked without loading torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.planning.plan import Cluster

ANSWER_SECONDS = 20.0
"""Within which the driver's tool says which GPUs there are."""


def local_cluster() -> Cluster:
    """This machine: its GPUs that this process may use, or its CPU cores as devices where there are none.

    Raises:
        RunError: the driver does not say which GPUs there are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = _visible(_local_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if gpus:
        known = [gpu.gib for gpu in gpus if gpu.gib is not None]
        gib = min(known, default=None)
        return Cluster(nodes=1, devices_per_node=len(gpus), device="cuda", cpus_per_node=cores, gib_per_device=gib)
    return Cluster(nodes=1, devices_per_node=cores, device="cpu", cpus_per_node=cores)


class _Gpu(NamedTuple):
    uuid: str
    gib: float | None
    """Of its memory; None where the driver does not say, as of one that shares the memory of the CPU."""


def _local_gpus() -> list[_Gpu]:
    """All of this machine, by the driver's own tool, so that torch need not be loaded.

    Raises:
        RunError: the tool does not answer.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise RunError(
            said("{tool} did not list this machine's GPUs within {seconds:g} s", tool=tool, seconds=ANSWER_SECONDS),
            hint="run it to see whether the driver hangs; if its folder is not in PATH, rlctl assumes no GPUs",
        ) from None
    if asked.returncode != 0:
        return []
    rows = (line.partition(",") for line in asked.stdout.splitlines() if line.strip())
    return [_Gpu(uuid.strip(), _gib(memory.strip())) for uuid, _, memory in rows]


def _gib(mib: str) -> float | None:
    return float(mib) / 1024 if mib.isdecimal() else None


def _visible(gpus: Sequence[_Gpu], named: str | None) -> list[_Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves this process, which are those that Ray finds: numbers, or beginnings of uuids."""
    if named is None:
        return list(gpus)
    found = []
    for name in (part.strip() for part in named.split(",")):
        if name.isdecimal():
            chosen = gpus[int(name) : int(name) + 1]
        elif name.startswith("MIG-"):
            chosen = [_Gpu(name, None)]
        else:
            chosen = [gpu for gpu in gpus if name and gpu.uuid.startswith(name)]
        if not chosen:  # CUDA passes over what stands behind one that is not there
            break
        found.append(chosen[0])
    return found
