"""Rules on devices, engines and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rlctl.checks.hints import shown
from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.train import TrainEngine
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory import fit_of, known_gpu
from rlctl.planning.models import read_shape
from rlctl.planning.support import RLCTL, generating

ROLES = ("policy", "rollout", "reference", "critic", "reward", "reward_model", "judge", "auxiliary")


def divisible(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Devices divide into replicas of what is trained, and into rollout engines."""
    roles = ["policy"]
    if arithmetic.needs_critic(config):
        roles.append("critic")
    if arithmetic.needs_reference(config) and config.reference.engine is not None:
        roles.append("reference")
    tests: list[tuple[Callable[[Config], int], KeyPath]] = [
        (partial(arithmetic.replicas_of, role=role), _sharing(*arithmetic.engine_of(config, role))) for role in roles
    ]
    if arithmetic.needs_rollout(config):
        drawn = _generated(config, surroundings)
        key = _largest(("rollout", "parallel"), drawn.rollout.parallel)
        tests.append((lambda _: arithmetic.rollout_engines(drawn), key))
    for compute, key in tests:
        try:
            compute(config)
        except PlanError as error:
            yield problem("devices-not-divisible", key, reason=error.message, advice=error.hint)


def _sharing(section: str, engine: TrainEngine) -> KeyPath:
    """The key of an engine that the most devices of a replica come from."""
    return _largest((section, "engine"), engine)


def _largest(section: KeyPath, sizes: object) -> KeyPath:
    """The largest parallel size of a section; the section itself if all are 1."""
    names = (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "context_parallel_size",
        "ulysses_sequence_parallel_size",
    )
    found = {name: getattr(sizes, name, 1) for name in names}
    counts = {name: size for name, size in found.items() if type(size) is int and size > 1}
    return (*section, max(counts, key=counts.__getitem__)) if counts else section


def _generated(config: Config, surroundings: CheckContext) -> Config:
    """With rollout engines as they are on these machines: the built-in engine is not split."""
    device = surroundings.cluster.device if surroundings.cluster is not None else None
    return arithmetic.unsplit(config) if generating(config, device) == "transformers" else config


