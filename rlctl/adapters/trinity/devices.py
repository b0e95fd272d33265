"""Trinity: the devices of a run, of the explorer's engines on one side and of the trainer on the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Same,
    Writing,
)
from rlctl.adapters.trinity.batch import geometry, supervised
from rlctl.adapters.trinity.distillation import teacher_devices
from rlctl.adapters.trinity.keys import ROLL
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic


class ExpertSwitch(Same):
    """Whether experts are split at all; over the devices of one engine where they are."""

    def read(self, value: Any, view: Reading) -> Any:
        if not value:
            return 1
        ranks = view.get(f"{ROLL}.data_parallel_size", 1) if view.version >= (0, 6) else 1
        return view.get(f"{ROLL}.tensor_parallel_size") * ranks

    def write(self, value: Any, view: Writing) -> Any:
        return value > 1


def _read_devices(view: Reading) -> Iterator[Flow]:
    nodes, each = view.get("cluster.node_num"), view.get("cluster.gpu_per_node")
    for value, key, to in (
        (nodes, "cluster.node_num", "placement.nodes"),
        (each, "cluster.gpu_per_node", "placement.devices_per_node"),
    ):
        if isinstance(value, int) and value > 0:
            yield Flow(view.to(to), value, (view.path(key),), same=True)
        else:
            yield Flow((), None, (view.path(key),), "mapped", "0 leaves it to the cluster")
    engines, sizes = (
        view.get(f"{ROLL}.engine_num"),
        [
            view.get(f"{ROLL}.{name}")
            for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        ],
    )
    used = (view.path(f"{ROLL}.engine_num"),)
    if view.get("mode") == "colocate" or supervised(view) or view.get("mode") == "train":
        yield Flow(view.to("placement.layout"), "colocated", (view.path("mode"),))
        yield Flow(
            (),
            None,
            used,
            "dead",
            "all roles run on one device" if view.get("mode") == "colocate" else "nothing is explored",
        )
        return
    yield Flow(view.to("rollout.parallel.replicas"), engines, used, same=True, implied=True)
    width = 1
    for size in sizes:
        width *= size if isinstance(size, int) else 1
    own = engines * width + _beside(view.get("explorer.auxiliary_models")) if isinstance(engines, int) else None
    alone = view.get("mode") in ("explore", "bench", "serve")
    yield Flow(view.to("placement.layout"), "colocated" if alone else "split", () if alone else used, implied=not alone)
    yield Flow(
        view.to("placement.rollout_devices"),
        None if alone else own,
        used,
        "derived",
        said(
            "{engines} engines x {width} devices, plus those of auxiliary models"
            if view.get("explorer.auxiliary_models")
            else "{engines} engines x {width} devices",
            engines=engines,
            width=width,
        ),
        implied=True,
    )


def _beside(models: Any) -> int:
    """Devices of the models that the explorer serves beside the policy."""
    sizes = ("engine_num", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    found = [model for model in models or () if isinstance(model, Mapping)]
    return sum(math.prod(model.get(size) or 1 for size in sizes) for model in found)


def _write_devices(view: Writing) -> Iterator[Out]:
    config = view.config
    placement = config.placement
    total = arithmetic.devices(config)
    yield Flow(view.path("cluster.node_num"), placement.nodes, (view.to("placement.nodes"),), same=True, always=True)
    yield Flow(
        view.path("cluster.gpu_per_node"),
        placement.devices_per_node,
        (view.to("placement.devices_per_node"),),
        same=True,
        always=True,
    )
    layout = (view.to("placement.layout"), view.to("placement.rollout_devices"))
    if config.algorithm.objective.choice in ("sft", "dpo") or config.run.mode == "train_only":
        yield Flow((), None, layout)
        return
    yield from _write_tensor(view)
    tensor, data = engine_shape(view)
    wide = tensor * data * config.rollout.parallel.pipeline_parallel_size
    if placement.layout == "colocated" and total > 1 and config.run.mode == "full":
        yield from _write_assumed(view, total - teacher_devices(config), wide)
        return
    if total == 1:
        yield Flow(view.path(f"{ROLL}.engine_num"), 1, layout)
        if view.version < (0, 5) and config.run.mode == "full":
            yield Inexpressible(layout, "before 0.5, Trinity needs separate GPUs for rollout and training: add one")
        return
    own = arithmetic.exploring_devices(config)
    beside = sum(
        model.replicas * model.tensor_parallel_size for model in config.rollout.auxiliary_models
    ) + teacher_devices(config)
    own -= beside
    engines = config.rollout.parallel.replicas
    count = engines if isinstance(engines, int) else max(1, own // wide)
    used = (view.to("rollout.parallel.replicas"), *layout)
    if config.run.mode == "full" and (why := _misfit(view, total - beside, count, wide)):
        yield from _write_fitting(view, total - beside, wide, (used, layout), why)
        return
    how: Provenance = "mapped" if isinstance(engines, int) else "derived"
    yield Flow(
        view.path(f"{ROLL}.engine_num"),
        count,
        used,
        how,
        "" if how == "mapped" else said("{own} devices / {wide} per engine", own=own, wide=wide),
    )
    if isinstance(engines, int) and placement.layout == "split" and engines * wide != own:
        yield Inexpressible(
            layout[1:],
            said(
                "Trinity's explorer gets {engines} engines x {wide} devices, not {own}",
                engines=engines,
                wide=wide,
                own=own,
            ),
        )
    if placement.layout == "explicit":
        reason = said(
            "Trinity places no roles on devices: {value} explore and {value2} train, instead ",
            value=count * wide,
            value2=total - count * wide - beside,
        )
        reason += said("of {own} and {train_devices}", own=own, train_devices=arithmetic.train_devices(config))
        yield Inexpressible((view.to("placement.roles"), *layout), reason)


def _misfit(view: Writing, total: int, count: int, wide: int) -> str:
    """Why another number of engines is written than the source's: Trinity's trainer has what they leave, and cannot use it.

    A batch that the source's own training devices do not divide is reported, and no reason.
    """
    each, left = view.config.placement.devices_per_node, total - count * wide
    if _refused(left, each):
        return said(
            "Trinity's trainer has dedicated devices, in whole nodes of {devices_per_node}", devices_per_node=each
        )
    kept = left == arithmetic.train_devices(view.config)
    if kept or not _uneven(view, left) or _uneven(view, total - _engines(view, total, wide) * wide):
        return ""
    return said(
        "Trinity divides a train batch of {batch} responses evenly among the trainer's data-parallel ranks, and {left} devices "
        "are {ranks} ranks",
        batch=geometry(view)[1],
        left=left,
        ranks=f"{left / arithmetic.devices_per_replica(view.config.train.engine):g}",
    )


def _write_fitting(
    view: Writing, total: int, wide: int, keys: tuple[tuple[KeyPath, ...], tuple[KeyPath, ...]], why: str
) -> Iterator[Out]:
    """A number of engines whose rest Trinity's trainer can use, instead of the source's."""
    used, layout = keys
    config = view.config
    fitting = _engines(view, total, wide)
    reason = said(
        "{why}: {explore} devices explore and {value} train, instead of {own} and {trains}",
        why=why,
        explore=fitting * wide,
        value=total - fitting * wide,
        own=arithmetic.exploring_devices(config) - (arithmetic.devices(config) - total),
        trains=arithmetic.train_devices(config),
    )
    yield Flow(view.path(f"{ROLL}.engine_num"), fitting, used, "derived", reason)
    yield Inexpressible((view.to("placement.roles"), *layout), reason)


def _write_assumed(view: Writing, total: int, wide: int) -> Iterator[Out]:
    """The split that a config of shared devices does not hold: about half of them, unless an option says."""
    asked = natural(view.options.get("explorer_gpus", ""))
    count = _engines(view, total, wide) if asked is None else max(1, asked // wide)
    used = (view.to("placement.layout"), view.to("rollout.parallel.replicas"))
    left, share = total - count * wide, arithmetic.devices_per_replica(view.config.train.engine)
    note = said(
        "all roles share {total} devices in the source; in Trinity, {value} explore and {left} train",
        total=total,
        value=count * wide,
        left=left,
    )
    if (teachers := arithmetic.devices(view.config) - total) > 0:
        note = said(
            "{note}; {teachers} of {value} run the teacher",
            note=note,
            teachers=teachers,
            value=total + teachers,
        )
    if left > 0 and left % share != 0:
        note += said(
            ". {left} is not a multiple of {share}, the devices of one replica, so Trinity's trainer cannot start; choose "
            "another split, or lower the trainer's parallel sizes",
            left=left,
            share=share,
        )
    yield Flow(view.path(f"{ROLL}.engine_num"), count, used, "assumed", note, always=True, option="explorer_gpus")
    yield Inexpressible(used[:1], note, idle=True)
    if count * wide >= total:
        yield Inexpressible(
            (view.to("rollout.parallel.tensor_parallel_size"),),
            said(
                "engines of {wide} devices leave none of {total} to train; use {value} or fewer",
                wide=wide,
                total=total,
                value=max(1, total // 2),
            ),
        )


def _engines(view: Writing, total: int, wide: int) -> int:
    """As many engines as take about half of the devices and leave the trainer a number that Trinity accepts."""
    each = view.config.placement.devices_per_node

    def misfit(count: int) -> tuple[bool, bool, float, int]:
        left = total - count * wide
        refused = _refused(left, each)
        return refused, refused or _uneven(view, left), abs(total / 2 - count * wide), count

    return min(range(1, max(2, total // wide + 1)), key=misfit)


def _refused(left: int, each: int) -> bool:
    """Whether Trinity refuses the devices that are left for its trainer: none, or several nodes and a part of one."""
    return left < 1 or (left > each and left % each != 0)


def _uneven(view: Writing, left: int) -> bool:
    """Whether the trainer's devices are no whole number of data-parallel ranks, or these (0.4: devices) do not divide a batch."""
    share, batch = arithmetic.devices_per_replica(view.config.train.engine), geometry(view)[1]
    parts = left // share if view.version >= (0, 5) else left
    return left < share or left % share != 0 or batch % parts != 0


