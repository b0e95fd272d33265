"""A machine of a cluster goes away, and the run goes on from its last checkpoint on the machines that are left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture
def three_nodes() -> Iterator[Cluster]:
    """A head that takes no work, and two nodes, each of which has room for the run."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_node_that_is_lost_costs_the_steps_since_the_last_checkpoint(
    task: Any, whole: Any, run: Callable[..., Any], tmp_path: Path, three_nodes: Cluster
) -> None:
    removed: list[str] = []

    def remove(event: dict[str, Any]) -> None:
        if removed or [event.get(key) for key in ("stage", "kind", "name", "step")] != ["grpo", "phase", "train", 1]:
            return
        bundles = [group["bundles_to_node_id"] for group in ray.util.placement_group_table().values()]
        lost = bundles[-1][0]
        removed.append(lost)
        three_nodes.remove_node(next(n for n in three_nodes.worker_nodes if n.node_id == lost), allow_graceful=False)

    settings = {"name": "demo", "folder": str(tmp_path), "seed": 7, "max_restarts": 1}
    runtime = {"ray": {"address": three_nodes.address, "call_timeout": 120.0}}
    survived = run(task.two_stages(tmp_path, run=settings, runtime=runtime), watch=remove)
    assert survived.result.status == "finished", survived.result.cause
    assert len(removed) == 1
    told = [event["message"] for event in survived.kinds("advisory")]
    assert any("the stage restarts from its last checkpoint (restart 1 of 1)" in message for message in told), told
    assert survived.numbers == whole.numbers
    ray.init(address=three_nodes.address, logging_level="error", log_to_driver=False)
    states = [group["state"] for group in ray.util.placement_group_table().values()]
    assert set(states) == {"REMOVED"}, "the devices are given back"
