"""Plan -> Ray: a placement group with one bundle a device, and the host processes of every role in their bundles.

Devices are on nodes as the plan has them: those of a plan's node are on one node, so that an engine's or a replica's that share
a node there share one here. Two nodes of a plan may be on one of the cluster, and the run says so.

Roles that share a device share its bundle, each reserving an equal part of it; they take turns. Roles without devices
(rewards) get a part of the first bundle. Hosts are kept from one stage to the next, since starting a process and importing
torch in it takes longer than many a step; rollout engines take memory that only the end of their process gives back.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.planning.plan import Plan, RolePlan, StagePlan
from rlctl.runtime.processes.calls import StopRequested
from rlctl.runtime.processes.environment import ENGINE_GPUS
from rlctl.runtime.processes.group import RayGroup, spawn
from rlctl.runtime.processes.vitals import forget
from rlctl.runtime.processes.waiting import (
    ANY_NODES,
    WHOLE_NODES,
    by_node,
    in_order_of_nodes,
    missing,
    other_layout,
    strategy_of,
)

Tell = Callable[[str], None]
ENDED_WITH_THEIR_STAGE = ("rollout", "judge", "auxiliary")
TOLD_AFTER_SECONDS = 5.0
"""How long devices are waited for before anything is said of it."""
NODE_LABEL = "ray.io/node-id"
"""Of each node, by Ray itself."""
QUICKER_SECONDS = 10.0
"""Within which devices are had that were free a moment ago."""
NODE_LOST_SECONDS = 60.0
"""Within which Ray has noticed that a node is gone; its own health checks take up to about 20."""

GIVEN_BACK_SECONDS = 5.0
"""Within which a cluster takes devices back; it does so too once it notices that the run is over."""


GPUS_SECONDS = 120.0
"""Within which a task says which GPU its bundle has."""
SEES_GPUS = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
"""Ray's variable that hides every GPU from an actor without one, unless it is 0."""


@dataclass(frozen=True)
class _Hosts:
    """The processes of one role and what they were started for."""

    role: RolePlan
    environment: Mapping[str, str]
    group: RayGroup


@dataclass
class Placement:
    """The devices of a run and the host processes on them."""

    plan: Plan
    bundles: PlacementGroup
    logs: Path
    stop_requested: Callable[[], bool]
    timeout: float
    """Seconds that devices are waited for."""
    limit: float
    """Seconds that a call of a worker may take."""
    tell: Tell
    """Is told what is missing while devices are waited for."""
    order: Sequence[int]
    """The bundle of each device: neighbours among devices share a node where they can."""
    gives_back: bool
    """Whether Ray goes on after the run; one of the run's own ends with it, and may have ended before."""
    _hosts: dict[str, _Hosts] = field(default_factory=dict)

    @contextmanager
    def stage(
        self,
        stage: StagePlan,
        environment: Mapping[str, str],
        by_role: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> Iterator[dict[str, RayGroup]]:
        """Empty host processes for every role of a stage, with further variables of some roles; their workers end with it."""
        for role in stage.roles:
            hosts = self._hosts.get(role.role)
            surroundings = {**environment, **by_role.get(role.role, {})}
            if hosts is None or (hosts.role, hosts.environment) != (role, surroundings):
                self._end(role.role)
                self._hosts[role.role] = _Hosts(role, surroundings, self._spawn_all(role, surroundings))
        yield {role.role: self._hosts[role.role].group for role in stage.roles}
        for role in stage.roles:
            if role.role in ENDED_WITH_THEIR_STAGE:
                self._end(role.role)
            else:
                self._hosts[role.role].group.drop()

    def restart(self) -> None:
        """End every process, and wait until there is a device for each again: a machine may be gone.

        Raises:
            RunError: there is not, after as long as they were waited for in the beginning.
            StopRequested: the run was asked to end.
        """
        for name in list(self._hosts):
            self._end(name)
        _hear_of_lost_nodes()
        if _strategy(self.plan, self.bundles.bundle_count) == WHOLE_NODES:  # these stay on their nodes, or nowhere
            remove_placement_group(self.bundles)
            count = self.bundles.bundle_count
            self.bundles = _reserve(self.plan, count, self.timeout, self.stop_requested, self.tell)
        else:
            _wait_for(self.bundles, self.timeout, self.stop_requested, self.tell)
        self.order = _order(self.bundles)

    def close(self) -> None:
        """End every process and give the devices back."""
        for name in list(self._hosts):
            self._end(name)
        if self.gives_back:
            _give_back(self.bundles)

    def _end(self, name: str) -> None:
        hosts = self._hosts.pop(name, None)
        if hosts is not None:
            hosts.group.close()
            for worker in hosts.group.names:
                forget(self.logs.parent, worker)

    def _spawn_all(self, role: RolePlan, environment: Mapping[str, str]) -> RayGroup:
        names = [f"{role.role}-{index}" for index in range(role.processes)]

        def start(index: int) -> Any:
            return self._spawn(role, index, environment, self.logs / f"{names[index]}.log")

        return RayGroup(names, start, self.stop_requested, limit=self.limit)

    def _spawn(self, role: RolePlan, index: int, environment: Mapping[str, str], log: Path) -> Any:
        sharing = _sharing(self.plan)
        bundle = self.order[_bundle_of(role, index)]
        share = 1 / sharing if self.plan.device == "cuda" and role.devices else 0
        several = (
            [self.order[each] for each in _devices_of(role, index)]
            if share and role.role in ("rollout", "auxiliary")
            else []
        )
        if len(several) > 1 and role.engine == "sglang":  # its server takes them
            environment = {**environment, ENGINE_GPUS: ",".join(_gpus_of(self.bundles, several, share))}
            share = 0
        elif len(several) > 1:  # the engine's own workers take the GPUs, by these variables of vLLM's
            environment = {
                **environment,
                "VLLM_RAY_BUNDLE_INDICES": ",".join(map(str, several)),
                "VLLM_RAY_PER_WORKER_GPUS": str(share),
            }
            share = 0
        options: dict[str, Any] = {
            "num_cpus": _cpus_of(self.plan) / sharing,
            "num_gpus": share,
            "max_concurrency": 1,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self.bundles, placement_group_bundle_index=bundle),
        }
        if several[1:]:  # it holds no GPU, and must see those of its workers whatever the cluster was started with
            options["runtime_env"] = {"env_vars": {SEES_GPUS: "0"}}
        return spawn(environment, str(log), **options)