def heads(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Engines that split attention by heads get whole ones; fewer key-value heads than devices are repeated."""
    shape = read_shape(config.model.path)
    if shape is None or any(kind.attention == "latent" for kind in shape.kinds):
        return
    sizes: dict[KeyPath, int] = {}
    if arithmetic.needs_rollout(config):
        drawn = _generated(config, surroundings)
        sizes["rollout", "parallel", "tensor_parallel_size"] = drawn.rollout.parallel.tensor_parallel_size
    if arithmetic.trains(config):
        key: KeyPath = ("train", "engine", "ulysses_sequence_parallel_size")
        sizes[key] = getattr(config.train.engine, "ulysses_sequence_parallel_size", 1)
    for key, size in sizes.items():
        if not shape.shares_heads(size):
            fits = next(filter(shape.shares_heads, range(size, 0, -1)))
            yield problem(
                "heads-undivided",
                key,
                [(key, fits)],
                size=size,
                model=config.model.path,
                heads=shape.heads,
                shared=shape.kv_heads,
            )


def within_node(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What exchanges data in every layer stays within a node."""
    per_node = config.placement.devices_per_node
    tensor = _generated(config, surroundings).rollout.parallel.tensor_parallel_size
    generating = arithmetic.rollout_devices(config) if arithmetic.needs_rollout(config) else 0
    firsts = range(0, generating, tensor) if generating % tensor == 0 else ()  # else the devices do not divide at all
    if any(first // per_node != (first + tensor - 1) // per_node for first in firsts):
        yield problem(
            "engine-over-node", ("rollout", "parallel", "tensor_parallel_size"), tensor=tensor, devices=per_node
        )  # no fix: in fewer devices a large model does not fit, and other frameworks span nodes


def roles(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Roles are given devices that exist."""
    placement, total = config.placement, arithmetic.devices(config)
    key: KeyPath = ("placement", "rollout_devices")
    if placement.layout == "split" and arithmetic.train_devices(config) < 1:
        yield problem(
            "role-devices",
            key,
            [(key, max(1, total // 2)), (key, max(1, total - 1))],
            rollout=arithmetic.exploring_devices(config),
            total=total,
        )
    if placement.layout != "explicit":
        return
    policy = placement.roles.get("policy")
    if arithmetic.trains(config) and not (policy and policy.devices):
        yield problem("role-devices_policy", ("placement", "roles"))
    for name, role in placement.roles.items():
        if name not in ROLES:
            yield problem("role-devices_unknown", ("placement", "roles", name), role=name, known=", ".join(ROLES))
        key = ("placement", "roles", name, "devices")
        if len(set(role.devices)) < len(role.devices):
            yield problem("role-devices_twice", key)
        if outside := [number for number in role.devices if not 0 <= number < total]:
            yield problem(
                "role-devices_outside",
                key,
                wrong=", ".join(map(str, outside)),
                last=total - 1,
                nodes=placement.nodes,
                devices=placement.devices_per_node,
            )


TOO_SMALL = "cluster-too-small"


def cluster(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The cluster has the devices."""
    known, placement = surroundings.cluster, config.placement
    if known is None:
        return
    if placement.device == "cuda" and known.device == "cpu":
        yield problem(f"{TOO_SMALL}_cpu", ("placement", "device"), [(("placement", "device"), "cpu")])
    elif "cpu" in (placement.device, known.device):
        yield from _cores(config, known)
    elif not arithmetic.has_nodes(config, known, shared=surroundings.runner != RLCTL):
        yield problem(
            TOO_SMALL,
            ("placement",),
            [(("placement", "devices_per_node"), known.devices_per_node)]
            if placement.devices_per_node > known.devices_per_node
            else [(("placement", "nodes"), known.nodes)],
            nodes=placement.nodes,
            devices=placement.devices_per_node,
            known_nodes=known.nodes,
            known_devices=known.devices_per_node,
        )


def _cores(config: Config, known: Cluster) -> Iterator[Problem]:
    """CPU workers are not more than the cores, or than those that the config lets Ray hand out."""
    cores = known.devices_per_node * known.nodes if known.device == "cpu" else (known.cpus_per_node or 0) * known.nodes
    asked, allowed = arithmetic.devices(config), max(arithmetic.workers_on(cores), config.runtime.ray.num_cpus or 0)
    if cores and asked > allowed:
        yield problem(
            f"{TOO_SMALL}_cores",
            ("placement", "devices_per_node"),
            [(("placement", "nodes"), 1)]
            if config.placement.nodes > 1
            else [(("placement", "devices_per_node"), allowed)],
            nodes=config.placement.nodes,
            devices=config.placement.devices_per_node,
            gpu="none" if known.device == "cpu" else "unused",
            cores=cores,
            asked=asked,
        )


def memory(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Each phase of a step fits the devices, if their memory and the size of the model are known."""
    known = surroundings.cluster
    if known is None or known.device == "cpu" or config.placement.device == "cpu":
        return
    gpu = known_gpu(known.gpu)
    gib = known.gib_per_device or (gpu.gib if gpu is not None else None)
    if gib is None:
        return
    try:
        fit = fit_of(config, gib=gib, terms=surroundings.terms)
    except PlanError:  # too few devices, which is another finding
        return
    if fit is None or fit.fits:
        return
    key = ("rollout", "memory", "gpu_memory_utilization") if fit.worst.phase == "rollout" else ("train", "engine")
    if len(fit.changes) == 1:
        [change] = fit.changes
        yield problem("memory", key, [(change.key, change.after)], reason=fit.problem)
    else:
        settings = " and ".join(f"{dotted(change.key)} to {shown(change.after)}" for change in fit.changes)
        yield problem("memory_several" if settings else "memory_hardware", key, reason=fit.problem, settings=settings)


def role_variables(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Variables are set for roles that there are."""
    for name in config.runtime.role_env_vars:
        if name not in (*ROLES, "environments", "evaluation_environments"):
            key: KeyPath = ("runtime", "role_env_vars", name)
            yield problem("role-variables", key, role=name, known=", ".join(ROLES))


RULES = (divisible, heads, within_node, roles, cluster, memory, role_variables)
