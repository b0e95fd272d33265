"""ROLL: which devices each role runs on.

Every worker names its devices in ``device_mapping``, over all nodes. Roles with the same devices take turns. ROLL takes the
devices of a node from the machine it is started on, and the number of nodes from the highest device; what stands in
``num_gpus_per_node`` is what the file was written for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rlctl.adapters.engine.one_sided_rows import ReadOnly
from rlctl.adapters.engine.rules import (
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.roll.devices import DevicesError, parse_devices, print_devices
from rlctl.adapters.roll.workers import (
    devices_for,
    devices_of,
    has_critic,
    has_reference,
    lacks_devices,
    least_devices,
    rolls_out,
    trains_critic,
)
from rlctl.common.messages.reasons import said
from rlctl.planning import arithmetic

ROLES = {"policy": "actor_train", "rollout": "actor_infer", "reference": "reference", "critic": "critic"}
"""Canonical roles, and ROLL's workers for them."""
OF_DEVICES = ("placement.layout", "placement.nodes", "placement.roles")
"""What the devices of a role say."""
REWARDS = ("rewards", "reward_model", "reward")
Devices = tuple[int, ...]


def _no_devices(key: str) -> Callable[[Reading], bool]:
    """Whether a worker's mapping names no device; each one that cannot be read is refused separately."""

    def names_none(view: Reading) -> bool:
        text = view.get(key)
        try:
            return text is None or not parse_devices(text)
        except DevicesError as error:
            raise BadValueError(error.args[0], key=view.path(key)) from error

    return names_none


def _placed(view: Reading) -> dict[str, Devices]:
    """The devices of each role that has some."""
    found: dict[str, Devices] = {}
    for role, worker in ROLES.items():
        devices = devices_of(view, worker)
        if devices and (role != "critic" or trains_critic(view)):
            found[role] = devices
    rewards = sorted({device for worker in _reward_workers(view) for device in devices_of(view, worker) or ()})
    return {**found, "reward": tuple(rewards)} if rewards else found


def _reward_workers(view: Reading) -> Iterator[str]:
    for name in REWARDS:
        block = view.get(name)
        if name == "rewards" and isinstance(block, Mapping):
            yield from (f"{name}.{domain}" for domain in block if "." not in str(domain))
        elif isinstance(block, Mapping):
            yield name


