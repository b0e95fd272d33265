"""What a run waits for before it has its devices: which resource is missing, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Resources = Mapping[str, float]


def missing(count: int, bundle: Resources, nodes: Sequence[Resources], free: Resources) -> str:
    """Why a cluster does not give a run its devices, in a sentence.

    Args:
        count: devices of the run.
        bundle: what each of them reserves.
        nodes: what each node of the cluster has, in use or not.
        free: what nobody uses now, over all nodes.
    """
    total: Counter[str] = Counter()
    for node in nodes:
        total.update({name: amount for name, amount in node.items() if name in bundle})
    each = " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())
    asked = f"the run needs {count} x ({each})"
    short = [
        f"{count * amount - total[name]:g} {name} are missing: the cluster's {_nodes(nodes)} {total[name]:g}"
        for name, amount in bundle.items()
        if total[name] < count * amount
    ]
    if short:
        return f"{asked}; {', and '.join(short)}"
    held = sum(int(min(node.get(name, 0) // amount for name, amount in bundle.items())) for node in nodes)
    if held < count:
        return f"{asked}; the cluster's {_nodes(nodes)} room for {held}, since each must fit on one node"
    taken = [
        f"{name} ({free.get(name, 0):g} of {total[name]:g} are free)"
        for name, amount in bundle.items()
        if free.get(name, 0) < count * amount
    ]
    if taken:
        return f"{asked}; others use too much {', and '.join(taken)}"
    return f"{asked}; what is free is spread so that too few of them fit on a node"


def _nodes(nodes: Sequence[Resources]) -> str:
    return "1 node has" if len(nodes) == 1 else f"{len(nodes)} nodes have"


def in_order_of_nodes(node_of: Sequence[str]) -> list[int]:
    """Bundles so that those of one node are neighbours, as the devices of a plan are.

    Args:
        node_of: the node of each bundle.
    """
    first = {node: index for index, node in reversed(list(enumerate(node_of)))}
    return sorted(range(len(node_of)), key=lambda index: first[node_of[index]])
