"""On a cluster of several nodes with several devices each, those of an engine or a replica are on one node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from rlctl.common.errors import RunError
from rlctl.planning.plan import make_plan
from rlctl.runtime.processes.placement import _nodes_of, reserve

pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def odd_nodes() -> Iterator[Cluster]:
    """Nodes with room for 3, 3 and 2 devices: packed as tightly as they go, four devices of a plan are 3 + 1."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
    for cores in (3, 2):
        cluster.add_node(num_cpus=cores)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_devices_of_a_plans_node_are_on_one_node_and_after_its_loss_on_another(
    odd_nodes: Cluster, task: Any, tmp_path: Path
) -> None:
    plan = make_plan(task.config(tmp_path, placement={"nodes": 2, "devices_per_node": 2, "device": "cpu"}))
    with reserve(plan, timeout=60.0, logs=tmp_path, stop_requested=lambda: False) as placement:
        nodes = _nodes_of(placement.bundles)
        found = [nodes[bundle] for bundle in placement.order]
        assert (found[0], found[2]) == (found[1], found[3])
        lost = next(node for node in odd_nodes.worker_nodes if node.node_id in found)
        odd_nodes.remove_node(lost, allow_graceful=False)
        placement.restart()
        nodes = _nodes_of(placement.bundles)
        found = [nodes[bundle] for bundle in placement.order]
        assert (found[0], found[2]) == (found[1], found[3])
        assert lost.node_id not in found
    states = {group["state"] for group in ray.util.placement_group_table().values()}
    assert states == {"REMOVED"}


def test_a_cluster_whose_nodes_are_too_small_is_told(odd_nodes: Cluster, task: Any, tmp_path: Path) -> None:
    plan = make_plan(task.config(tmp_path, placement={"nodes": 2, "devices_per_node": 4, "device": "cpu"}))
    with (
        pytest.raises(RunError, match=r"the run needs 2 x \(4 CPU\); .* room for 0, because each must fit on one node"),
        reserve(plan, timeout=2.0, logs=tmp_path, stop_requested=lambda: False),
    ):
        pass