def engine_shape(view: Writing) -> tuple[int, int]:
    """Tensor and data sizes of an engine that Trinity can place: beside a trainer, and data ranks within one node."""
    config, parallel = view.config, view.config.rollout.parallel
    total, each = arithmetic.devices(config), config.placement.devices_per_node
    tensor, data = parallel.tensor_parallel_size, parallel.data_parallel_size
    shared = config.placement.layout == "colocated" and config.run.mode == "full" and total > 1
    size = tensor * parallel.pipeline_parallel_size * data
    if data > 1 and (size > each or (shared and size >= total)):
        data = 1
    while shared and tensor > 1 and tensor * parallel.pipeline_parallel_size * data >= total:
        tensor //= 2
    return tensor, data


def _write_tensor(view: Writing) -> Iterator[Out]:
    parallel, total = view.config.rollout.parallel, arithmetic.devices(view.config)
    tensor, data = engine_shape(view)
    used = (view.to("rollout.parallel.tensor_parallel_size"),)
    if tensor == parallel.tensor_parallel_size:
        yield Flow(view.path(f"{ROLL}.tensor_parallel_size"), tensor, used, same=True)
    else:
        note = said(
            "engines of {tensor_parallel_size} devices leave none of {total} to a trainer",
            tensor_parallel_size=parallel.tensor_parallel_size,
            total=total,
        )
        yield Flow(view.path(f"{ROLL}.tensor_parallel_size"), tensor, used, "derived", note, always=True)
        if view.explicit("rollout.parallel.tensor_parallel_size"):
            yield Inexpressible(used, said("{note}. Wrote {tensor}", note=note, tensor=tensor))
    if data != parallel.data_parallel_size:
        reason = "Trinity's engine cannot have this many data-parallel ranks. Wrote one engine per rank"
        yield Inexpressible((view.to("rollout.parallel.data_parallel_size"),), reason)
        yield Inexpressible((view.to("rollout.parallel.expert_parallel_size"),), reason, idle=True)
    elif view.version >= (0, 6):
        yield Flow(
            view.path(f"{ROLL}.data_parallel_size"), data, (view.to("rollout.parallel.data_parallel_size"),), same=True
        )