def _read(view: Reading) -> Iterator[Flow]:
    placed = _placed(view)
    per_node = view.get("num_gpus_per_node")
    width = (view.path("num_gpus_per_node"),)
    yield Flow((), None, (view.path("num_nodes"),), "dead", "ROLL derives the number of nodes from device_mapping")
    used = tuple(view.path(f"{worker}.device_mapping") for worker in ROLES.values())
    if not placed:
        yield Flow(view.to("placement.devices_per_node"), per_node, width, same=True)
        return
    count = 1 + max(max(devices) for devices in placed.values())
    each = per_node if isinstance(per_node, int) and per_node > 0 else 8
    nodes = -(-count // each)
    layout, own = _layout(placed, count, whole=nodes == 1 or count % each == 0)
    note = said("{count} devices on nodes of {each}", count=count, each=each)
    yield Flow(view.to("placement.nodes"), nodes, used, "derived", note)
    yield Flow(
        view.to("placement.devices_per_node"), min(each, count), width, "derived" if count < each else "mapped", note
    )
    yield Flow(view.to("placement.layout"), layout, used, "derived", _words(layout))
    yield Flow(view.to("placement.rollout_devices"), own, used[1:2])
    for role, devices in placed.items() if layout == "explicit" else ():
        place = (view.path(f"{ROLES[role]}.device_mapping"),) if role in ROLES else ()
        yield Flow((*view.to("placement.roles"), role, "devices"), list(devices), place)


def _layout(placed: Mapping[str, Devices], count: int, *, whole: bool) -> tuple[str, int | None]:
    """The layout by its name, with rollout's own devices where they are split; listed where nothing simpler says it."""
    everything = tuple(range(count))
    if whole and all(devices == everything for devices in placed.values()):
        return "colocated", None
    policy, rollout = placed.get("policy", ()), placed.get("rollout", ())
    others = [devices for role, devices in placed.items() if role != "rollout"]
    if whole and rollout and (*policy, *rollout) == everything and all(devices == policy for devices in others):
        return "split", len(rollout)
    return "explicit", None


def _words(layout: str) -> str:
    return {
        "colocated": "all roles share the same devices",
        "split": "rollout has dedicated devices",
        "explicit": "each role has its own device list",
    }[layout]


def _write(view: Writing) -> Iterator[Out]:
    placement = view.config.placement
    total = arithmetic.devices(view.config)
    width, nodes = (view.to("placement.devices_per_node"),), (view.to("placement.nodes"),)
    each, least = placement.devices_per_node, least_devices(view.config)
    if not rolls_out(view.config):
        each = min(each, max(arithmetic.train_devices(view.config), 1))
    each = max(each, min(least, NODE)) if total < least else each
    yield Flow(view.path("num_gpus_per_node"), each, width, same=each == placement.devices_per_node, always=True)
    yield Flow((), None, nodes, "mapped", "ROLL derives the number of nodes from device_mapping")
    layout = (view.to("placement.layout"), view.to("placement.rollout_devices"), *nodes, *width)
    there = {
        "policy": True,
        "rollout": rolls_out(view.config),
        "reference": has_reference(view),
        "critic": has_critic(view),
    }
    for role, worker in ROLES.items():
        if not there[role]:
            continue
        listed = ((*view.to("placement.roles"), role, "devices"), *layout[:1])
        devices, used = devices_for(view.config, role), listed if placement.layout == "explicit" else layout
        how: Provenance = "derived"
        note = ""
        if lacks_devices(view.config, role):
            note = said(
                "the source has {count} devices, but a replica of the model needs {least}. Wrote {least}",
                count=len(devices),
                least=least,
            )
            how, devices = "assumed", tuple(range(least))
        elif role == "policy" and len(devices) < (most := arithmetic.train_devices(view.config)):
            note = said(
                "{fitting} of {most} devices train, because the responses of a step and of a mini-batch must divide by the ranks",
                fitting=len(devices),
                most=most,
            )
            yield Inexpressible(used[:1], note, idle=True)
        yield Flow(view.path(f"{worker}.device_mapping"), print_devices(devices), used, how, note, always=True)
    yield from _lose(view)


def _lose(view: Writing) -> Iterator[Out]:
    placement = view.config.placement
    own, total = arithmetic.rollout_devices(view.config), arithmetic.devices(view.config)
    if placement.layout == "split" and own >= total:
        yield Inexpressible(
            (view.to("placement.rollout_devices"),),
            said("{own} of {total} devices for rollout leave none to train", own=own, total=total),
        )
    for role, place in placement.roles.items():
        at = (*view.to("placement.roles"), role)
        if placement.layout != "explicit":
            yield Flow((), None, (at,), "mapped", said("the layout is {layout}", layout=placement.layout))
        elif role not in ROLES and role != "reward":
            yield Inexpressible((at,), said("ROLL has no role {role!r}", role=role))
        elif not place.devices:
            yield Inexpressible(
                (at,), "ROLL needs the device numbers of each role: pass --set placement.roles.ROLE.devices=[0,1]"
            )
    if placement.device == "cpu":
        yield Inexpressible((view.to("placement.device"),), "ROLL's workers need accelerators")


NODE = 8
"""Devices of a usual node."""
RULES: list[Rule] = [
    *[
        ReadOnly(key, "names no device", when=_no_devices(key))
        for key in (f"{worker}.device_mapping" for worker in ROLES.values())
    ],
    CustomRule(
        "placement",
        (
            *(DialectKey(f"{worker}.device_mapping") for worker in ROLES.values()),
            DialectKey("num_gpus_per_node"),
            DialectKey("num_nodes"),
        ),
        (
            "placement.layout",
            "placement.nodes",
            "placement.devices_per_node",
            "placement.rollout_devices",
            "placement.roles",
            "placement.roles{}.devices",
        ),
        _read,
        _write,
        "nodes = devices / num_gpus_per_node",
        by_key={
            **{f"{worker}.device_mapping": OF_DEVICES for worker in ROLES.values()},
            "actor_infer.device_mapping": ("placement.rollout_devices", *OF_DEVICES),
            "num_gpus_per_node": "placement.devices_per_node",
        },
        why="The layout is found by comparing the devices of all roles, which are lists of numbers in Python's words.",
    ),
    Dropped("placement.device", "ROLL runs on the accelerators that it finds", idle=True),
    Dropped("placement.cpus_per_worker", "ROLL has no key for this; its own default applies", idle=True),
]
