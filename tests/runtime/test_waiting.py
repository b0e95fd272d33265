"""While a run waits for devices it says which resource is missing; devices that are neighbours in a plan share a node."""

from __future__ import annotations

import pytest

from rlctl.runtime.waiting import in_order_of_nodes, missing

GPU = {"CPU": 2.0, "GPU": 1.0}
NODE = {"CPU": 16.0, "GPU": 8.0, "memory": 1e12}


@pytest.mark.parametrize(
    ("count", "nodes", "free", "told"),
    [
        (16, [NODE], {}, "the run needs 16 x (2 CPU and 1 GPU); 16 CPU are missing: the cluster's 1 node has 16, and 8 GPU are missing"),
        (9, [{"CPU": 99.0}, NODE], {}, "1 GPU are missing: the cluster's 2 nodes have 8"),
        (2, [], {}, "4 CPU are missing: the cluster's 0 nodes have 0"),
        (3, [{"CPU": 3.0, "GPU": 3.0}] * 2, {"CPU": 6, "GPU": 6}, "room for 2, since each must fit on one node"),
        (8, [NODE], {"CPU": 16, "GPU": 3}, "others use too much GPU (3 of 8 are free)"),
        (8, [NODE] * 2, {"CPU": 16, "GPU": 8}, "spread so that too few"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told(count: int, nodes: list[dict[str, float]], free: dict[str, float], told: str) -> None:
    assert told in missing(count, GPU, nodes, free)


@pytest.mark.parametrize(
    ("nodes", "order"), [("aabb", [0, 1, 2, 3]), ("abab", [0, 2, 1, 3]), ("bab", [0, 2, 1]), ("", [])]
)
def test_bundles_of_a_node_are_neighbours(nodes: str, order: list[int]) -> None:
    assert in_order_of_nodes(nodes) == order