@contextmanager
def reserve(
    plan: Plan,
    *,
    timeout: float,
    logs: Path,
    stop_requested: Callable[[], bool],
    limit: float = math.inf,
    tell: Tell = lambda message: None,
    gives_back: bool = True,
) -> Iterator[Placement]:
    """Reserve the devices of a run, and give them back.

    Args:
        plan: of the run.
        timeout: seconds that devices are waited for.
        logs: folder of the workers' logs.
        stop_requested: whether the run was asked to end.
        limit: seconds that a call of a worker may take.
        tell: is told what is missing while devices are waited for.
        gives_back: whether Ray goes on after the run.

    Raises:
        RunError: the cluster does not have the devices, now or within ``timeout`` seconds.
        StopRequested: the run was asked to end while it waited for them.
    """
    count = 1 + max((device for stage in plan.stages for role in stage.roles for device in role.devices), default=0)
    bundles = _reserve(plan, count, timeout, stop_requested, tell)
    placement = Placement(plan, bundles, logs, stop_requested, timeout, limit, tell, _order(bundles), gives_back)
    if told := other_layout(_nodes_of(bundles), plan.nodes, plan.devices_per_node):
        tell(told)
    try:
        yield placement
    finally:
        placement.close()


def _give_back(bundles: PlacementGroup) -> None:
    """Do not wait long for a cluster whose head is gone: it has nothing to be given back, and Ray waits a minute for it."""

    def ask() -> None:
        with suppress(Exception):  # a cluster that does not hear of it gives them to others once the run is over
            remove_placement_group(bundles)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(GIVEN_BACK_SECONDS)


def _sharing(plan: Plan) -> int:
    """Processes that a bundle has room for: one of each role, and all of roles without devices, which are in the first."""
    further = {role.role: role.processes - 1 for stage in plan.stages for role in stage.roles if not role.devices}
    return len({role.role for stage in plan.stages for role in stage.roles}) + sum(further.values())


def _cpus_of(plan: Plan) -> int:
    """CPU cores of a bundle."""
    return max(role.cpus_per_process for stage in plan.stages for role in stage.roles)


