"""Memory of a device in each phase of a step: what the role at work needs, and what the others leave on the device.

    rollout       the engine, at its share of the device; policy, critic and reference as they rest; auxiliary models
                  at work too; on separate devices these are a phase "auxiliary"
    judge         the judge that the run serves, at its share
    log_probs     a pass without gradient of the policy; the engine asleep
    reference     the same of the reference, teacher of the teacher
    reward_model  the reward models at work
    train         forward, backward and optimizer step of the policy
    train_critic  of the critic
    weight_sync   the policy's parameters and a bucket of them, next to the engine's weights

A role that rests keeps its parameters and optimizer, less what ``engine.offload`` moves to CPU memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.train import Fsdp2, Megatron, TrainEngine
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Device
from rlctl.planning.memory import fitted
from rlctl.planning.memory.parts import MemoryEstimate, MemoryPart
from rlctl.planning.memory.roles import SERVED, cache_of_one, memory_of, policy_forward, served_models
from rlctl.planning.memory_terms import OWN, MemoryTerms

ASLEEP, ASLEEP_TOGETHER = 0.76, 2.4
"""GiB that a sleeping vLLM process keeps on a device: context and graphs; buffers of its collectives too, if several devices hold
a model. Measured: NVIDIA-NeMo/RL#223."""
COLOCATED, ALONE = 0.5, 0.9
"""Shares that the engine takes if ``rollout.memory.gpu_memory_utilization`` is null."""


@dataclass(frozen=True, slots=True)
class PhaseEstimate:
    """One device in one phase."""

    phase: str
    devices: tuple[int, ...]
    """Numbers of the devices that are alike."""
    parts: tuple[MemoryPart, ...]
    """Each named by its role: ``policy optimizer``."""
    lacking: float = 0.0
    """GiB that the engine's share lacks for its weights and the cache of one sequence."""
    asleep: float = 0.0
    """GiB that processes of sleeping engines keep, which are no part of the sum."""

    @property
    def gib(self) -> float:
        """Their sum."""
        return sum(part.gib for part in self.parts)

    @property
    def largest(self) -> MemoryPart:
        """The part that takes most."""
        return max(self.parts, key=lambda part: part.gib)


def rollout_share(config: Config) -> float:
    """Share of a device that the rollout engine takes for weights and KV cache."""
    shared = config.placement.layout == "colocated" and arithmetic.trains(config)
    return config.rollout.memory.gpu_memory_utilization or (COLOCATED if shared else ALONE)


def phases_of(
    config: Config, *, gib: float, device: Device = "cuda", terms: MemoryTerms = OWN
) -> tuple[PhaseEstimate, ...]:
    """Estimate each phase on each group of devices with the same roles; empty if the policy's size is not known.

    Args:
        config: of one stage.
        gib: memory of a device.
        device: its kind.
        terms: what the framework that runs it holds.
    """
    estimates = {each.role: each for each in memory_of(config, device=device, terms=terms)}
    if not estimates:
        return ()
    places = {role: frozenset(_devices(config, role)) for role in estimates}
    groups: dict[frozenset[str], list[int]] = {}
    for number in sorted(frozenset().union(*places.values())):
        roles = frozenset(role for role, devices in places.items() if number in devices)
        groups.setdefault(roles, []).append(number)
    found = []
    for roles, numbers in groups.items():
        here = {role: estimates[role] for role in estimates if role in roles}
        for phase, parts in _phases(config, here, gib, device, terms):
            kept = tuple(part for part in parts if part.gib > 0)
            engines = [estimate for role, estimate in here.items() if role in _at_work(phase)]
            lacking = max((_lacking(config, each, gib, device) for each in engines), default=0.0)
            asleep = _asleep(config, device, terms) if "rollout" in here and "rollout" not in _at_work(phase) else 0.0
            found.append(PhaseEstimate(phase, tuple(numbers), kept, lacking, asleep))
    return tuple(each for each in found if each.parts)


def _asleep(config: Config, device: Device, terms: MemoryTerms) -> float:
    """What the process of a rollout engine keeps while it sleeps."""
    sleeps = arithmetic.rollout_sleeps(config, device) or (terms.engines_sleep and device == "cuda")
    if not (terms.engine_processes and sleeps):
        return 0.0
    parallel = config.rollout.parallel
    return ASLEEP if parallel.tensor_parallel_size * parallel.pipeline_parallel_size == 1 else ASLEEP_TOGETHER


def _at_work(phase: str) -> tuple[str, ...]:
    """The engines that answer in a phase."""
    return ("rollout", "auxiliary") if phase == "rollout" else (phase,) if phase in SERVED else ()


def _devices(config: Config, role: str) -> tuple[int, ...]:
    if role in SERVED:
        return arithmetic.auxiliary_devices(config) if role == "auxiliary" else arithmetic.judge_devices(config)
    return arithmetic.devices_of(config, "policy" if role == "teacher" else role)


