"""Trinity: batches, steps and synchronisation, counted in optimizer steps; a canonical step is one synchronisation.

B tasks an explore step, n responses a task, T responses a train step, s steps between synchronisations: P = B x s prompts a step,
M = T responses a mini-batch, and intervals of trainer steps are k = P x n / M times those in steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from rlctl.adapters.engine.combined_rows import OneOf
from rlctl.adapters.engine.conditions import every, negated
from rlctl.adapters.engine.one_sided_rows import ReadOnly, WriteOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    BadValueError,
    Calculation,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    VersionedDefault,
    Writing,
)
from rlctl.adapters.engine.values import Names, Partly, rows
from rlctl.common.messages.reasons import said
from rlctl.config.fields import Interval
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic
from rlctl.planning.rollout_schedule import limits_staleness

NEVER = 1_000_000
"""Trinity has no value for never; an interval beyond any run stands for it."""
SUPERVISED = {"sft": "sft", "cpt": "sft", "dpo": "dpo"}
"""Types that train on a data set instead of rollouts, with their objective."""


def supervised(view: Reading) -> bool:
    """Whether the file trains on a data set instead of rollouts."""
    return view.get("algorithm.algorithm_type") in SUPERVISED


def sizes(view: Reading) -> tuple[int, int, int, int]:
    """B, n, T and s in effect; 1 where they are no numbers."""
    own = "synchronizer.explorer_sync_interval"
    batch, group = _whole(view, "buffer.batch_size"), _whole(view, "algorithm.repeat_times")
    interval = _whole(view, own if view.version >= (0, 6) and view.get(own) else "synchronizer.sync_interval")
    train = view.get("buffer.train_batch_size")
    return batch, group, train if isinstance(train, int) and train > 0 else batch * group, interval


def _whole(view: Reading, key: str) -> int:
    value = view.get(key)
    if value is not None and not isinstance(value, int):
        raise BadValueError(said("is {value!r}; expected an integer", value=value), key=view.path(key))
    return value if value is not None and value > 0 else 1


def train_steps_per_step(view: Reading) -> float:
    """k: trainer steps in one canonical step."""
    if supervised(view):
        return 1
    batch, group, train, interval = sizes(view)
    return batch * interval * group / drawn_responses(view, train)


def drawn_responses(view: Reading, train: int) -> int:
    """Responses of a train batch that were rolled out; the others of mix are experts'."""
    if not str(view.get("algorithm.algorithm_type")).startswith("mix"):
        return train
    return train - expert_responses(train, view.get("algorithm.sample_strategy_args.expert_data_ratio", 0.5))


def expert_responses(train: int, share: float) -> int:
    """Responses of a train batch that come from the experts of mix."""
    return min(math.ceil(share * train), train - 1)


def _read_batch(view: Reading) -> Iterator[Flow]:
    batch, group, train, interval = sizes(view)
    keys = [view.path(key) for key in ("buffer.batch_size", "synchronizer.sync_interval")]
    if supervised(view):
        yield Flow(
            view.to("batch.prompts_per_step"),
            train,
            (view.path("buffer.train_batch_size"), keys[0]),
            same=train == view.get("buffer.train_batch_size"),
        )
        yield Flow(view.to("batch.responses_per_prompt"), 1, (view.path("algorithm.repeat_times"),))
        yield Flow((), None, (keys[1],), "dead", "for sft and dpo, Trinity uses trainer.save_interval instead")
        return
    prompts = batch * interval
    how: Provenance = "derived" if interval > 1 else "mapped"
    note = (
        said(
            "{batch} tasks x {interval} steps between weight syncs = {prompts} prompts",
            batch=batch,
            interval=interval,
            prompts=prompts,
        )
        if interval > 1
        else ""
    )
    yield Flow(
        view.to("batch.prompts_per_step"),
        prompts,
        (*keys,) if view.written("buffer.batch_size") else (keys[1],),
        how,
        note,
    )
    yield Flow(view.to("batch.responses_per_prompt"), group, (view.path("algorithm.repeat_times"),), same=True)
    if drawn_responses(view, train) != batch * group:
        yield Flow(KEPT, interval, (keys[1],), "derived", TRAIN_BATCH_DIFFERS)
    written = view.written("buffer.train_batch_size") and view.get("buffer.train_batch_size")
    yield Flow(
        view.to("batch.mini_batch_responses"),
        train,
        (view.path("buffer.train_batch_size"),),
        "mapped" if written else "derived",
        "" if written else said("{batch} tasks x {group} responses", batch=batch, group=group),
    )


