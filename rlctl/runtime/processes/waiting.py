"""What a run waits for before it has its devices: where they are to be, and which resource is missing, by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rlctl.common.messages.reasons import COMMAS, said, together

Resources = Mapping[str, float]
ONE_NODE, OWN_NODES, ANY_NODES = "STRICT_PACK", "STRICT_SPREAD", "PACK"
"""Ray's names of where the bundles of a run are."""
WHOLE_NODES = "WHOLE_NODES"
"""Those of each node of the plan on one node, which Ray has no name for."""


def strategy_of(count: int, nodes: int, each: int) -> str:
    """Where the devices of a plan are: on its one node, each on its own, those of each node on one, or where there is room.

    Args:
        count: devices of the run.
        nodes: of the plan.
        each: devices of a node.
    """
    if count > nodes * each:
        return ANY_NODES
    if count <= each:
        return ONE_NODE
    return OWN_NODES if each == 1 else WHOLE_NODES


def by_node(count: int, each: int) -> list[int]:
    """Devices of each node of a plan, which fills one after the other."""
    return [min(each, count - first) for first in range(0, count, each)]


def other_layout(node_of: Sequence[str], nodes: int, each: int) -> str:
    """What is to be told of devices that are on other nodes than a plan says; empty where they are as it says.

    Args:
        node_of: the node of each bundle.
        nodes: of the plan.
        each: devices of a node.
    """
    most = Counter(node_of).most_common()
    wanted = -(-len(node_of) // each)
    if len(node_of) > nodes * each or (len(most) == wanted and most[0][1] <= each):
        return ""
    held = " + ".join(str(count) for _, count in most)
    return said(
        "the plan has {nodes} nodes of {each} devices; the cluster gave {held} on {count}",
        nodes=nodes,
        each=each,
        held=held,
        count=len(most),
    )


def missing(
    count: int, bundle: Resources, nodes: Sequence[Resources], free: Resources, strategy: str = ANY_NODES
) -> str:
    """Why a cluster does not give a run its devices, in a sentence.

    Args:
        count: devices of the run.
        bundle: what each of them reserves.
        nodes: what each node of the cluster has, in use or not.
        free: what nobody uses now, over all nodes.
        strategy: where its devices are to be.
    """
    total: Counter[str] = Counter()
    for node in nodes:
        total.update({name: amount for name, amount in node.items() if name in bundle})
    each = " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())
    asked = said("the run needs {count} x ({each})", count=count, each=each)
    short = [
        said(
            "{lacking:g} {name} are missing: the cluster's {nodes} {total:g}",
            lacking=count * amount - total[name],
            name=name,
            nodes=_nodes(nodes),
            total=total[name],
        )
        for name, amount in bundle.items()
        if total[name] < count * amount
    ]
    if short:
        return together([asked, *short])
    room = [int(min(node.get(name, 0) // amount for name, amount in bundle.items())) for node in nodes]
    if sum(room) < count:
        return together(
            [
                asked,
                said(
                    "the cluster's {nodes} room for {count}, because each must fit on one node",
                    nodes=_nodes(nodes),
                    count=sum(room),
                ),
            ]
        )
    if strategy == ONE_NODE and max(room) < count:
        return said(
            "{asked} on one node (placement.nodes); the largest has room for {most}", asked=asked, most=max(room)
        )
    if strategy == OWN_NODES and sum(map(bool, room)) < count:
        with_room = _nodes([node for node, each_has in zip(nodes, room, strict=True) if each_has])
        return said("{asked}, each on a separate node (placement.nodes); {nodes} room", asked=asked, nodes=with_room)
    taken = [
        said("{name} ({free:g} of {total:g} are free)", name=name, free=free.get(name, 0), total=total[name])
        for name, amount in bundle.items()
        if free.get(name, 0) < count * amount
    ]
    if taken:
        return said("{asked}; other processes use too much {taken}", asked=asked, taken=together(taken, COMMAS))
    return together([asked, "free resources are spread over nodes, so that too few workers fit on one node"])


def _nodes(nodes: Sequence[Resources]) -> str:
    return "1 node has" if len(nodes) == 1 else said("{count} nodes have", count=len(nodes))


def in_order_of_nodes(node_of: Sequence[str]) -> list[int]:
    """Bundles so that those of one node are neighbours, as the devices of a plan are.

    Args:
        node_of: the node of each bundle.
    """
    first = {node: index for index, node in reversed(list(enumerate(node_of)))}
    return sorted(range(len(node_of)), key=lambda index: first[node_of[index]])