def _phases(
    config: Config, here: dict[str, MemoryEstimate], gib: float, device: Device, terms: MemoryTerms
) -> Iterator[tuple[str, list[MemoryPart]]]:
    sleeps = arithmetic.rollout_sleeps(config, device) or (terms.engines_sleep and device == "cuda")
    answering = ("rollout", *SERVED)
    resting = {role: _resting(config, each) for role, each in here.items() if role not in answering}
    held = sum(part.gib for parts in resting.values() for part in parts)
    engines = {role: _engine(config, here[role], gib, device, held) for role in answering if role in here}
    resting |= {role: [] for role in engines} if sleeps else engines
    engine, auxiliary = engines.get("rollout", []), engines.get("auxiliary", [])

    def others(*working: str) -> list[MemoryPart]:
        return [part for role, parts in resting.items() if role not in working for part in parts]

    if engine or auxiliary:
        yield "rollout" if engine else "auxiliary", [*engine, *auxiliary, *others("rollout", "auxiliary")]
    if "judge" in engines:
        yield "judge", [*engines["judge"], *others("judge")]
    if "reward_model" in here:
        yield "reward_model", [*_named(here["reward_model"]), *others("reward_model")]
    if "policy" in here:
        forward = policy_forward(config, terms)
        if forward is not None and config.algorithm.old_log_probs != "rollout":
            yield "log_probs", [*_named(forward), *others("policy")]
        for role in ("reference", "teacher"):
            if role in here:
                yield role, [*_named(here[role]), *others(role)]
        yield "train", [*_named(here["policy"]), *others("policy")]
    if "critic" in here:
        yield "train_critic", [*_named(here["critic"]), *others("critic")]
    if "policy" in here and "rollout" in here:
        weights = [part for part in engine if part.name == "rollout weights"]
        bucket = MemoryPart("weight sync bucket", min(2 * config.weight_sync.bucket_mib / 1024, 2 * _all(weights)))
        own = [part for part in _named(here["policy"]) if part.name == "policy parameters"]
        yield "weight_sync", [*own, *weights, bucket, *others("policy", "rollout")]


def _engine(config: Config, estimate: MemoryEstimate, gib: float, device: Device, held: float) -> list[MemoryPart]:
    """An engine at work: vLLM takes its share of a device, SGLang of what others leave free; weights leave the KV cache.

    SGLang: ``mem_fraction_static`` in ``sglang/srt/model_executor/model_runner.py``, of the memory that is free as it starts.
    """
    weights, role = estimate.part("weights"), estimate.role
    if not _takes_share(config, role, device):
        return _named(estimate)
    free = gib - held if role == "rollout" and config.rollout.engine.choice == "sglang" else gib
    cache = max(0.0, _share(config, role) * free - weights)
    return _named(replace(estimate, parts=(MemoryPart("weights", weights), MemoryPart("KV cache", cache))))


def _share(config: Config, role: str) -> float:
    """Share of a device that an engine takes: for other models than the policy, the largest share in their settings."""
    if role == "rollout":
        return rollout_share(config)
    shared = config.placement.layout == "colocated" and arithmetic.trains(config)
    alone = COLOCATED if shared else ALONE
    return max(float(each.settings.get("gpu_memory_utilization") or alone) for each in served_models(config, role))


def _takes_share(config: Config, role: str, device: Device) -> bool:
    if role == "auxiliary":
        return arithmetic.auxiliary_engine(config, device) != "transformers" and device == "cuda"
    if role == "judge":
        judge = next(iter(arithmetic.served_judges(config).values()))
        return arithmetic.judge_engine(judge, device) != "transformers" and device == "cuda"
    return device == "cuda" and config.rollout.engine.choice != "transformers"


def _lacking(config: Config, estimate: MemoryEstimate, gib: float, device: Device) -> float:
    """What the engine's share lacks for the weights and one sequence, which vLLM needs to start."""
    if not _takes_share(config, estimate.role, device):
        return 0.0
    one = cache_of_one(config, device) if estimate.role == "rollout" else 0.0
    return max(0.0, estimate.part("weights") + one - _share(config, estimate.role) * gib)


def _named(estimate: MemoryEstimate) -> list[MemoryPart]:
    return [replace(part, name=said("{role} {name}", role=estimate.role, name=part.name)) for part in estimate.parts]


def _all(parts: list[MemoryPart]) -> float:
    return sum(part.gib for part in parts)


def _resting(config: Config, estimate: MemoryEstimate) -> list[MemoryPart]:
    """What a role that is no engine keeps on the device while another works."""
    if estimate.role in ("teacher", "reward_model"):
        return _states(estimate, ("parameters",))
    _, engine = arithmetic.engine_of(config, estimate.role)
    return _states(estimate, tuple(_kept(engine)))


def _kept(engine: TrainEngine) -> Iterator[str]:
    offload = engine.offload if isinstance(engine, Fsdp2 | Megatron) else "none"
    if offload not in ("parameters", "both"):
        yield "parameters"
    if offload not in ("optimizer", "both"):
        yield "optimizer"
    if isinstance(engine, Megatron) and not engine.offload_gradients:
        yield "gradients"


def _states(estimate: MemoryEstimate, names: tuple[str, ...]) -> list[MemoryPart]:
    return _named(replace(estimate, parts=tuple(part for part in estimate.parts if part.name in names)))


def overflow(phases: tuple[PhaseEstimate, ...], gib: float) -> float:
    """GiB that the worst phase needs beyond what may be filled; 0 or less if all fit."""
    return max((phase.lacking or phase.gib + phase.asleep - fitted.USABLE * gib for phase in phases), default=0.0)
