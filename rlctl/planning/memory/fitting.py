"""The nearest config that fits: one setting after another that saves memory, cheapest first, until every phase fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.train import Fsdp2, Megatron
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Device
from rlctl.planning.megatron.layout import broken
from rlctl.planning.memory import fitted
from rlctl.planning.memory.phases import PhaseEstimate, overflow, phases_of, rollout_share
from rlctl.planning.memory.roles import context_tokens
from rlctl.planning.memory_terms import OWN, MemoryTerms
from rlctl.planning.models import read_shape
from rlctl.planning.support import RLCTL, unhonoured

MOST_CHANGES = 5
"""Settings that one suggestion changes."""


Candidates = Callable[[Config], Iterable[tuple[tuple[str, ...], Any]]]
"""Keys of a config with other values."""
Ignores = Callable[[Config, tuple[str, ...]], bool]
"""Whether the framework that runs a config ignores a key of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting with the value it has and the one it should take."""

    key: tuple[str, ...]
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a stage fits its devices, and what would make it fit."""

    gib: float
    """Memory of a device."""
    phases: tuple[PhaseEstimate, ...]
    changes: tuple[Change, ...] = ()
    """The nearest layout that fits; empty if this one does, or if none was found."""

    @property
    def fits(self) -> bool:
        return overflow(self.phases, self.gib) <= 0

    def holds(self, phase: PhaseEstimate) -> bool:
        """Whether one of the phases fits."""
        return overflow((phase,), self.gib) <= 0

    @property
    def worst(self) -> PhaseEstimate:
        """The phase that needs most, or that lacks most."""
        return max(self.phases, key=lambda phase: (phase.lacking, phase.gib))

    @property
    def problem(self) -> str:
        """What does not fit, as a sentence."""
        worst = self.worst
        if worst.lacking:
            return said(
                "the rollout engine's memory share lacks {lacking:.1f} GiB for its weights and the KV cache of one sequence",
                lacking=worst.lacking,
            )
        return said(
            "{phase} needs {gib:.0f} GiB on a device of {device:g} GiB, of which {usable:.0%} can be filled; the "
            "largest part is {name} with {part:.1f} GiB",
            phase=worst.phase,
            gib=worst.gib,
            device=self.gib,
            usable=fitted.USABLE - worst.asleep / self.gib,
            name=worst.largest.name,
            part=worst.largest.gib,
        )


def fit_of(config: Config, *, gib: float, device: Device = "cuda", terms: MemoryTerms = OWN) -> Fit | None:
    """Judge a stage; None if the size of its policy is not known.

    Args:
        config: of one stage.
        gib: memory of a device.
        device: its kind.
        terms: what the framework that runs it holds. Settings that rlctl ignores save no memory, and are not suggested.
    """
    if terms.framework == RLCTL:
        config = as_rlctl_runs(config)
    phases = phases_of(config, gib=gib, device=device, terms=terms)
    if not phases:
        return None
    fit = Fit(gib, phases)
    if fit.fits:
        return fit
    ignores = _ignored if terms.framework == RLCTL else None

    def lacks(made: Config) -> float:
        return overflow(phases_of(made, gib=gib, device=device, terms=terms), gib)

    found = _nearest(config, lacks, _candidates, ignores) or _nearest(config, lacks, _with_last_resorts, ignores)
    return Fit(gib, phases, tuple(found))


def as_rlctl_runs(config: Config) -> Config:
    """The config without what rlctl ignores of it: Megatron's weights and optimizer stay on the device."""
    for role in ("train", "critic", "reference"):
        engine = _get(config, (role, "engine"))
        if isinstance(engine, Megatron):
            kept = dataclasses.replace(engine, offload="none", offload_gradients=False)
            config = _with(config, (role, "engine"), kept)
    return config


def _ignored(config: Config, key: tuple[str, ...]) -> bool:
    """Whether rlctl's runtime does nothing with a key."""
    return any(each.key == key[: len(each.key)] for each in unhonoured(config))


