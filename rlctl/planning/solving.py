"""The largest or smallest value of a setting with which a config fits its GPUs, and what stops a further one.

    QUANTITIES ──values──▶ from the modest to the wanted ──search──▶ the last one that fits ──accepts──▶ Solution

A quantity is a row of a table: which values it may take in a config, and which canonical keys a value changes. The search
knows memory only; ``accepts`` is called for what it finds, and goes on with the next modest value if the change is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlctl.common.errors import PlanError, RlctlError, UsageError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config import Config, with_value
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Cluster, Device
from rlctl.planning.memory import PhaseEstimate, context_tokens, fitted, phases_of
from rlctl.planning.memory.fitting import as_rlctl_runs, divides
from rlctl.planning.memory.phases import overflow, rollout_share
from rlctl.planning.memory.roles import responses_of_replica
from rlctl.planning.memory_terms import MemoryTerms
from rlctl.planning.models import read_shape, why_unknown
from rlctl.planning.plan import memory_of_device, resolved_stages
from rlctl.planning.support import RLCTL

Fix = tuple[tuple[str | int, ...], Any]
"""A canonical key and its value."""
Accepts = Callable[[Config, Sequence[Fix]], str]
"""Why a changed config is refused; empty if it is not."""
MOST_SCANNED = 128
"""Values that are tried one by one; of more, the search halves."""
MOST_REFUSED = 12
"""Values that fit and are refused before the search ends."""
MOST_ALIKE = 4
"""Values that are refused for one reason before the search ends."""
RUNGS, ALL_RUNGS = 8, 12
"""Values of each quantity but the last in a table: so many, or all if there are only a few more."""
LENGTH_STEP = 256
TOKENS_STEP = 1024
MOST_TOKENS = 2**20
MOST_NODES = 64


@dataclass(frozen=True, slots=True)
class Machines:
    """What a config has to fit."""

    gib: float
    """Memory of a device."""
    devices_per_node: int
    device: Device
    terms: MemoryTerms


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something to solve for."""

    values: Callable[[Config, Machines], Sequence[Any]]
    """From the modest to the wanted."""
    fixes: Callable[[Config, Any, Machines], list[Fix]]
    """Canonical keys of a value."""
    now: Callable[[Config], Any]
    """The value that the config has."""
    is_round: Callable[[Any, Any], bool] = lambda value, last: True
    """Whether a value divides what frameworks want divided: it, and the last value."""

    def preferred(self, values: Sequence[Any], place: int) -> list[int]:
        """Places of the values to take if the one at a place is refused, and of those for a table; the best come first."""
        return [at for at in range(place, -1, -1) if self.is_round(values[at], values[-1])]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the next value is not it."""

    value: Any
    phase: str = ""
    part: str = ""
    """The part of memory that grows most."""
    gib: float = 0.0
    """What the phase would need."""
    reason: str = ""
    """Why the next value is refused, if memory does not stop it."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A config that fits, by the values of the quantities."""

    values: tuple[Any, ...]
    fixes: tuple[Fix, ...]
    worst: PhaseEstimate
    stop: Stop | None
    """None if no further value makes sense, such as a micro-batch larger than the mini-batch."""


@dataclass(frozen=True, slots=True)
class Solved:
    """What a search found."""

    solutions: tuple[Solution, ...]
    refusal: str = ""
    """Why a value that fits was refused, if no value is a solution."""


# The quantities


def _micro_values(config: Config, machines: Machines) -> Sequence[int]:
    micro = config.batch.micro_batch
    if micro.unit == "tokens":
        return _token_values(config, machines)
    return range(1, responses_of_replica(config, config.batch, "policy") + 1)