DEVICES: list[Rule] = [
    CustomRule(
        "devices",
        (
            # 0.4.1 common/config.py, ClusterConfig: null finds the cluster's own, as 0 does since 0.5
            DialectKey("cluster.node_num", 0),
            # 0.4.1 common/config.py, ClusterConfig
            DialectKey("cluster.gpu_per_node", 0),
            DialectKey(f"{ROLL}.engine_num"),
            DialectKey(f"{ROLL}.tensor_parallel_size"),
        ),
        (
            "placement.nodes",
            "placement.devices_per_node",
            "placement.layout",
            "placement.rollout_devices",
            "rollout.parallel.replicas",
        ),
        _read_devices,
        _write_devices,
        "engine_num x devices per engine",
        by_key={
            "cluster.node_num": "placement.nodes",
            "cluster.gpu_per_node": "placement.devices_per_node",
            f"{ROLL}.engine_num": ("rollout.parallel.replicas", "placement.rollout_devices", "placement.layout"),
            "mode": "placement.layout",
        },
        why="Trinity counts engines and gives the trainer what is left, which it refuses if it is no whole node.",
    ),
    Key(
        f"{ROLL}.tensor_parallel_size",
        "rollout.parallel.tensor_parallel_size",
        write_when=lambda view: False,
        implied=True,
    ),
    Key(f"{ROLL}.pipeline_parallel_size", "rollout.parallel.pipeline_parallel_size"),
    Key(
        f"{ROLL}.data_parallel_size",
        "rollout.parallel.data_parallel_size",
        write_when=lambda view: view.version < (0, 6),
    ),
    Key(
        f"{ROLL}.enable_expert_parallel",
        "rollout.parallel.expert_parallel_size",
        convert=ExpertSwitch("derived", "experts are split over all devices of an engine, or not at all"),
        implied=True,
    ),
]
