"""verl: its trainers that roll out beside training, ``one_step_off_policy`` and ``fully_async_policy``.

Both name rollout's devices under ``rollout``. The fully asynchronous one has no batch: the trainer takes ``require_batches``
mini-batches from a queue, and after ``trigger_parameter_sync_step`` of these the weights go over. That round is the step here,
as it is verl's own unit of ``test_freq`` and ``save_freq``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rlctl.adapters.engine.conditions import never
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, unsaid
from rlctl.adapters.engine.rules import (
    ABSENT,
    Computed,
    DialectKey,
    Flow,
    Key,
    Reading,
    Rule,
    When,
    Writing,
    split,
)
from rlctl.adapters.engine.tree import find, put
from rlctl.adapters.engine.values import Off
from rlctl.adapters.engine.writing import Written
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, Origin, OriginEntry, finding
from rlctl.config import Config
from rlctl.planning import arithmetic

ASYNC = "async_training"
ACTOR = "actor_rollout_ref.actor"
MINI = f"{ACTOR}.ppo_mini_batch_size"
MODE, SEPARATE = "trainer.v1.trainer_mode", "separate_async"
HYBRID = "actor_rollout_ref.hybrid_engine"
"""Whether ``separate_async`` also starts engines on the GPUs that train; 0.9.1 reads it, 0.9.0 always does."""
SYNC_STEP = "trainer.v1.separate_async.parameter_sync_step"
TRIGGER, REQUIRED, STALENESS, PARTIAL = (
    f"{ASYNC}.{name}"
    for name in ("trigger_parameter_sync_step", "require_batches", "staleness_threshold", "partial_rollout")
)
SAMPLES, NODES, DEVICES = "rollout.total_rollout_steps", "rollout.nnodes", "rollout.n_gpus_per_node"
EPOCHS = "rollout.total_epochs"
BYPASS = "algorithm.rollout_correction.bypass_mode"
DEFAULTS = {TRIGGER: 4, REQUIRED: 1, STALENESS: 0.1, PARTIAL: True}
OWN_POOLS = ("trainer.nnodes", "trainer.n_gpus_per_node", NODES, DEVICES)
"""Nodes and devices of the trainer's pool and of rollout's."""
PROMPTS, PACE, PLACES = (
    tuple(DialectKey(name, ABSENT, takes=bool if name == PARTIAL else float) for name in names)
    for names, since in (((REQUIRED, TRIGGER), "0.7"), ((STALENESS, PARTIAL), "0.7"), ((NODES, DEVICES), "0.5"))
)
"""Keys of these trainers, which the others do not have."""


def is_fully(view: Reading) -> bool:
    """Whether the fully asynchronous trainer runs: it refuses a batch, which other trainers with keys of the block have."""
    batch = view.get("data.train_batch_size") if view.written("data.train_batch_size") else 0
    return view.written(ASYNC, SAMPLES) and not batch


Pool = tuple[int, int]
"""Nodes, and devices of each."""


def pools(config: Config) -> tuple[Pool, Pool] | None:
    """The trainer's devices and rollout's own; None where verl's roles share all devices.

    Within nodes only a run that generates a step ahead is split; another one would wait for one half of each node in turn.
    """
    placement, own = config.placement, arithmetic.rollout_devices(config)
    nodes, each = placement.nodes, placement.devices_per_node
    if placement.layout != "split" or own >= arithmetic.devices(config):
        return None
    if own % each == 0:
        return (nodes - own // each, each), (own // each, each)
    if own % nodes == 0 and config.weight_sync.max_steps_ahead >= 1:
        return (nodes, each - own // nodes), (nodes, own // nodes)
    return None


def is_separate(view: Writing) -> bool:
    """Whether a split of the devices is written as ``separate_async``, which verl has since 0.9."""
    return view.version >= (0, 9) and pools(view.config) is not None


def is_beside(view: Reading) -> bool:
    """Whether rollout has dedicated devices, named at the top."""
    return is_fully(view) or view.written(NODES, DEVICES)


def _value(view: Reading, key: str) -> Any:
    return view.get(key) if view.written(key) else DEFAULTS[key]


def round_of(view: Reading) -> tuple[int, str] | None:
    """Prompts between two synchronisations, and how they come about; None where a number is missing."""
    numbers = view.get(MINI), _value(view, REQUIRED), _value(view, TRIGGER)
    if not all(isinstance(number, int) for number in numbers):
        return None
    return math.prod(numbers), said(
        "{numbers} prompts x {numbers2} mini-batches x {numbers3} per weight sync",
        numbers=numbers[0],
        numbers2=numbers[1],
        numbers3=numbers[2],
    )


def steps_of_update(view: Reading) -> int | None:
    """Optimizer steps of one ``update_actor``, which moves the schedule, if a step has several of them; else None.

    The fully asynchronous trainer updates with ``require_batches`` mini-batches at a time, ``separate_async`` with one.
    """
    if is_fully(view):
        batches = _value(view, REQUIRED)
    elif view.get(MODE, "sync") == SEPARATE and view.get(SYNC_STEP, 1) != 1:
        batches = 1
    else:
        return None
    epochs = view.get(f"{ACTOR}.ppo_epochs", 1)
    return batches * epochs if isinstance(batches, int) and isinstance(epochs, int) else None


def read_prompts(view: Reading) -> Iterator[Flow]:
    """Prompts of a step, where the trainer has no batch."""
    if (found := round_of(view)) is not None:
        used = tuple(view.path(key) for key in (REQUIRED, TRIGGER))
        yield Flow(view.to("batch.prompts_per_step"), found[0], used, "derived", found[1])
    yield Flow(
        (),
        None,
        (view.path("data.train_batch_size"),),
        "mapped",
        "this trainer has no fixed batches, so the key must be 0",
    )


def read_total(view: Reading) -> Iterator[Flow]:
    """Steps of the run, which counts prompts."""
    prompts, found = view.get(SAMPLES), round_of(view)
    if isinstance(prompts, int) and found is not None:
        note = said("{prompts} prompts / {found} per step", prompts=prompts, found=found[0])
        yield Flow(view.to("schedule.total_steps"), max(1, prompts // found[0]), (view.path(SAMPLES),), "derived", note)


def read_devices(view: Reading, keys: Sequence[str] = OWN_POOLS) -> Iterator[Flow]:
    """All devices: the trainer's and, beside them, those of rollout."""
    mine, each = (view.get(key, 1) for key in keys[:2])
    nodes, own = view.get(keys[2], 1), view.get(keys[3], each)
    used = tuple(view.path(key) for key in keys)
    if not all(isinstance(number, int) for number in (mine, each, nodes, own)):
        return
    if each == own:
        total, per_node, note = (
            mine + nodes,
            each,
            said("{mine} to train + {nodes} for rollout", mine=mine, nodes=nodes),
        )
    elif mine == nodes:
        total, per_node, note = (
            mine,
            each + own,
            said("{each} to train + {own} for rollout on each node", each=each, own=own),
        )
    else:
        total, per_node, note = (
            1,
            mine * each + nodes * own,
            "the training and rollout nodes differ in size; rlctl assumes one size",
        )
    yield Flow(view.to("placement.nodes"), total, (used[0], used[2]), "derived", note)
    yield Flow(view.to("placement.devices_per_node"), per_node, (used[1], used[3]), "derived", note)
    if keys is OWN_POOLS:
        yield Flow(view.to("placement.layout"), "split", used[2:])
        note = said("{nodes} x {own}", nodes=nodes, own=own)
        yield Flow(view.to("placement.rollout_devices"), nodes * own, used[2:], "derived", note)


