"""verl: its trainers that roll out beside training, ``one_step_off_policy`` and ``fully_async_policy``.

Both name rollout's devices under ``rollout``. The fully asynchronous one has no batch: the trainer takes ``require_batches``
mini-batches from a queue, and after ``trigger_parameter_sync_step`` of these the weights go over. That round is the step here,
as it is verl's own unit of ``test_freq`` and ``save_freq``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlctl.adapters.rules import ABSENT, Code, Flow, K, Out, Reading, Rule, Writing

ASYNC = "async_training"
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"
TRIGGER, REQUIRED, STALENESS, PARTIAL = (
    f"{ASYNC}.{name}"
    for name in ("trigger_parameter_sync_step", "require_batches", "staleness_threshold", "partial_rollout")
)
SAMPLES, NODES, DEVICES = "rollout.total_rollout_steps", "rollout.nnodes", "rollout.n_gpus_per_node"
EPOCHS = "rollout.total_epochs"
BYPASS = "algorithm.rollout_correction.bypass_mode"
DEFAULTS = {TRIGGER: 4, REQUIRED: 1, STALENESS: 0.1, PARTIAL: True}
PROMPTS, PACE, PLACES = (
    tuple(K(name, ABSENT) for name in names) for names in ((REQUIRED, TRIGGER), (STALENESS, PARTIAL), (NODES, DEVICES))
)
"""Keys of these trainers, which the others do not have."""


def is_fully(view: Reading) -> bool:
    """Whether the fully asynchronous trainer runs."""
    return view.written(ASYNC)


def is_beside(view: Reading) -> bool:
    """Whether rollout has devices of its own, named at the top."""
    return is_fully(view) or view.written(NODES, DEVICES)


def _value(view: Reading, key: str) -> Any:
    return view.get(key) if view.written(key) else DEFAULTS[key]


def round_of(view: Reading) -> tuple[int, str] | None:
    """Prompts between two synchronisations, and how they come about; None where a number is missing."""
    numbers = view.get(MINI), _value(view, REQUIRED), _value(view, TRIGGER)
    if not all(isinstance(number, int) for number in numbers):
        return None
    return math.prod(
        numbers
    ), f"{numbers[0]} prompts x {numbers[1]} mini-batches x {numbers[2]} before the weights go over"


def read_prompts(view: Reading) -> Iterator[Flow]:
    """Prompts of a step, where the trainer has no batch."""
    if (found := round_of(view)) is not None:
        used = tuple(view.path(key) for key in (REQUIRED, TRIGGER))
        yield Flow(view.to("batch.prompts_per_step"), found[0], used, "derived", found[1])
    yield Flow((), None, (view.path("data.train_batch_size"),), "mapped", "there is no batch; it must be 0")


def read_total(view: Reading) -> Iterator[Flow]:
    """Steps of the run, which counts prompts."""
    prompts, found = view.get(SAMPLES), round_of(view)
    if isinstance(prompts, int) and found is not None:
        note = f"{prompts} prompts / {found[0]} a step"
        yield Flow(view.to("schedule.total_steps"), max(1, prompts // found[0]), (view.path(SAMPLES),), "derived", note)


def read_devices(view: Reading) -> Iterator[Flow]:
    """All devices: the trainer's and, beside them, those of rollout."""
    keys = ("trainer.nnodes", "trainer.n_gpus_per_node", NODES, DEVICES)
    mine, each = (view.get(key, 1) for key in keys[:2])
    nodes, own = view.get(NODES, 1), view.get(DEVICES, each)
    used = tuple(view.path(key) for key in keys)
    if not all(isinstance(number, int) for number in (mine, each, nodes, own)):
        return
    if each == own:
        total, per_node, note = mine + nodes, each, f"{mine} to train + {nodes} for rollout"
    elif mine == nodes:
        total, per_node, note = mine, each + own, f"{each} to train + {own} for rollout on each node"
    else:
        total, per_node, note = 1, mine * each + nodes * own, "nodes of two sizes, as one"
    yield Flow(view.to("placement.nodes"), total, (used[0], used[2]), "derived", note)
    yield Flow(view.to("placement.devices_per_node"), per_node, (used[1], used[3]), "derived", note)
    yield Flow(view.to("placement.layout"), "split", used[2:])
    yield Flow(view.to("placement.rollout_devices"), nodes * own, used[2:], "derived", f"{nodes} x {own}")


def read_sync(view: Reading) -> Iterator[Flow]:
    """How far rollout runs ahead."""
    yield Flow(view.to("sync.every"), 1, ())
    if not is_fully(view):
        yield Flow(view.to("sync.ahead"), 1.0, (), "derived", "one step off")
        yield Flow(view.to("sync.max_staleness"), 1, ())
        return
    ahead, used = _value(view, STALENESS), (view.path(STALENESS),)
    if isinstance(ahead, (int, float)):
        note = f"{ahead:g} of a step's prompts beyond those that are asked for"
        yield Flow(view.to("sync.ahead"), float(ahead), used, "derived", note)
        yield Flow(view.to("sync.max_staleness"), math.ceil(ahead), used, "derived", note)
    how = "continue" if _value(view, PARTIAL) else "wait"
    yield Flow(view.to("sync.in_flight"), how, (view.path(PARTIAL),))


def _read_old(view: Reading) -> Iterator[Flow]:
    used = (view.path(f"{ASYNC}.use_rollout_log_probs"), view.path("actor_rollout_ref.actor.use_rollout_log_probs"))
    if is_fully(view) and not view.written(BYPASS):
        reason = "the trainer's own config takes rollout's log-probs"
        yield Flow(view.to("algorithm.old_log_probs"), "rollout", used, "derived", reason)
    else:
        yield Flow((), None, used, "dead", f"{BYPASS} decides")


def _nothing(view: Writing) -> Iterator[Out]:
    return iter(())


def _read_evaluation(view: Reading) -> Iterator[Flow]:
    key = "rollout.test_freq"
    if view.written(key):
        every = view.get(key)
        yield Flow(view.to("schedule.evaluate_every"), every if every > 0 else None, (view.path(key),))


RULES: list[Rule] = [
    Code(
        "old log-probs beside training",
        (K(f"{ASYNC}.use_rollout_log_probs", ABSENT), K("actor_rollout_ref.actor.use_rollout_log_probs", ABSENT)),
        (),
        _read_old,
        _nothing,
        "rollout's, where training is fully asynchronous",
    ),
    Code("evaluation beside training", (K("rollout.test_freq", ABSENT),), (), _read_evaluation, _nothing),
]
"""Before the rules for the same concepts; what they read is written for the trainer of ``trainer.v1``."""
