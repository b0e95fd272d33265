"""verl: ticks of a schedule, which are calls of ``update_actor``, and the warm-up, which may be a share of them.

FSDP takes a share of the run, Megatron of ``lr_decay_steps``, and both round down. rlctl takes it of ``total_steps``, else of the
run: where that is another number, the ticks themselves go over. A warm-up of 0 steps asks for the share, but in the old FSDP
workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.rules import (
    FROM_SCHEMA,
    Absent,
    CustomRule,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Writing,
)
from rlctl.adapters.engine.values import Off, rows
from rlctl.adapters.verl.asynchronous import is_separate, steps_of_update
from rlctl.adapters.verl.roles import FSDP_KINDS, SFT, Role, is_old_fsdp
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.common.records import record
from rlctl.planning import arithmetic


@record
class Ticks:
    """Ticks as calls of ``update_actor``: one a step, or several where training is asynchronous."""

    schedule: str
    """The canonical schedule that they are of, with a dot."""
    how: Provenance = "mapped"
    note: str = "verl's schedule counts update_actor calls"

    def read(self, value: Any, view: Reading) -> Any:
        return value * (steps_of_update(view) or 1) if isinstance(value, int) else value

    def write(self, value: Any, view: Writing) -> Any:
        if not isinstance(value, int):
            return value
        return -(-value * _updates_of_step(view) // _ticks_of_step(view, self.schedule))


def _ticks_of_step(view: Writing, schedule: str) -> int:
    """Ticks of the canonical schedule in a step."""
    by_step = view.get(f"{schedule}step_unit") != "optimizer_step"
    return 1 if by_step else arithmetic.optimizer_steps_per_step(view.config)


def _updates_of_step(view: Writing) -> int:
    """Calls of ``update_actor`` in a step: ``separate_async`` makes one for each mini-batch."""
    return arithmetic.mini_batches_per_epoch(view.config) if is_separate(view) else 1


def moves_alike(view: Writing, schedule: str) -> bool:
    """Whether verl moves the schedule as often as the canonical config does."""
    return _updates_of_step(view) == _ticks_of_step(view, schedule)


def warmup(prefix: str, schedule: str, role: Role) -> CustomRule:
    """``lr_warmup_steps``, or the share ``lr_warmup_steps_ratio`` where that is not above 0."""
    steps, share, decay = (
        f"{prefix}.{name}" for name in ("lr_warmup_steps", "lr_warmup_steps_ratio", "lr_decay_steps")
    )
    own, part = f"{schedule}warmup_steps", f"{schedule}warmup_ratio"
    # 0.3.0.post1 workers/fsdp_workers.py
    count_key = Key(steps, own, FROM_SCHEMA if role is SFT else -1, _Count(schedule))  # 0.4 and 0.5 say null for -1
    share_key = Key(share, part, convert=Off(0.0))

    def read(view: Reading) -> Iterator[Flow]:
        count, of = _read_count(view, steps, role), Off(0.0).read(view.get(share), view)
        length = view.get(decay) if role.kind(view) == "megatron" else None
        used = (view.path(share),)
        if count is not None:
            yield Flow(view.to(own), count, (view.path(steps),), *_counted(view), same=steps_of_update(view) is None)
            yield Flow((), None, used, "dead" if of else "mapped", said("{steps} decides", steps=steps))
        elif is_number(of) and is_number(length):
            yield Flow((), None, (view.path(steps),))
            note = said("{of:g} of {length} decay steps", of=of, length=length)
            ticks = int(of * length) * (steps_of_update(view) or 1)
            yield Flow(view.to(own), ticks, (*used, view.path(decay)), "derived", note)
        else:
            yield from count_key.read(view)
            yield from share_key.read(view)

    def write(view: Writing) -> Iterator[Out]:
        of, used = view.get(part), (view.to(part),)
        is_megatron = view.get(f"{role.to}.type") == "megatron"
        moved = [view.get(f"{schedule}{name}") for name in ("total_steps", "decay_steps")[: 1 + is_megatron]]
        if view.get(own) is not None or not is_number(of) or not any(is_number(length) for length in moved):
            yield from count_key.write(view)
            yield from share_key.write(view)
            return
        whole = view.get(f"{schedule}total_steps") or run_ticks(view, schedule)
        if whole is None:
            yield Inexpressible(
                used, "verl's ratio refers to different steps, and the number of steps of the run is unknown"
            )
            return
        count = Ticks(schedule).write(int(of * whole), view)
        yield Flow(
            view.path(steps),
            count or -1,
            used,
            "derived",
            said("{of:g} of {whole} steps", of=of, whole=whole),
            always=bool(count),
        )
        yield Flow(view.path(share), 0.0, used, "derived", "lr_warmup_steps decides")

    return CustomRule(
        f"warm-up of {prefix}",
        (*count_key.keys, *share_key.keys),
        (own, part),
        read,
        write,
        "steps, or a ratio of the run's steps (with Megatron, of lr_decay_steps)",
        by_key={steps: own, share: part},
        why="Either the steps or the share decides, and each engine takes the share of another length.",
    )


class _Count(Ticks):
    """The same, of a key whose -1 stands for none."""

    def read(self, value: Any, view: Reading) -> Any:
        return super().read(Off().read(value, view), view)

    def write(self, value: Any, view: Writing) -> Any:
        return -1 if value is None else super().write(value, view)


def _read_count(view: Reading, steps: str, role: Role) -> Any:
    """Steps of warm-up, where they decide."""
    count = view.get(steps)
    if count == 0 and view.written(steps) and is_old_fsdp(view, role.kind(view) in FSDP_KINDS):
        return 0
    return None if isinstance(count, Absent) else Ticks("").read(Off().read(count, view), view)


def _counted(view: Reading) -> tuple[Provenance, str]:
    """How a number of steps comes about, and why."""
    each = steps_of_update(view)
    if each is None:
        return "mapped", ""
    return "derived", said("verl's schedule counts update_actor calls, each of {each} optimizer steps", each=each)


def run_ticks(view: Writing, schedule: str) -> int | None:
    """Ticks of the run; None while unknown."""
    steps = arithmetic.total_steps(view.config, rows(view.options))
    return None if steps is None else steps * _ticks_of_step(view, schedule)