KEPT = ("extensions", "trinity", "synchronizer.sync_interval")
"""Where a train batch is not one explore step's responses, the interval does not follow from the batch sizes."""


def geometry(view: Writing) -> tuple[int, int, int, str]:
    """B, T and s to write, and what differs where they do not divide."""
    config = view.config
    group, prompts = config.batch.responses_per_prompt, config.batch.prompts_per_step
    mini = arithmetic.mini_batch_responses(config)
    kept = config.carried_for("trinity").get("synchronizer.sync_interval")
    if isinstance(kept, int) and kept > 0 and prompts % kept == 0:
        return prompts // kept, mini, kept, ""
    drawn = mini
    if config.algorithm.objective.choice == "mix":
        drawn -= expert_responses(mini, view.get("algorithm.objective.expert_share"))
    tasks, rest = divmod(drawn, group)
    problem = ""
    if rest or not tasks:
        near = arithmetic.nearest_multiples(drawn, group)
        problem = said(
            "a mini-batch of {drawn} responses is not a whole number of groups of {group} ({drawn} / {group} = "
            "{value:g}); use {near} responses",
            drawn=drawn,
            group=group,
            value=drawn / group,
            near=near,
        )
        tasks = max(1, round(drawn / group))
    interval, left = divmod(prompts, tasks)
    if left or not interval:
        near = arithmetic.nearest_multiples(prompts, tasks)
        problem = problem or (
            said(
                "{prompts} prompts per step is not a whole number of mini-batches of {tasks} prompts ({prompts} / "
                "{tasks} = {value:g}); use {near} prompts",
                prompts=prompts,
                tasks=tasks,
                value=prompts / tasks,
                near=near,
            )
        )
        interval = max(1, -(-prompts // tasks))
    return tasks, mini - drawn + tasks * group, interval, problem


def _write_batch(view: Writing) -> Iterator[Out]:
    used = {
        name: view.to(f"batch.{name}") for name in ("prompts_per_step", "responses_per_prompt", "mini_batch_responses")
    }
    if view.config.algorithm.objective.choice in SUPERVISED:
        yield Flow(
            view.path("buffer.train_batch_size"),
            view.config.batch.prompts_per_step,
            (used["prompts_per_step"],),
            same=True,
            always=True,
        )
        return
    tasks, train, interval, problem = geometry(view)
    if problem:
        yield Inexpressible((used["prompts_per_step"], used["mini_batch_responses"]), problem)
    group = view.config.batch.responses_per_prompt
    prompts = view.config.batch.prompts_per_step
    how: Provenance = "mapped" if interval == 1 else "derived"
    note = (
        ""
        if interval == 1
        else said(
            "{train} responses of a mini-batch / {group} per prompt = {tasks} tasks",
            train=train,
            group=group,
            tasks=tasks,
        )
    )
    yield Flow(
        view.path("buffer.batch_size"),
        tasks,
        (used["prompts_per_step"], used["mini_batch_responses"]),
        how,
        note,
    )
    yield Flow(view.path("algorithm.repeat_times"), group, (used["responses_per_prompt"],), same=True)
    note = said("responses of a train step: {tasks} tasks x {group}", tasks=tasks, group=group)
    usual = train == tasks * group and not view.explicit("batch.mini_batch_responses")
    key = () if usual else view.path("buffer.train_batch_size")
    yield Flow(key, train, (used["mini_batch_responses"],), "mapped", note, always=True)
    every = view.config.weight_sync.every
    yield Flow(
        view.path("synchronizer.sync_interval"),
        interval * every,
        (used["prompts_per_step"], view.to("weight_sync.every")),
        "derived" if interval * every > 1 else "mapped",
        said(
            "{prompts} prompts / {tasks} tasks = {interval} train steps per weight sync",
            prompts=prompts,
            tasks=tasks,
            interval=interval,
        )
        + (f", x {every}" if every > 1 else ""),
    )


def factor(view: Writing, *, explore: bool = False) -> int | Fraction:
    """k for writing: trainer steps, or explore steps, in one canonical step."""
    if view.config.algorithm.objective.choice in SUPERVISED:
        return 1
    tasks, train, interval, _ = geometry(view)
    if explore:
        return interval
    if view.config.algorithm.objective.choice == "mix":
        train -= expert_responses(train, view.get("algorithm.objective.expert_share"))
    each = Fraction(tasks * interval * view.config.batch.responses_per_prompt, train)
    return int(each) if each.denominator == 1 else each


TRAIN_BATCH_DIFFERS = (
    "rlctl keeps this interval, because buffer.train_batch_size is not the responses of one explore step"
)
NO_ROWS = "an interval in epochs needs the number of training rows: state dataset_rows"


class SaveInterval(Calculation):
    """Trainer steps between checkpoints; 0 is none, and a number beyond any run too."""

    def read(self, value: Any, view: Reading) -> Any:
        if not isinstance(value, int) or value <= 0 or value >= NEVER:
            return Computed(None, how="mapped")
        each = train_steps_per_step(view)
        steps = value / each
        if steps != int(steps):
            note = said(
                "{value} trainer steps / {each:g} per step = {steps:g} steps", value=value, each=each, steps=steps
            )
            epochs = _whole(view, "trainer.trainer_config.actor_rollout_ref.actor.ppo_epochs")
            return Computed({"optimizer_steps": value * epochs}, note)
        return int(steps) if each == 1 else Computed(int(steps), _in_steps(value, each, int(steps)))

    def write(self, value: Any, view: Writing) -> Any:
        steps = steps_of(view, value)
        if steps is not None:
            return _scaled(value, steps, factor(view))
        if isinstance(value, Mapping):
            raise InexpressibleError(NO_ROWS)
        if view.config.algorithm.objective.choice not in SUPERVISED:
            return 0
        total = arithmetic.total_steps(view.config, rows(view.options)) or NEVER
        note = "in SFT and DPO, Trinity also uses save_interval as sync_interval and refuses 0; Trinity always saves at the end"
        return Computed(total, note, lost=note, idle=True, always=True)


def _in_steps(value: int, each: float, steps: int) -> str:
    if each < 1:
        return said(
            "{value} trainer steps x {each:g} steps each = {steps} steps", value=value, each=1 / each, steps=steps
        )
    return said("{value} trainer steps / {each:g} per step = {steps} steps", value=value, each=each, steps=steps)


class EvaluationInterval(Calculation):
    """Explore steps between evaluations, which happen at synchronisations only."""

    def read(self, value: Any, view: Reading) -> Any:
        if not isinstance(value, int) or value <= 0 or value >= NEVER:
            return Computed(None, how="mapped")
        each = sizes(view)[3] if not supervised(view) else train_steps_per_step(view)
        steps = max(1, value // int(each))
        if each <= 1:
            return Computed(steps, how="mapped", same=each == 1)
        note = said(
            "{value} explore steps / {each} per step, rounded down to whole weight syncs as in Trinity",
            value=value,
            each=each,
        )
        return Computed(steps, note)

    def write(self, value: Any, view: Writing) -> Any:
        if view.config.algorithm.objective.choice in SUPERVISED:
            if value is not None:
                raise InexpressibleError("Trinity does not evaluate while it trains with sft or dpo")
            return Computed(ABSENT, "Trinity does not evaluate in sft and dpo", "mapped")
        steps = steps_of(view, value, explore=True)
        if steps is not None:
            return _scaled(value, steps, factor(view, explore=True))
        if isinstance(value, Mapping):
            raise InexpressibleError(NO_ROWS)
        if view.config.data.eval:
            return Computed(NEVER, "Trinity has no value for never")
        return Computed(ABSENT, "without evaluation datasets Trinity does not evaluate", "mapped")


def steps_of(view: Writing, value: Any, *, explore: bool = False) -> Fraction | None:
    """An interval in trainer steps, or in explore steps, not rounded; None where it never happens."""
    if value is None:
        return None
    if isinstance(value, Mapping) and value.get("optimizer_steps") is not None:
        return Fraction(int(value["optimizer_steps"]), view.config.batch.ppo_epochs)
    interval = Interval(steps=value) if isinstance(value, int) else Interval(**value)
    steps = arithmetic.interval_in_steps(interval, view.config, rows(view.options))
    return None if steps is None else Fraction(steps) * Fraction(factor(view, explore=explore))


def _scaled(plain: Any, exact: Fraction, each: int | Fraction) -> Computed:
    """A number of canonical steps in those of Trinity, each of which is ``each`` of them."""
    value = whole_steps(exact)
    note = said("{plain} steps x {each} per step", plain=plain, each=each) if each != 1 else ""
    how: Provenance = "derived" if each != 1 else "mapped"
    return Computed(value, note, how, lost=_rounding(exact, value), rounded=True, same=plain == value)


def whole_steps(exact: Fraction) -> int:
    """The nearest number of steps, at least 1."""
    return max(1, math.floor(exact + Fraction(1, 2)))


def _rounding(exact: Fraction, value: int, more: str = "") -> str:
    """That a number of steps is none in Trinity; empty where it is."""
    if exact == value:
        return ""
    return said(
        "Trinity counts whole steps, so {exact:g} became {value}{more}", exact=float(exact), value=value, more=more
    )


def rounded(exact: Fraction, value: int, used: tuple[KeyPath, ...], more: str = "") -> Iterator[Inexpressible]:
    """The same, as what becomes of canonical keys."""
    if lost := _rounding(exact, value, more):
        yield Inexpressible(used, lost, rounded=True)


# How long a run is


def _read_total(view: Reading) -> Iterator[Flow]:
    buffer, trainer = view.get("buffer.total_steps"), view.get("trainer.total_steps")
    epochs = view.get("buffer.total_epochs")
    used = (view.path("buffer.total_epochs"),)
    if isinstance(buffer, int):
        yield Flow(view.to("schedule.total_epochs"), None, ())
        yield Flow((), None, used, "dead", "buffer.total_steps decides")
    else:
        note = _cut_steps(view, epochs)
        yield Flow(view.to("schedule.total_epochs"), epochs, used, "derived" if note else "mapped", note, same=True)
    batch, group, train, interval = sizes(view)
    each = train_steps_per_step(view)
    found: list[tuple[str, int, float]] = []
    if isinstance(buffer, int):
        found.append(("buffer.total_steps", buffer, 1 if supervised(view) else interval))
    if isinstance(trainer, int):
        found.append(("trainer.total_steps", trainer, each))
    whole = [(key, int(value / per)) for key, value, per in found if value % per == 0]
    keys = tuple(view.path(key) for key, _, _ in found)
    if len(whole) == len(found):
        steps = min((value for _, value in whole), default=None)
        how: Provenance = "derived" if any(per != 1 for _, _, per in found) else "mapped"
        note = "; ".join(f"{value} / {per:g}" for _, value, per in found) if how == "derived" else ""
        yield Flow(
            view.to("schedule.total_steps"),
            steps,
            keys or (view.path("buffer.total_steps"), view.path("trainer.total_steps")),
            how,
            note,
            same=how == "mapped",
        )
        yield Flow(view.to("schedule.total_optimizer_steps"), None, ())
        return
    repeat = _whole(view, "trainer.trainer_config.actor_rollout_ref.actor.ppo_epochs")
    counts = [
        value if key == "trainer.total_steps" else max(1, value * batch * group // train) for key, value, _ in found
    ]
    yield Flow(
        view.to("schedule.total_optimizer_steps"),
        min(counts) * repeat,
        keys,
        "derived",
        said(
            "{exact:g} is not a whole number of steps; counted in optimizer steps",
            exact=min(value / per for _, value, per in found),
        ),
    )


def _cut_steps(view: Reading, epochs: Any) -> str:
    """How many steps are cut because explore steps do not fill the last one, if the data's length is known."""
    batch, _, _, interval = sizes(view)
    count = rows(view.options)
    if count is None or supervised(view) or not isinstance(epochs, int) or not batch:
        return ""
    exact = Fraction(epochs * count // batch, interval)
    if exact.denominator == 1:
        return ""
    return said(
        "{value} explore steps are {exact:g} steps of {interval}, counted as {exact2}",
        value=epochs * count // batch,
        exact=float(exact),
        interval=interval,
        exact2=int(exact),
    )


def _write_total(view: Writing) -> Iterator[Out]:
    schedule, each = view.config.schedule, factor(view)
    steps = schedule.total_steps
    used: tuple[KeyPath, ...] = (view.to("schedule.total_steps"),)
    trainer = None if steps is None else whole_steps(Fraction(steps) * Fraction(each))
    note = said("{steps} steps x {each}", steps=steps, each=each) if steps is not None and each != 1 else ""
    if schedule.total_optimizer_steps is not None:
        limit = -(-schedule.total_optimizer_steps // view.config.batch.ppo_epochs)
        used = (*used, view.to("schedule.total_optimizer_steps"))
        if trainer is None or limit < trainer:
            trainer, note = (
                limit,
                said("{total_optimizer_steps} optimizer steps", total_optimizer_steps=schedule.total_optimizer_steps),
            )
    epochs = (view.to("schedule.total_epochs"),)
    if trainer is None and (whole := _whole_epochs(view)) is not None:
        dropped = said(
            "{total_epochs} epochs have {whole} whole steps (Trinity would carry the rest of an epoch into the next one)",
            total_epochs=schedule.total_epochs,
            whole=whole,
        )
        explore, train = round(whole * factor(view, explore=True)), max(1, round(whole * each))
        yield Flow(view.path("buffer.total_steps"), explore, epochs, "derived", dropped, always=True)
        yield Flow(view.path("trainer.total_steps"), train, epochs, "derived", dropped, always=True)
        yield Flow((), None, used)
        return
    if trainer is None:
        yield (
            Flow(view.path("buffer.total_epochs"), schedule.total_epochs, epochs, same=True)
            if schedule.total_epochs
            else Flow((), None, epochs)
        )
        yield Flow((), None, used)
        return
    if schedule.total_optimizer_steps is None and steps is not None:
        more = said(
            "; the run has {value:g} steps instead of {steps}", value=float(trainer / Fraction(each)), steps=steps
        )
        yield from rounded(Fraction(steps) * Fraction(each), trainer, used, more)
    elif schedule.total_optimizer_steps is not None and trainer == limit:
        yield from rounded(Fraction(schedule.total_optimizer_steps, view.config.batch.ppo_epochs), trainer, used[-1:])
    how: Provenance = "derived" if each != 1 or schedule.total_optimizer_steps is not None else "mapped"
    if schedule.total_epochs is not None and view.config.algorithm.preset is not None:
        yield Flow(view.path("buffer.total_epochs"), schedule.total_epochs, epochs, same=True, always=True)
    else:
        if schedule.total_epochs is not None:
            trainer, choice = _first_end(view, trainer)
            yield choice
        explore = round(trainer * factor(view, explore=True) / each)
        yield Flow(view.path("buffer.total_steps"), explore, used, how, note, same=explore == steps, always=True)
    yield Flow(view.path("trainer.total_steps"), trainer, used, how, note, same=trainer == steps, always=True)


def trainer_steps(view: Writing) -> int | None:
    """``trainer.total_steps`` as it is written; None if the data alone ends the run."""
    place = view.path("trainer.total_steps")
    return next((out.value for out in _write_total(view) if isinstance(out, Flow) and out.to == place), None)


def _whole_epochs(view: Writing) -> int | None:
    """Steps of the epochs, where the data's length is known and dropping the rest of each makes them fewer."""
    schedule, count = view.config.schedule, rows(view.options)
    if schedule.total_epochs is None or count is None or view.config.data.last_batch != "drop":
        return None
    steps, each = arithmetic.total_steps(view.config, count), factor(view, explore=True)
    carried = schedule.total_epochs * count * each // view.config.batch.prompts_per_step
    return None if steps is None or steps * each == carried else steps


def _first_end(view: Writing, trainer: int) -> tuple[int, Flow]:
    """Trinity's steps override its epochs: which of them comes first depends on the data's length."""
    schedule, prompts = view.config.schedule, view.config.batch.prompts_per_step
    epochs, count, used = schedule.total_epochs or 1, rows(view.options), (view.to("schedule.total_epochs"),)
    steps = -(-trainer // factor(view))
    if count is None:
        needed = -(-steps // epochs) * prompts
        note = said(
            "Trinity's steps override its epochs; with {needed} rows or more, the run ends after {steps} steps",
            steps=steps,
            needed=needed,
        )
        explicit = view.explicit("schedule.total_epochs")
        return trainer, Flow((), None, used, "derived" if explicit else "mapped", note)
    limit = arithmetic.total_steps(view.config, count) or steps
    note = said(
        "{count} rows: {epochs} epochs are {value} steps", count=count, epochs=epochs, value=count // prompts * epochs
    )
    return min(trainer, round(limit * factor(view))), Flow((), None, used, "derived", note)


class CountedFromOne(Calculation):
    """Trainer steps of which the first is number 1, so that one more is written; 0 means none."""

    def read(self, value: Any, view: Reading) -> Any:
        if not isinstance(value, int):
            return ABSENT
        if not value:
            return Computed(0, how="mapped")
        each = train_steps_per_step(view)
        note = said(
            "({value} - 1) / {each:g} = {value2:g}, counted from 1, rounded up",
            value=value,
            each=each,
            value2=(value - 1) / each,
        )
        return Computed(max(0, -int(-(value - 1) // each)), note)

    def write(self, value: Any, view: Writing) -> Any:
        if not value:
            return Computed(0, how="mapped")
        each = factor(view)
        exact = Fraction(value) * Fraction(each)
        whole = whole_steps(exact)
        note = said("{steps} steps x {each} + 1, counted from 1", steps=value, each=each)
        return Computed(whole + 1, note, lost=_rounding(exact, whole))


def _critic_warmup(view: Reading | Writing) -> str:
    """The key of the critic's warm-up in a release."""
    return CRITIC_WARMUP if view.version >= (0, 6) else OLD_CRITIC_WARMUP


CRITIC_WARMUP, OLD_CRITIC_WARMUP = "trainer.critic_warmup", "trainer.trainer_config.trainer.critic_warmup"


# Synchronisation


class Ahead(Calculation):
    """Explore steps that rollout runs ahead; a canonical step has several."""

    def read(self, value: Any, view: Reading) -> Any:
        if not isinstance(value, int):
            return ABSENT
        interval = sizes(view)[3]
        if interval <= 1 or not value:
            return Computed(value / interval, how="mapped")
        return Computed(
            value / interval, said("{offset} explore steps / {interval} per step", offset=value, interval=interval)
        )

    def write(self, value: Any, view: Writing) -> Any:
        each = factor(view, explore=True)
        offset, lost = value * each, ""
        if offset != int(offset):
            lost = said(
                "rollout runs {ahead:g} steps ahead, which are {offset:g} explore steps; Trinity takes {offset2} or "
                "{value}",
                ahead=value,
                offset=offset,
                offset2=int(offset),
                value=int(offset) + 1,
            )
        return Computed(round(offset), how="derived" if each != 1 and value else "mapped", lost=lost)


EXPLORER_SYNC, TRAINER_SYNC = (f"synchronizer.{name}_sync_interval" for name in ("explorer", "trainer"))


OWN_SYNC = "Trinity has no such limit; sync_interval, sync_offset and sync_style decide when weights are synced"
NOT_IN_FLIGHT = "Trinity's explorer finishes its steps before it syncs weights"


STALENESS = ("weight_sync.max_staleness_steps", "weight_sync.on_stale")
NOT_REACHED = "rollout never gets this many steps ahead"


def _limits(view: Writing) -> bool:
    """Whether rollout, which ``sync_offset`` holds back, would reach the bound."""
    return limits_staleness(view.config)


def _bounds(view: Writing) -> bool:
    """Whether there is a bound that rollout never reaches."""
    return not _limits(view) and bool(view.get(STALENESS[0]))


NO_LIMIT_SECONDS = 7 * 24 * 3600
"""What stands for no limit where Trinity has none such."""


class WholeSeconds(Calculation):
    """A time that Trinity counts in whole seconds: parts of one are rounded up, and none at all is a long one."""

    def read(self, value: Any, view: Reading) -> Any:
        return value

    def write(self, value: Any, view: Writing) -> Any:
        if value is None:
            return Computed(NO_LIMIT_SECONDS, "Trinity always has a time limit. Wrote a week for no limit")
        whole = math.ceil(value)
        if whole == value:
            return whole
        lost = said("Trinity counts whole seconds: {value:g} became {ceil}", value=value, ceil=whole)
        return Computed(whole, how="mapped", lost=lost)


class Style(Partly):
    """Which side decides when to sync, in small letters or capitals; 0.4 has other names, which later releases read too."""

    def read(self, value: Any, view: Reading) -> Any:
        return super().read(str(value).lower(), view)

    def write(self, value: Any, view: Writing) -> Any:
        if value == "fully_async" and view.version < (0, 6):
            raise InexpressibleError("Trinity is fully asynchronous since 0.6; fixed is its default")
        return super().write(value, view) if view.version < (0, 5) else value


STYLES = Style({"dynamic_by_trainer": "trainer_driven", "dynamic_by_explorer": "explorer_driven"})


class Method(Names):
    """Trinity has three ways; the others are its own choice."""

    def read(self, value: Any, view: Reading) -> Any:
        name = str(value).lower()
        return self.names.get(name, name)

    def write(self, value: Any, view: Writing) -> Any:
        if value in ("nccl", "checkpoint", "memory"):
            return value
        if value != "auto":
            raise InexpressibleError(
                said("Trinity has no {value} between its explorer and trainer; its default is nccl", value=value)
            )
        return ABSENT


RULES: list[Rule] = [
    CustomRule(
        "batch",
        (
            DialectKey("buffer.batch_size"),
            DialectKey("algorithm.repeat_times"),
            DialectKey("buffer.train_batch_size"),
            DialectKey("synchronizer.sync_interval"),
        ),
        ("batch.prompts_per_step", "batch.responses_per_prompt", "batch.mini_batch_responses", "weight_sync.every"),
        _read_batch,
        _write_batch,
        "prompts per step = batch_size x sync_interval; mini-batch = train_batch_size; responses per prompt = repeat_times",
        by_key={
            "buffer.batch_size": "batch.prompts_per_step",
            "algorithm.repeat_times": "batch.responses_per_prompt",
            "buffer.train_batch_size": ("batch.mini_batch_responses", "batch.prompts_per_step"),
            "synchronizer.sync_interval": ("weight_sync.every", "batch.prompts_per_step"),
        },
        why="Four sizes of Trinity's are four others here, and each of them is a product or a quotient of several.",
    ),
    # 0.5.2 trainer/verl/verl_config.py, Actor; 0.6.0 trainer/verl/config.py, _build_actor_config
    Key("trainer.trainer_config.actor_rollout_ref.actor.ppo_epochs", "batch.ppo_epochs", 1),
    # 0.5.2 trainer/verl/verl_config.py, Actor; 0.6.0 trainer/verl/config.py, _build_actor_config
    Key("trainer.trainer_config.actor_rollout_ref.actor.shuffle", "batch.shuffle", False),
    # 0.5.2 trainer/verl/verl_config.py, Actor; 0.6.0 trainer/verl/config.py, _build_actor_config
    Key(
        "trainer.trainer_config.actor_rollout_ref.actor.data_loader_seed",
        "batch.shuffle_seed",
        VersionedDefault({"0.4": None, "0.6": 42}),
    ),
    Key(
        "trainer.balance_batch",
        "batch.balance",
        # 0.5.2 trainer/verl/verl_config.py, Trainer
        also=(DialectKey("trainer.trainer_config.trainer.balance_batch", True),),
    ),
    Dropped("batch.round_tokens_to", "Trinity pads as its engines need it"),
    Key("trainer.save_interval", "checkpoint.every", convert=SaveInterval(), formula="steps x k"),
    Dropped("checkpoint.at_end", "Trinity always saves at the end", True, matters=False),
    Key("explorer.eval_interval", "schedule.evaluate_every", convert=EvaluationInterval(), formula="steps x k"),
    Key("explorer.eval_on_startup", "schedule.evaluate_at_start"),
    Dropped("schedule.evaluate_at_end", "Trinity always evaluates at the end"),
    CustomRule(
        "length of the run",
        (
            DialectKey("buffer.total_epochs"),
            DialectKey("buffer.total_steps", takes=float),
            DialectKey("trainer.total_steps", takes=float),
        ),
        ("schedule.total_epochs", "schedule.total_steps", "schedule.total_optimizer_steps"),
        _read_total,
        _write_total,
        "total_steps x k",
        by_key={
            "buffer.total_epochs": "schedule.total_epochs",
            "buffer.total_steps": ("schedule.total_optimizer_steps", "schedule.total_steps"),
            "trainer.total_steps": ("schedule.total_optimizer_steps", "schedule.total_steps"),
        },
        why="Three limits are three others here: which one ends the run depends on how long the data is.",
    ),
    OneOf(
        # 0.5.2 trainer/verl/verl_config.py, Trainer
        (DialectKey(CRITIC_WARMUP), DialectKey(OLD_CRITIC_WARMUP, 0)),
        "schedule.critic_warmup_steps",
        reads=_critic_warmup,
        writes=_critic_warmup,
        convert=CountedFromOne(),
        formula="steps x k + 1",
    ),
    Key("synchronizer.sync_offset", "weight_sync.max_steps_ahead", convert=Ahead(), formula="steps x k"),
    ReadOnly(
        EXPLORER_SYNC,
        "steps between synchronisations",
        when=lambda view: view.get(EXPLORER_SYNC) == sizes(view)[3],
    ),
    ReadOnly(
        TRAINER_SYNC,
        "the same in trainer steps",
        when=lambda view: view.get(TRAINER_SYNC) == train_steps_per_step(view),
    ),
    Key("synchronizer.sync_method", "weight_sync.method", ABSENT, Method({"online": "nccl", "offline": "checkpoint"})),
    Key("synchronizer.sync_style", "weight_sync.style", convert=STYLES),
    Key("synchronizer.sync_timeout", "weight_sync.timeout", convert=WholeSeconds()),
    Key("explorer.rollout_model.weight_sync_buffer_size", "weight_sync.bucket_mib", quiet=True),
    WriteOnly(
        STALENESS[0], _limits, lost=OWN_SYNC, others=STALENESS[1:], fills=True, formula="follows from sync_offset"
    ),
    WriteOnly(STALENESS[0], _bounds, lost=NOT_REACHED, idle=True, others=STALENESS[1:]),
    WriteOnly(
        STALENESS[0],
        every(negated(_limits), negated(_bounds)),
        NOT_REACHED,
        how="mapped",
        others=STALENESS[1:],
    ),
    Dropped("weight_sync.every_optimizer_steps", OWN_SYNC),
    Dropped("weight_sync.in_flight_requests", NOT_IN_FLIGHT),
    Dropped("weight_sync.args", "Trinity has no further settings for its weight sync"),
]
