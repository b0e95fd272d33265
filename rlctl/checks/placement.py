"""Rules on devices, engines and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rlctl.checks.hints import shown
from rlctl.checks.problem import CheckContext, Problem
from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.train import TrainEngine
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory import fit_of, known_gpu
from rlctl.planning.support import generating

ROLES = ("policy", "rollout", "reference", "critic", "reward", "reward_model", "judge")


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
        tests.append((lambda _: arithmetic.rollout_engines(drawn), ("rollout", "parallel")))
    for compute, key in tests:
        try:
            compute(config)
        except PlanError as error:
            yield Problem("devices-not-divisible", key, error.message, error.hint)


def _sharing(section: str, engine: TrainEngine) -> KeyPath:
    """The key of an engine that the most devices of a replica come from."""
    sizes = {
        name: getattr(engine, name, 1)
        for name in (
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "context_parallel_size",
            "ulysses_sequence_parallel_size",
        )
    }
    counts = {name: size for name, size in sizes.items() if type(size) is int and size > 1}
    return (section, "engine", max(counts, key=counts.__getitem__)) if counts else (section, "engine")


def _generated(config: Config, surroundings: CheckContext) -> Config:
    """With rollout engines as they are on these machines: the built-in engine is not split."""
    device = surroundings.cluster.device if surroundings.cluster is not None else None
    return arithmetic.unsplit(config) if generating(config, device) == "transformers" else config


def within_node(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What exchanges data in every layer stays within a node."""
    per_node = config.placement.devices_per_node
    tensor = _generated(config, surroundings).rollout.parallel.tensor_parallel_size
    if arithmetic.needs_rollout(config) and (tensor > per_node or per_node % tensor):
        yield Problem(
            "engine-over-node",
            ("rollout", "parallel", "tensor_parallel_size"),
            f"engines of {tensor} devices on nodes of {per_node}: some would span nodes",
            f"set rollout.parallel.tensor_parallel_size to a divisor of {per_node}",
        )  # no fix: in fewer devices a large model does not fit, and other frameworks span nodes


def roles(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Roles are given devices that exist."""
    placement, total = config.placement, arithmetic.devices(config)
    if placement.layout == "split" and arithmetic.train_devices(config) < 1:
        yield Problem(
            "role-devices",
            ("placement", "rollout_devices"),
            f"rollout takes {arithmetic.rollout_devices(config)} of {total} devices; training has none",
            "{fix}",
            (
                (("placement", "rollout_devices"), max(1, total // 2)),
                (("placement", "rollout_devices"), max(1, total - 1)),
            ),
        )
    if placement.layout != "explicit":
        return
    if not placement.roles.get("policy") or not placement.roles["policy"].devices:
        yield Problem(
            "role-devices", ("placement", "roles"), "the policy has no devices", "set placement.roles.policy.devices"
        )
    for name, role in placement.roles.items():
        if name not in ROLES:
            yield Problem(
                "role-devices",
                ("placement", "roles", name),
                f"there is no role {name!r}",
                f"roles are {', '.join(ROLES)}",
            )
        outside = [number for number in role.devices if not 0 <= number < total]
        if outside or len(set(role.devices)) < len(role.devices):
            wrong = f"names {', '.join(map(str, outside))}" if outside else "names a device twice"
            yield Problem(
                "role-devices",
                ("placement", "roles", name, "devices"),
                f"{name} {wrong}; there are devices 0 to {total - 1} ({placement.nodes} x {placement.devices_per_node})",
            )


TOO_SMALL = "cluster-too-small"
SMALLER = (
    "try it with a small random model: rlctl try --tiny; or run it scaled down on CPU: rlctl launch --cpu, which shows the "
    "changes and asks"
)


def cluster(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The cluster has the devices."""
    known, placement = surroundings.cluster, config.placement
    if known is None:
        return
    if placement.device == "cuda" and known.device == "cpu":
        fix = ((("placement", "device"), "cpu"),)
        yield Problem(
            TOO_SMALL, ("placement", "device"), "placement.device is cuda, and the machine has no GPU", SMALLER, fix
        )
    elif "cpu" in (placement.device, known.device):
        yield from _cores(config, known)
    elif placement.nodes > known.nodes or placement.devices_per_node > known.devices_per_node:
        yield Problem(
            TOO_SMALL,
            ("placement",),
            f"{placement.nodes} x {placement.devices_per_node} GPUs (nodes x devices_per_node) are asked for; "
            f"the cluster has {known.nodes} x {known.devices_per_node}",
            f"{{fix}}, or use a larger cluster; {SMALLER}",
            ((("placement", "devices_per_node"), known.devices_per_node),)
            if placement.devices_per_node > known.devices_per_node
            else ((("placement", "nodes"), known.nodes),),
        )


def _cores(config: Config, known: Cluster) -> Iterator[Problem]:
    """CPU workers are not more than the cores, or than those that the config lets Ray hand out."""
    cores = known.devices_per_node * known.nodes if known.device == "cpu" else (known.cpus_per_node or 0) * known.nodes
    asked, allowed = arithmetic.devices(config), max(arithmetic.workers_on(cores), config.runtime.ray.num_cpus or 0)
    if cores and asked > allowed:
        whose = "GPUs or CPU workers" if config.placement.device == "auto" else "CPU workers"
        has = f"no GPU and {cores} cores" if known.device == "cpu" else f"{cores} cores"
        yield Problem(
            TOO_SMALL,
            ("placement", "devices_per_node"),
            f"the config asks for {config.placement.nodes} x {config.placement.devices_per_node} devices "
            f"(nodes x devices_per_node, {whose}); the machine has {has}",
            f"{SMALLER}; runtime.ray.num_cpus={asked} runs {asked} workers on the same cores",
            ((("placement", "nodes"), 1),)
            if config.placement.nodes > 1
            else ((("placement", "devices_per_node"), allowed),),
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
    fit = fit_of(config, gib=gib)
    if fit is None or fit.fits:
        return
    key = ("rollout", "memory", "gpu_memory_utilization") if fit.worst.phase == "rollout" else ("train", "engine")
    if len(fit.changes) == 1:
        [change] = fit.changes
        yield Problem("memory", key, fit.problem, "{first}", ((change.key, change.after),))
    else:
        settings = " and ".join(f"{dotted(change.key)} to {shown(change.after)}" for change in fit.changes)
        yield Problem("memory", key, fit.problem, f"set {settings}" if settings else "use more or larger GPUs")


def role_variables(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Variables are set for roles that there are."""
    for name in config.runtime.role_env_vars:
        if name not in (*ROLES, "environments", "evaluation_environments"):
            key: KeyPath = ("runtime", "role_env_vars", name)
            yield Problem("role-variables", key, f"there is no role {name!r}", f"roles are {', '.join(ROLES)}")


RULES = (divisible, within_node, roles, cluster, memory, role_variables)
