"""While a run waits for devices it says which resource is missing; devices that are neighbours in a plan share a node."""

from __future__ import annotations

import pytest

from rlctl.runtime.processes.waiting import (
    ANY_NODES,
    ONE_NODE,
    OWN_NODES,
    WHOLE_NODES,
    by_node,
    in_order_of_nodes,
    missing,
    other_layout,
    strategy_of,
)

GPU = {"CPU": 2.0, "GPU": 1.0}
NODE = {"CPU": 16.0, "GPU": 8.0, "memory": 1e12}


@pytest.mark.parametrize(
    ("count", "nodes", "free", "told"),
    [
        (16, [NODE], {}, "the run needs 16 x (2 CPU and 1 GPU); 16 CPU are missing: the cluster's 1 node has 16; 8 GPU are missing"),
        (9, [{"CPU": 99.0}, NODE], {}, "1 GPU are missing: the cluster's 2 nodes have 8"),
        (2, [], {}, "4 CPU are missing: the cluster's 0 nodes have 0"),
        (3, [{"CPU": 3.0, "GPU": 3.0}] * 2, {"CPU": 6, "GPU": 6}, "room for 2, because each must fit on one node"),
        (8, [NODE], {"CPU": 16, "GPU": 3}, "other processes use too much GPU (3 of 8 are free)"),
        (8, [NODE] * 2, {"CPU": 16, "GPU": 8}, "spread over nodes, so that too few"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told(count: int, nodes: list[dict[str, float]], free: dict[str, float], told: str) -> None:
    assert told in missing(count, GPU, nodes, free)


@pytest.mark.parametrize(
    ("count", "nodes", "each", "strategy"),
    [
        (1, 1, 1, ONE_NODE),
        (8, 1, 8, ONE_NODE),
        (3, 2, 4, ONE_NODE),
        (3, 3, 1, OWN_NODES),
        (8, 2, 4, WHOLE_NODES),
        (5, 2, 4, WHOLE_NODES),
        (9, 1, 8, ANY_NODES),
    ],
)
def test_devices_are_on_the_nodes_of_the_plan(count: int, nodes: int, each: int, strategy: str) -> None:
    assert strategy_of(count, nodes, each) == strategy


def test_nodes_of_a_plan_fill_one_after_the_other() -> None:
    assert by_node(7, 3) == [3, 3, 1]
    assert by_node(8, 4) == [4, 4]


def test_what_is_missing_goes_by_where_devices_are_to_be() -> None:
    halves = [{"CPU": 8.0, "GPU": 4.0}] * 2
    everything = {"CPU": 16.0, "GPU": 8.0}
    assert "on one node (placement.nodes); the largest has room for 4" in missing(8, GPU, halves, everything, ONE_NODE)
    assert "each on a separate node (placement.nodes); 2 nodes have room" in missing(
        3, GPU, halves, everything, OWN_NODES
    )


@pytest.mark.parametrize(
    ("node_of", "told"),
    [
        ("aaaabbbb", ""),
        ("abababab", ""),
        ("aaaaaa", "gave 6 on 1"),
        ("aaaaaaaa", "gave 8 on 1"),
        ("aaaaabbb", "gave 5 + 3 on 2"),
        ("aaabbbcc", "the plan has 2 nodes of 4 devices; the cluster gave 3 + 3 + 2 on 3"),
        ("aaaaaaaaa", ""),
    ],
)
def test_another_layout_than_the_plans_is_told(node_of: str, told: str) -> None:
    found = other_layout(node_of, 2, 4)
    assert told in found
    assert bool(told) == bool(found)


@pytest.mark.parametrize(
    ("nodes", "order"), [("aabb", [0, 1, 2, 3]), ("abab", [0, 2, 1, 3]), ("bab", [0, 2, 1]), ("", [])]
)
def test_bundles_of_a_node_are_neighbours(nodes: str, order: list[int]) -> None:
    assert in_order_of_nodes(nodes) == order
