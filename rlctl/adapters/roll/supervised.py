"""ROLL: rows, epochs and lengths of SFT, DPO and distillation, where a step is one optimizer step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.one_sided_rows import WriteOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    Calculation,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.engine.values import rows
from rlctl.adapters.roll.batch import (
    ACCUMULATE,
    EVALUATION,
    LOG_PROBS,
    PER_DEVICE,
    T,
    how_many,
    lengths,
    longest,
    mini,
    mini_rule,
    split,
)
from rlctl.adapters.roll.workers import data_parallel, ranks
from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.common.records import record
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic


def _read_rows(view: Reading) -> Iterator[Flow]:
    size, note, doubt = mini(view)
    used = (view.path(PER_DEVICE), view.path(ACCUMULATE))
    yield Flow(view.to("batch.prompts_per_step"), size, used, "derived", how_many(note, doubt))
    yield Flow(view.to("batch.responses_per_prompt"), 1, ())


def _write_rows(view: Writing) -> Iterator[Out]:
    batch = view.config.batch
    if batch.mini_batch_responses not in (None, batch.prompts_per_step):
        yield Inexpressible(
            (view.to("batch.mini_batch_responses"),), "ROLL makes one optimizer step per step in supervised training"
        )
    yield from split(view, batch.prompts_per_step, "batch.prompts_per_step")


def _sequence(view: Reading) -> Iterator[Flow]:
    _, whole = lengths(view)
    written = isinstance(view.get("sequence_length"), int)
    used = (view.path("sequence_length"),) if written else (view.path("response_length"), view.path("prompt_length"))
    yield Flow(view.to("data.max_sequence_tokens"), whole, used, "mapped" if written else "derived", same=written)


def _write_sequence(view: Writing) -> Iterator[Out]:
    length = view.get("data.max_sequence_tokens")
    used: tuple[KeyPath, ...] = (view.to("data.max_sequence_tokens"),)
    if length is None:
        length, used = longest(view), (view.to("data.max_prompt_tokens"), view.to("rollout.max_response_tokens"))
    yield Flow(view.path("sequence_length"), length, used, same=len(used) == 1, always=True)


@record
class Epochs(Calculation):
    """Whole epochs. ROLL has no null: SFT runs one epoch then, and DPO as many as its steps take."""

    endless: bool = False
    """Whether steps may end the run first."""

    def read(self, value: Any, view: Reading) -> Any:
        if value is None:
            return None if self.endless else 1
        if not is_number(value):
            return value
        return None if self.endless and value >= NO_END else int(value)

    def write(self, value: Any, view: Writing) -> Any:
        if value is not None:
            return value
        note = "ROLL's DPO stops at max_steps or after its epochs, whichever comes first; here the steps come first"
        return Computed(NO_END, note) if self.endless else ABSENT


def _epochs(convert: Epochs) -> Key:
    return Key(f"{T}.num_train_epochs", "schedule.total_epochs", convert=convert, always=True)


def _limited(limit: str) -> WriteOnly:
    """A limit in steps, which SFT does not have."""
    to = f"schedule.{limit}"
    return WriteOnly(
        to,
        lambda view: view.get(to) is not None,
        lost=lambda view: said(
            "ROLL's SFT counts only epochs: it stops after {epochs}, not after a number of steps",
            epochs=view.config.schedule.total_epochs or 1,
        ),
        fills=True,
    )


RULES: list[Rule] = [
    mini_rule(
        _read_rows, _write_rows, ("batch.prompts_per_step", "batch.responses_per_prompt", "batch.mini_batch_responses")
    ),
    CustomRule(
        "sequence length",
        (
            DialectKey("sequence_length", takes=float),
            DialectKey("prompt_length"),
            DialectKey("response_length", takes=float),
        ),
        ("data.max_sequence_tokens",),
        _sequence,
        _write_sequence,
        why="One key holds the whole sequence, or two its parts, and the config may hold the parts only.",
    ),
    *EVALUATION,
    LOG_PROBS,
    Dropped("batch.shuffle", "one optimizer step is a step", idle=True),
    Dropped("batch.**", "ROLL's supervised training makes one optimizer step per step"),
    Dropped("schedule.**", "supervised training does not use this key"),
    Dropped("data.max_prompt_tokens", "ROLL drops rows whose whole sequence is too long", idle=True),
    Dropped("model.max_context_tokens", "ROLL's limit is sequence_length", idle=True),
]
EPOCHS: list[Rule] = [_epochs(Epochs()), _limited("total_steps"), _limited("total_optimizer_steps")]


def _write_steps(view: Writing) -> Iterator[Out]:
    schedule = view.config.schedule
    used: tuple[Any, ...] = (view.to("schedule.total_steps"),)
    steps, same = schedule.total_steps, True
    if schedule.total_optimizer_steps is not None:
        used, same = (*used, view.to("schedule.total_optimizer_steps")), False
        steps = min(steps or schedule.total_optimizer_steps, schedule.total_optimizer_steps)
    if steps is None and (steps := arithmetic.total_steps(view.config, rows(view.options))) is not None:
        used, same = (view.to("schedule.total_epochs"),), False
    how: Provenance = "mapped" if same and steps is not None else "derived"
    note = "the epochs set the length" if steps is None else "" if same else "one optimizer step per step"
    yield Flow(view.path("max_steps"), steps or NO_END, used, how, note, same=how == "mapped", always=True)


def _read_steps(view: Reading) -> Iterator[Flow]:
    steps = view.get("max_steps")
    kept = steps if isinstance(steps, int) and 0 < steps < NO_END else None
    yield Flow(view.to("schedule.total_steps"), kept, (view.path("max_steps"),), same=kept == steps)


SCHEDULE = "train.lr_scheduler"
TOTAL_TICKS = f"{SCHEDULE}.total_steps"


def _shorter(steps: Any, count: int | None) -> int | None:
    """The length of the schedule of ROLL's DPO, which divides the steps by the ranks; None where it is that of the run."""
    whole = steps if isinstance(steps, int) and 0 < steps < NO_END else None
    return max(1, whole // count) if whole and count and count > 1 else None


def _read_length(view: Reading) -> Iterator[Flow]:
    steps, count = view.get("max_steps"), data_parallel(view)
    ticks = _shorter(steps, count)
    if ticks is not None and view.get(f"{T}.lr_scheduler_type") not in ("constant", "constant_with_warmup"):
        note = said("ROLL's DPO makes its schedule {steps} steps / {count} ranks long", steps=steps, count=count)
        yield Flow(view.to(TOTAL_TICKS), ticks, (view.path(f"{T}.lr_scheduler_type"),), "derived", note)


def _write_length(view: Writing) -> Iterator[Out]:
    steps, own = arithmetic.total_steps(view.config, rows(view.options)), view.get(TOTAL_TICKS)
    used = (view.to(f"{SCHEDULE}.type"), view.to(TOTAL_TICKS))
    try:
        ticks = _shorter(steps, ranks(view))
    except PlanError:
        return  # told with the batch
    moves = view.get(f"{SCHEDULE}.type") != "constant" or view.get(f"{SCHEDULE}.warmup_ratio")
    if moves and steps is None:
        reason = "ROLL's DPO counts its schedule in max_steps, which follows from the data: state dataset_rows"
        yield Inexpressible(used, reason)
    elif not moves or ticks == own:
        yield Flow((), None, (view.to(TOTAL_TICKS),), "mapped", "the length that ROLL's DPO gives it")
    else:
        shown = said("{ticks} of {steps} steps", ticks=ticks, steps=steps) if ticks else "the run"
        reason = said(
            "ROLL's DPO divides the steps of its schedule by the ranks, so the schedule ends after {shown}; a "
            "constant learning rate avoids this",
            shown=shown,
        )
        yield Inexpressible(used, reason)


NO_END = 1_000_000
BOTH: list[Rule] = [
    _epochs(Epochs(endless=True)),
    CustomRule(
        "steps",
        (DialectKey("max_steps"),),
        ("schedule.total_steps", "schedule.total_optimizer_steps"),
        _read_steps,
        _write_steps,
        "the first of steps and epochs",
        by_key={
            "max_steps": "schedule.total_steps",
        },
        why="One number of steps is written for limits in steps, in optimizer steps and in epochs.",
    ),
    CustomRule(
        "length of the schedule",
        (),
        (TOTAL_TICKS,),
        _read_length,
        _write_length,
        "max_steps / ranks",
        why="It follows from the steps and the ranks, and matters only to a schedule that moves.",
    ),
]
"""ROLL's DPO ends at the first of steps and epochs."""