def read_sync(view: Reading) -> Iterator[Flow]:
    """How far rollout runs ahead."""
    yield Flow(view.to("weight_sync.every"), 1, ())
    if not is_fully(view):
        yield Flow(view.to("weight_sync.max_steps_ahead"), 1.0, (), "derived", "one step off")
        yield Flow(view.to("weight_sync.max_staleness_steps"), 1, ())
        return
    ahead, used = _value(view, STALENESS), (view.path(STALENESS),)
    if isinstance(ahead, (int, float)):
        note = said("{ahead:g} of a step's prompts ahead of training", ahead=ahead)
        yield Flow(view.to("weight_sync.max_steps_ahead"), float(ahead), used, "derived", note)
        yield Flow(view.to("weight_sync.max_staleness_steps"), math.ceil(ahead), used, "derived", note)
    how = "continue" if _value(view, PARTIAL) else "wait"
    yield Flow(view.to("weight_sync.in_flight_requests"), how, (view.path(PARTIAL),))


SOURCES = (
    *((key, "fully_async_main") for key in (TRIGGER, REQUIRED, STALENESS, SAMPLES)),
    (f"{ASYNC}.", "a trainer that reads async_training"),
    ("rollout.n", "the trainer one_step_off_policy"),
)
"""What only these trainers have, and what starts them."""


def rewritten(sources: Iterable[str], mode: str | None) -> list[Finding]:
    """That another trainer of verl's is written than the one whose keys were read.

    Args:
        sources: the keys that were read.
        mode: ``trainer.v1.trainer_mode`` of the written file; None where it has none.
    """
    keys = tuple(sources)
    was = next((name for root, name in SOURCES if any(key.startswith(root) for key in keys)), None)
    if was is None:
        return []
    does = {
        SEPARATE: "generates whole steps ahead on dedicated GPUs",
        "colocate_async": "generates whole steps ahead on the training GPUs",
    }.get(mode or "", "generates and trains in turns on all GPUs")
    if mode:
        return [finding("other-trainer_mode", Level.WARNING, MODE, was=was, mode=mode, does=does)]
    return [finding("other-trainer", Level.WARNING, "trainer", was=was, does=does)]


def replicas_beside(view: Reading) -> list[Finding]:
    """A note that engines also start on the GPUs that train, which no other framework's split has."""
    if view.version < (0, 9) or view.get(MODE) != SEPARATE or view.get(HYBRID, True) is False:
        return []
    return [finding("hybrid-replicas", Level.NOTE, MODE, hybrid=HYBRID)]


def without_replicas(written: Written, config: Config, sources: Iterable[str]) -> None:
    """Switch those engines off in a written file, unless the config was one of verl's."""
    values = written.values
    if find(values, split(MODE)) != SEPARATE or MODE in sources or config.carried_for("verl"):
        return
    put(values, split(HYBRID), False)
    note = "verl would also start engines on the devices that train"
    written.origins.append(OriginEntry(HYBRID, Origin.DEFAULTED, False, note))


RULES: list[Rule] = [
    When(
        (
            FollowsFrom(
                "algorithm.old_log_probs",
                reads=lambda view: Computed("rollout", "the trainer's own config uses the rollout engine's log-probs"),
                writes=unsaid,
                reason="",
                of=tuple(
                    DialectKey(f"{root}.use_rollout_log_probs", ABSENT, takes=bool)
                    for root in (ASYNC, "actor_rollout_ref.actor")
                ),
                formula="the rollout engine's if training is fully asynchronous",
            ),
        ),
        reads=lambda view: is_fully(view) and not view.written(BYPASS),
        writes=never,
        reason=said("{bypass} decides", bypass=BYPASS),
    ),
    Key("rollout.test_freq", "schedule.evaluate_every", ABSENT, Off(), write_when=never),
]
"""Before the rules for the same concepts; what they read is written for the trainer of ``trainer.v1``."""
