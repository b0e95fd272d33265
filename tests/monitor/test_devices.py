"""Devices live: GPUs by node with what shares them, workers on a CPU, and those that have gone silent."""

from __future__ import annotations

from rlctl.monitor.devices import GIB, live_nodes
from rlctl.monitor.processes import Gpu, Process


def process(name: str, *, node: str = "a", age: float = 1.0, doing: str = "", gpus: tuple[Gpu, ...] = ()) -> Process:
    return Process(name, node, 1, 50.0, 3 * GIB, 0, gpus, doing, 1.0, age, every=5.0)


def test_a_gpu_has_the_roles_that_share_it_and_the_newest_use() -> None:
    old, new = Gpu(0, 10 * GIB, 80 * GIB, 10.0), Gpu(0, 40 * GIB, 80 * GIB, 90.0)
    other = Gpu(1, 0, 80 * GIB, 0.0)
    found = live_nodes(
        [
            process("controller"),
            process("policy-0", age=4.0, gpus=(old,), doing="train_step"),
            process("rollout-0", age=1.0, gpus=(new,)),
            process("policy-1", age=99.0, gpus=(other,)),
            process("policy-2", node="b", gpus=(old,)),
        ]
    )
    assert [(node.name, [device.name for device in node.devices]) for node in found] == [
        ("a", ["0", "1"]),
        ("b", ["0"]),
    ]
    first, second = found[0].devices
    assert (first.roles, first.use, first.gib, first.room, first.doing) == (
        ("policy", "rollout"), 0.9, 40.0, 80.0, "train_step",
    )  # fmt: skip
    assert (first.silent, second.silent) == ((), ("policy-1",))


def test_without_gpus_each_worker_is_a_device() -> None:
    [node] = live_nodes([process("policy-0", doing="train_step"), process("rollout-0")])
    assert [(device.name, device.use, device.gib, device.room) for device in node.devices] == [
        ("policy-0", 0.5, 3.0, None),
        ("rollout-0", 0.5, 3.0, None),
    ]
