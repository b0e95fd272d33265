"""A running Ray cluster, asked before a run joins it."""

from __future__ import annotations

import logging
from typing import Literal

from rlctl.common import packages
from rlctl.common.errors import MissingDependency
from rlctl.runtime.processes.ray_access import address_to_join, join


def device_of(address: str) -> Literal["cuda", "cpu"]:
    """What a device is on the cluster at an address: GPUs where any node has one.

    Raises:
        MissingDependency: Ray is not installed.
        RunError: the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(
            "rlctl needs Ray to run, but Ray is not installed", hint=packages.install(packages.RUNTIME)
        ) from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        join(address_to_join(address), log_to_driver=False, logging_level="error", configure_logging=False)
        return "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    finally:
        ray.shutdown()