def _nearest(
    config: Config, lacks: Callable[[Config], float], candidates: Candidates, ignores: Ignores | None
) -> list[Change]:
    """The first single change that fits; else the one that saves most, and from there again. None found: no changes."""
    changes: list[Change] = []
    for _ in range(MOST_CHANGES):
        tried = [
            (lacks(made), change, made)
            for change, made in _allowed(config, candidates)
            if ignores is None or not ignores(made, change.key)
        ]
        if not tried:
            return []
        fitting = next((each for each in tried if each[0] <= 0), None)
        least, change, made = fitting or min(tried, key=lambda each: each[0])
        if fitting is None and least >= lacks(config):
            return []
        known = next((place for place, each in enumerate(changes) if each.key == change.key), None)
        if known is None:
            changes.append(change)
        else:
            changes[known] = dataclasses.replace(changes[known], after=change.after)
        config = made
        if fitting is not None:
            return changes
    return []


def _allowed(config: Config, candidates: Candidates) -> Iterator[tuple[Change, Config]]:
    """Changes whose config has a layout that divides."""
    for key, after in candidates(config):
        before = rollout_share(config) if key[-1] == "gpu_memory_utilization" else _get(config, key)
        if before == after:
            continue
        made = _with(config, key, after)
        if _may_share(made) and divides(made):
            yield Change(key, before, after), made


def _candidates(config: Config) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Settings that save memory, cheapest first."""
    train, longest = config.train, context_tokens(config)
    for section in (("batch", "micro_batch"), ("batch", "log_prob_micro_batch"), ("critic", "micro_batch")):
        micro = _get(config, section)
        if micro is None:
            continue
        least = longest if micro.unit == "tokens" else 1
        if micro.size > least:
            yield (*section, "size"), max(least, micro.size // 2)
    if arithmetic.needs_rollout(config):
        share = rollout_share(config)
        yield ("rollout", "memory", "gpu_memory_utilization"), round(share - 0.1, 2)
        yield ("rollout", "memory", "gpu_memory_utilization"), min(0.9, round(share + 0.1, 2))
        yield ("rollout", "parallel", "tensor_parallel_size"), 2 * config.rollout.parallel.tensor_parallel_size
    if not train.memory.recompute_activations and isinstance(train.engine, Fsdp2):
        yield ("train", "memory", "recompute_activations"), True
    for role in ("train", "critic"):
        engine = _get(config, (role, "engine"))
        if isinstance(engine, Fsdp2 | Megatron):
            yield (role, "engine", "offload"), "optimizer"
            yield (role, "engine", "offload"), "both"
    if isinstance(train.engine, Megatron):
        yield from _megatron(train.engine)
    elif isinstance(train.engine, Fsdp2):
        yield ("train", "engine", "ulysses_sequence_parallel_size"), 2 * train.engine.ulysses_sequence_parallel_size


def _with_last_resorts(config: Config) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The same, and settings that make steps slow or need more machines."""
    yield from _candidates(config)
    if isinstance(config.train.engine, Fsdp2):
        yield ("train", "engine", "cpu_offload_policy"), True
    yield ("placement", "nodes"), 2 * config.placement.nodes


def _megatron(engine: Megatron) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield ("train", "engine", "distributed_optimizer"), True
    yield ("train", "engine", "recompute_granularity"), "full"
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size", "expert_parallel_size"):
        yield ("train", "engine", name), 2 * getattr(engine, name)


def _may_share(config: Config) -> bool:
    """Whether the rollout engine's share is one to suggest."""
    fraction = config.rollout.memory.gpu_memory_utilization
    return fraction is None or 0.1 <= fraction <= 0.9


def divides(config: Config) -> bool:
    """Whether devices, heads and layers divide as the config asks."""
    shape, engine = read_shape(config.model.path), config.train.engine
    if shape is None:
        return False
    tensor, per_node = config.rollout.parallel.tensor_parallel_size, config.placement.devices_per_node
    if shape.heads % tensor or per_node % tensor:
        return False
    if isinstance(engine, Fsdp2) and shape.heads % engine.ulysses_sequence_parallel_size:
        return False
    try:
        arithmetic.train_replicas(config)
        if arithmetic.needs_rollout(config):
            arithmetic.rollout_engines(config)
    except PlanError:
        return False
    if isinstance(engine, Megatron):
        devices = len(arithmetic.devices_of(config, "policy"))
        return not any(broken(engine, devices=devices, per_node=per_node, shape=shape))
    return True


def _get(config: Any, key: tuple[str, ...]) -> Any:
    for part in key:
        config = getattr(config, part, None)
    return config


def _with(node: Any, key: tuple[str, ...], value: Any) -> Any:
    """The same config with another value of one key."""
    head, *rest = key
    inner = _with(getattr(node, head), tuple(rest), value) if rest else value
    return dataclasses.replace(node, **{head: inner})
