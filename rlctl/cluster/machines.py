"""The nodes that a plan asks a scheduler for."""

from __future__ import annotations

from dataclasses import dataclass

from rlctl.planning.arithmetic import Device
from rlctl.planning.plan import Plan

CONTROLLER_CPUS = 2
"""CPU cores of a node beside those of its workers: for the controller, and Ray's own processes."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Nodes of one kind."""

    nodes: int
    device: Device
    devices_per_node: int
    worker_cpus: int
    """CPU cores that Ray hands out to workers on each node."""

    @property
    def cpus_per_node(self) -> int:
        return self.worker_cpus + CONTROLLER_CPUS

    @property
    def gpus_per_node(self) -> int:
        return self.devices_per_node if self.device == "cuda" else 0

    def __str__(self) -> str:
        each = f"{self.devices_per_node} {'GPUs' if self.gpus_per_node else 'CPU workers'}"
        return f"{self.nodes} {'nodes' if self.nodes > 1 else 'node'} x {each}"


def machines_of(plan: Plan) -> Machines:
    """The nodes of a plan: as many cores as its workers reserve, one part for each device."""
    each = max(role.cpus_per_process for stage in plan.stages for role in stage.roles)
    return Machines(plan.nodes, plan.device, plan.devices_per_node, plan.devices_per_node * each)
