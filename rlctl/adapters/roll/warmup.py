"""ROLL: counts of optimizer steps, which move its schedule, and the warm-up, which may be a share of them.

ROLL takes a share of the run's optimizer steps and rounds it up; others round it down. Where the two differ the steps themselves
go on, and converting back restores the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.rules import Absent, Computed, CustomRule, DialectKey, Flow, Key, Out, Reading, Writing
from rlctl.adapters.engine.values import Off, rows
from rlctl.adapters.roll.workers import data_parallel
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.common.records import record
from rlctl.planning import arithmetic

ROUNDS = "ROLL rounds up to whole optimizer steps; other frameworks round down"


@record
class Ticks(Off):
    """Optimizer steps; ticks of whole steps are multiplied by the optimizer steps of one, and 0 means none."""

    sentinel: int | float = 0

    def write(self, value: Any, view: Writing) -> Any:
        times = _optimizer_steps_of_tick(view)
        if value is None or times == 1:
            return super().write(value, view)
        return Computed(value * times, said("{value} steps x {times} optimizer steps", value=value, times=times))


def ticks(key: str, to: str) -> Key:
    """Optimizer steps at a key."""
    # 2026.8 mcore_adapter/trainer/utils.py, get_megatron_lr_scheduler: over the whole run; WSD refuses silence
    return Key(key, to, 0, Ticks(), formula="in optimizer steps")


def _optimizer_steps_of_tick(view: Writing) -> int:
    if view.get("train.lr_scheduler.step_unit") == "optimizer_step":
        return 1
    return arithmetic.optimizer_steps_per_step(view.config)


def warmup(worker: str, to: str) -> CustomRule:
    """How long a training worker warms up: ``warmup_steps``, or a share of its optimizer steps where that is 0."""
    steps, share = f"{worker}.training_args.warmup_steps", f"{worker}.training_args.warmup_ratio"
    own, part = f"{to}.lr_scheduler.warmup_steps", f"{to}.lr_scheduler.warmup_ratio"

    def read(view: Reading) -> Iterator[Flow]:
        used, ratio = (view.path(share),), Off(0.0).read(view.get(share), view)
        count = Off(0).read(view.get(steps), view)
        if count is not None or not is_number(ratio):
            yield Flow(view.to(own), count, (view.path(steps),))
            yield Flow(view.to(part), None if count is not None else ratio, used, "mapped", same=False)
            return
        total, others = _updates_read(view, worker)
        if total is None or math.ceil(ratio * total) == int(ratio * others):
            yield Flow(view.to(own), None, (view.path(steps),))
            yield Flow(view.to(part), ratio, used, note="" if total is not None else ROUNDS, same=True)
            return
        note = said("{ratio:g} of {total} optimizer steps; {rounds}", ratio=ratio, total=total, rounds=ROUNDS)
        yield Flow(view.to(own), math.ceil(ratio * total), used, "derived", note)
        yield Flow(("extensions", "roll", _kept(view, share)), ratio, used)

    def write(view: Writing) -> Iterator[Out]:
        ratio, count = view.get(part), view.get(own)
        if isinstance(count, Absent):
            return
        if isinstance(count, int) or not is_number(ratio):
            yield from _write_own(view, count, steps, own, share)
            return
        used, total = (view.to(part),), _updates_written(view, worker)
        if total is None:
            yield Flow(view.path(share), ratio, used, note=ROUNDS, same=True)
            return
        times = _optimizer_steps_of_tick(view)
        exact = int(ratio * (total // times)) * times
        if exact == math.ceil(ratio * total):
            yield Flow(view.path(share), ratio, used, same=True)
        elif exact:
            note = said(
                "{ratio:g} of {total} optimizer steps, which ROLL rounds up to {up}",
                ratio=ratio,
                total=total,
                up=math.ceil(ratio * total),
            )
            yield Flow(view.path(steps), exact, used, "derived", note, always=True)
        else:
            yield Flow(
                view.path(share),
                0.0,
                used,
                "derived",
                said("{ratio:g} of {total} optimizer steps is less than one step", ratio=ratio, total=total),
            )

    keys = (DialectKey(steps), DialectKey(share))
    return CustomRule(
        f"warm-up of {worker}",
        keys,
        (own, part),
        read,
        write,
        "ROLL rounds a ratio up",
        by_key={steps: own, share: part},
        why="Which of the two keys is read or written depends on how ROLL and the others round the run's optimizer steps.",
    )


def _write_own(view: Writing, count: Any, steps: str, own: str, share: str) -> Iterator[Out]:
    """Warm-up by steps; where they are those of a share that ROLL's own file had, that share is put back instead."""
    ratio: Any = view.config.carried_for("roll").get(_kept(view, share))
    worker = steps.partition(".")[0]
    total = _updates_written(view, worker) if is_number(ratio) else None
    if total is not None and count == math.ceil(ratio * total):
        yield Flow(
            (),
            None,
            (view.to(own),),
            "derived",
            said("{ratio:g} of {total} optimizer steps, rounded up", ratio=ratio, total=total),
        )
        return
    yield from ticks(steps, own).write(view)
    if ratio is not None:
        yield Flow(view.path(share), 0.0, (view.to(own),), "derived", "warmup_steps decides", always=True)


def _kept(view: Reading | Writing, key: str) -> str:
    return ".".join(str(part) for part in view.path(key))


def _updates_read(view: Reading, worker: str) -> tuple[int | None, int]:
    """The optimizer steps of the run: as ROLL counts them, the rests of all steps together, and as they are taken.

    The first is None where they hang on the length of the data.
    """
    steps, ranks = view.get("max_steps"), data_parallel(view, worker)
    prompts, epochs = view.get("rollout_batch_size"), 1 if worker == "critic" else view.get("ppo_epochs")
    agentic = view.written("train_env_manager") or view.written("custom_envs")
    group = 1 if agentic else view.get("num_return_sequences_in_group")
    arguments = f"{worker}.training_args."
    own = [view.get(f"{arguments}{name}") for name in ("per_device_train_batch_size", "gradient_accumulation_steps")]
    counts = [count for count in (steps, prompts, epochs, group, *own, ranks) if isinstance(count, int) and count > 0]
    if view.get("actor_infer.strategy_args.strategy_name") is None or len(counts) < 7:
        return None, 0
    steps, prompts, epochs, group, each, times, ranks = counts
    each *= times
    total = max(1, steps * prompts * group * epochs // each) // ranks
    return total, steps * -(-prompts * group // (each * ranks)) * epochs


def _updates_written(view: Writing, worker: str) -> int | None:
    """The same of the config that is written; None where it hangs on data of unknown length."""
    config = view.config
    steps = arithmetic.total_steps(config, rows(view.options))
    if config.algorithm.objective.choice != "rl" or steps is None:
        return None
    mini = arithmetic.mini_batch_responses(config)
    epochs = config.batch.ppo_epochs
    if worker == "critic":
        mini, epochs = view.get("critic.mini_batch_responses") or mini, 1
    return max(1, steps * arithmetic.responses_per_step(config) * epochs // mini)
