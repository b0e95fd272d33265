"""What this machine offers, asked without loading torch."""

from __future__ import annotations

import os
import shutil
import subprocess

from rlctl.plan import Cluster


def local_cluster() -> Cluster:
    """This machine: its GPUs, or its CPU cores as devices where it has none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = _local_gpus()
    if gpus:
        return Cluster(
            nodes=1, devices_per_node=len(gpus), device="cuda", cpus_per_node=cores, gib_per_device=min(gpus)
        )
    return Cluster(nodes=1, devices_per_node=cores, device="cpu", cpus_per_node=cores)


def _local_gpus() -> list[float]:
    """Memory in GiB of each GPU, by the driver's own tool, so that torch need not be loaded."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    asked = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    return [float(line) / 1024 for line in asked.stdout.split()] if asked.returncode == 0 else []