def _reserve(plan: Plan, count: int, timeout: float, stop_requested: Callable[[], bool], tell: Tell) -> PlacementGroup:
    strategy, until = _strategy(plan, count), time.monotonic() + timeout
    if strategy != WHOLE_NODES:
        group = placement_group([_bundle(plan, 1) for _ in range(count)], strategy=strategy)
        return _waited_for(group, timeout, stop_requested, tell)
    shares = by_node(count, plan.devices_per_node)
    while True:  # all nodes at once, which finds them; then their devices one by one, unless others were quicker
        whole = placement_group([_bundle(plan, share) for share in shares], strategy=ANY_NODES)
        _waited_for(whole, max(0.0, until - time.monotonic()), stop_requested, tell)
        nodes = [node for node, share in zip(_nodes_of(whole), shares, strict=True) for _ in range(share)]
        remove_placement_group(whole)
        on_nodes = [{NODE_LABEL: node} for node in nodes]
        group = placement_group([_bundle(plan, 1) for _ in nodes], strategy=ANY_NODES, bundle_label_selector=on_nodes)
        if group.wait(QUICKER_SECONDS):
            return group
        remove_placement_group(group)


def _strategy(plan: Plan, count: int) -> str:
    return strategy_of(count, plan.nodes, plan.devices_per_node)


def _bundle(plan: Plan, devices: int) -> dict[str, float]:
    """What so many devices reserve."""
    cores = {"CPU": float(devices * _cpus_of(plan))}
    return cores | ({"GPU": float(devices)} if plan.device == "cuda" else {})


def _waited_for(
    group: PlacementGroup, timeout: float, stop_requested: Callable[[], bool], tell: Tell
) -> PlacementGroup:
    """Devices once they are there; given back where they do not come."""
    try:
        _wait_for(group, timeout, stop_requested, tell)
    except BaseException:
        remove_placement_group(group)
        raise
    return group


def _wait_for(group: PlacementGroup, timeout: float, stop_requested: Callable[[], bool], tell: Tell) -> None:
    """Wait for devices, and tell what is missing as often as that changes."""
    began, told = time.monotonic(), ""
    while not group.wait(min(0.5, timeout)):
        if stop_requested():
            raise StopRequested
        waited = time.monotonic() - began
        if waited >= timeout:
            raise RunError(
                said("no devices after {timeout:g} s: {missing}", timeout=timeout, missing=_missing(group)),
                hint="change placement.nodes and placement.devices_per_node, or wait for other runs to end; "
                "runtime.ray.startup_timeout sets how long a run waits",
            )
        if waited >= TOLD_AFTER_SECONDS and (why := _missing(group)) != told:
            told = why
            tell(said("waiting for devices, {timeout:g} s at most: {why}", timeout=timeout, why=why))


def _hear_of_lost_nodes() -> None:
    """Ask all nodes to answer: Ray counts on a lost one until it has noticed the loss, and then gives up the question."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    to_node = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    asked = [
        ray.remote(_answer).options(num_cpus=0, max_retries=0, scheduling_strategy=node).remote() for node in to_node
    ]
    ray.wait(asked, num_returns=len(asked), timeout=NODE_LOST_SECONDS, fetch_local=False)


def _answer() -> None:
    """Be there."""


def _missing(group: PlacementGroup) -> str:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    strategy = placement_group_table(group)["strategy"]
    return missing(group.bundle_count, group.bundle_specs[0], nodes, ray.available_resources(), strategy)


def _order(bundles: PlacementGroup) -> list[int]:
    return in_order_of_nodes(_nodes_of(bundles))


def _nodes_of(bundles: PlacementGroup) -> list[str]:
    """The node of each bundle."""
    nodes = placement_group_table(bundles)["bundles_to_node_id"]
    return [nodes[index] for index in range(bundles.bundle_count)]


def _gpus_of(bundles: PlacementGroup, places: Sequence[int], share: float) -> list[str]:
    """The GPU of each bundle, by the number that its machine gives it: all shares of a bundle are of one GPU."""
    ask, asked = ray.remote(_assigned), []
    for place in places:
        there = PlacementGroupSchedulingStrategy(bundles, placement_group_bundle_index=place)
        asked.append(ask.options(num_cpus=0, num_gpus=share, max_retries=0, scheduling_strategy=there).remote())
    return [gpu for found in ray.get(asked, timeout=GPUS_SECONDS) for gpu in found]


def _assigned() -> list[str]:
    """The GPUs that Ray gave this task."""
    return [str(gpu) for gpu in ray.get_gpu_ids()]


def _devices_of(role: RolePlan, index: int) -> tuple[int, ...]:
    """The devices of a process."""
    each = max(1, len(role.devices) // role.processes)
    return role.devices[index * each : (index + 1) * each]


def _bundle_of(role: RolePlan, index: int) -> int:
    """The bundle of a process: that of its first device; a role without devices takes the first."""
    return _devices_of(role, index)[0] if role.devices else 0