def _token_values(config: Config, machines: Machines) -> Sequence[int]:
    """Budgets from the longest sequence to all sequences of a mini-batch."""
    step = TOKENS_STEP * arithmetic.devices_per_sequence(config.train.engine)
    longest = context_tokens(config)
    most = min(MOST_TOKENS, longest * responses_of_replica(config, config.batch, "policy"))
    first = -(-longest // step) * step
    return range(first, max(first, most) + 1, step)


def _token_fixes(config: Config, value: int, machines: Machines) -> list[Fix]:
    if config.batch.micro_batch.unit == "tokens":
        return [(("batch", "micro_batch", "size"), value)]
    return [(("batch", "micro_batch"), {"unit": "tokens", "size": value})]


def _length_values(config: Config, machines: Machines) -> Sequence[int]:
    shape = read_shape(config.model.path)
    most = (shape.max_positions if shape is not None else None) or MOST_TOKENS
    room = most - config.data.max_prompt_tokens
    return range(min(LENGTH_STEP, room), room + 1, LENGTH_STEP)


def _length_fixes(config: Config, value: int, machines: Machines) -> list[Fix]:
    """The length, and with it the context and the budgets of micro-batches that would be too small for one sequence."""
    fixes: list[Fix] = [(("rollout", "max_response_tokens"), value)]
    longest = config.data.max_prompt_tokens + value
    if (most := config.model.max_context_tokens) is not None:
        longest = max(longest, most + value - config.rollout.max_response_tokens)
        fixes.append((("model", "max_context_tokens"), longest))
    for key in ("micro_batch", "log_prob_micro_batch"):
        micro: MicroBatchSize | None = getattr(config.batch, key)
        if micro is not None and micro.unit == "tokens" and micro.size < longest:
            fixes.append((("batch", key, "size"), longest))
    return fixes


def _gpu_values(config: Config, machines: Machines) -> Sequence[int]:
    """From many nodes to one GPU; a node is full if there are several.

    Raises:
        UsageError: the config lists the devices of each role.
    """
    if config.placement.layout == "explicit":
        raise UsageError(
            "the config lists the devices of each role, so the number of GPUs cannot be solved for",
            hint="remove the lists of devices, or solve for another quantity",
        )
    each = machines.devices_per_node
    nodes = max(MOST_NODES, 2 * config.placement.nodes)
    return [*range(nodes * each, each, -each), *(count for count in range(each, 0, -1) if each % count == 0)]


def _gpu_fixes(config: Config, value: int, machines: Machines) -> list[Fix]:
    each = value if value < machines.devices_per_node else machines.devices_per_node
    return [(("placement", "nodes"), value // each), (("placement", "devices_per_node"), each)]


QUANTITIES: dict[str, Quantity] = {
    "gpus": Quantity(_gpu_values, _gpu_fixes, arithmetic.devices, lambda value, last: value & (value - 1) == 0),
    "max_response_length": Quantity(_length_values, _length_fixes, lambda config: config.rollout.max_response_tokens),
    "gpu_memory_utilization": Quantity(
        lambda config, machines: [percent / 100 for percent in range(5, 99)],
        lambda config, value, machines: [(("rollout", "memory", "gpu_memory_utilization"), value)],
        rollout_share,
    ),
    "micro-batch": Quantity(
        _micro_values,
        lambda config, value, machines: [(("batch", "micro_batch", "size"), value)],
        lambda config: config.batch.micro_batch.size,
        lambda value, last: last % value == 0,
    ),
    "tokens": Quantity(
        _token_values,
        _token_fixes,
        lambda config: config.batch.micro_batch.size if config.batch.micro_batch.unit == "tokens" else None,
    ),
}
"""By the word after ``--solve``, in the order in which they are solved: what a value of the first changes, the next may use."""


def in_order(names: Sequence[str]) -> list[str]:
    """Names of quantities as they are solved.

    Raises:
        UsageError: one is given twice.
    """
    if len(set(names)) < len(names):
        raise UsageError("--solve names a quantity twice", hint="name each once")
    return sorted(names, key=list(QUANTITIES).index)


def quantity(name: str) -> Quantity:
    """A quantity by its name.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in QUANTITIES:
        raise UsageError(
            said("--solve {name!r} is unknown; known: {names}", name=name, names=", ".join(QUANTITIES)),
            hint=nearest(name, tuple(QUANTITIES)),
        )
    return QUANTITIES[name]


# The search


def solve(config: Config, names: Sequence[str], machines: Machines, accepts: Accepts) -> Solved:
    """The best values that fit: one solution for one quantity; for several, those of which none is better in everything.

    Args:
        config: the canonical config, stages included.
        names: of ``QUANTITIES``, as ``in_order`` sorts them. All but the last take a few values each, and the last is solved for.
        machines: what it has to fit.
        accepts: says why a changed config is refused.

    Returns:
        No solutions if no value of the quantities fits, or all are refused.

    Raises:
        UsageError: a quantity is unknown, or has no value in this config.
    """
    *ladders, last = map(quantity, names)
    found: list[tuple[tuple[int, ...], Solution]] = []
    refusal = ""
    for rungs in itertools.product(*(_rungs(each, each.values(config, machines)) for each in ladders)):
        fixes = [
            fix for each, (_, value) in zip(ladders, rungs, strict=True) for fix in each.fixes(config, value, machines)
        ]
        made = _with(config, fixes)
        if made is None:
            continue
        solution, reason = _best(made, fixes, last, machines, accepts)
        refusal = refusal or reason
        if solution is not None:
            place = last.values(made, machines).index(solution.values[0])
            values = (*(value for _, value in rungs), *solution.values)
            found.append(((*(rank for rank, _ in rungs), place), replace(solution, values=values)))
    best = [each for ranks, each in found if not any(_is_better(other, ranks) for other, _ in found)]
    return Solved(tuple(best), "" if best else refusal)


def _rungs(of: Quantity, values: Sequence[Any]) -> list[tuple[int, Any]]:
    """A few places of a sequence with their values, each place about as much further as the one before."""
    places = of.preferred(values, len(values) - 1)[::-1]
    if len(places) > ALL_RUNGS:
        chosen = {round(len(places) ** (step / (RUNGS - 1))) - 1 for step in range(RUNGS)}
        places = [places[index] for index in sorted(chosen)]
    return [(place, values[place]) for place in places]


def _is_better(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _best(
    config: Config, given: Sequence[Fix], wanted: Quantity, machines: Machines, accepts: Accepts
) -> tuple[Solution | None, str]:
    """The last value of a quantity that fits and is accepted, and why the first that fits was refused."""
    values = wanted.values(config, machines)
    place = _last_that_fits(
        values, lambda value: lacks(_with(config, wanted.fixes(config, value, machines)), machines) <= 0
    )
    refused: Stop | None = None
    reasons: list[str] = []
    for at in dict.fromkeys([place, *wanted.preferred(values, place)][:MOST_REFUSED] if place >= 0 else []):
        fixes = list({**dict(given), **dict(wanted.fixes(config, values[at], machines))}.items())
        made = _with(config, fixes)
        if made is None or lacks(made, machines) > 0:
            continue
        if reason := accepts(made, fixes):
            refused = refused or Stop(values[at], reason=reason)
            reasons.append(reason)
            if reasons[-MOST_ALIKE:] == MOST_ALIKE * [reason]:
                break  # which does not depend on the value
            continue
        following = values[place + 1] if place + 1 < len(values) else None
        stop = None if following is None else _stop(config, made, wanted, following, machines)
        return Solution((values[at],), tuple(fixes), _worst(made, machines), refused or stop), ""
    return None, refused.reason if refused is not None else ""


def _last_that_fits(values: Sequence[Any], fits: Callable[[Any], bool]) -> int:
    """The place of the last value that fits, -1 if none does. Of many values, those that fit come first."""
    if len(values) <= MOST_SCANNED:
        return next((place for place in reversed(range(len(values))) if fits(values[place])), -1)
    low, high = -1, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(values[middle]) else (low, middle)
    return low


def _with(config: Config, fixes: Sequence[Fix]) -> Config | None:
    """The config with some keys changed; None if the schema does not allow a value."""
    try:
        for key, value in fixes:
            config = with_value(config, key, value)
    except RlctlError:
        return None
    return config


def lacks(config: Config | None, machines: Machines) -> float:
    """GiB that the worst phase of any stage lacks, 0 or less if all fit; infinite for a layout that does not divide."""
    if config is None:
        return float("inf")
    try:
        stages = [stage.config for stage in resolved_stages(config, machines.device)]
    except RlctlError:
        return float("inf")
    if not all(map(divides, stages)):
        return float("inf")
    return max(overflow(_phases(stage, machines), machines.gib) for stage in stages)


def _phases(stage: Config, machines: Machines) -> tuple[PhaseEstimate, ...]:
    stage = as_rlctl_runs(stage) if machines.terms.framework == RLCTL else stage
    return phases_of(stage, gib=machines.gib, device=machines.device, terms=machines.terms)


def _worst(config: Config, machines: Machines) -> PhaseEstimate:
    """The phase that needs most."""
    stages = resolved_stages(config, machines.device)
    phases = [phase for stage in stages for phase in _phases(stage.config, machines)]
    return max(phases, key=lambda phase: (phase.lacking, phase.gib + phase.asleep))


def _stop(config: Config, made: Config, wanted: Quantity, value: Any, machines: Machines) -> Stop:
    """What the next value would need, and which part of it has grown most."""
    following = _with(config, wanted.fixes(config, value, machines))
    if following is None or lacks(following, machines) == float("inf"):
        return Stop(value, reason="devices, heads or layers would not divide")
    worst = _worst(following, machines)
    before = {part.name: part.gib for phase in _all_phases(made, machines, worst.phase) for part in phase.parts}
    if worst.lacking:
        cache = said("{role} {name}", role="rollout", name="KV cache")
        return Stop(value, worst.phase, cache, rollout_share(following) * machines.gib + worst.lacking)
    part = max(worst.parts, key=lambda part: (round(part.gib - before.get(part.name, 0.0), 3), part.gib))
    return Stop(value, worst.phase, part.name, worst.gib + worst.asleep)


def _all_phases(config: Config, machines: Machines, name: str) -> list[PhaseEstimate]:
    stages = resolved_stages(config, machines.device)
    return [phase for stage in stages for phase in _phases(stage.config, machines) if phase.phase == name]


def room(machines: Machines) -> float:
    """GiB of a device that estimates may fill."""
    return fitted.USABLE * machines.gib


def machines_of(config: Config, cluster: Cluster | None, terms: MemoryTerms) -> Machines:
    """What a config has to fit.

    Raises:
        PlanError: the GPU's memory, or the size of the model, is not known.
    """
    gib = None if cluster is None else memory_of_device(cluster)
    if cluster is None or gib is None or cluster.device == "cpu" or config.placement.device == "cpu":
        raise PlanError(
            "--solve needs GPUs whose memory is known",
            hint="name them: --cluster 1x8:H100, or --cluster 1x8:cuda:80GiB",
        )
    for stage in resolved_stages(config, "cuda"):
        if read_shape(stage.config.model.path) is None:
            raise PlanError(said("memory is not estimated: {reason}", reason=why_unknown(stage.config.model.path)))
    return Machines(gib, cluster.devices_per_node, "cuda", terms)
