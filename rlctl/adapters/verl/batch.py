"""verl: batch sizes and the length of a run. verl counts mini-batches in prompts and multiplies them by the group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rlctl.adapters.engine.one_sided_rows import FollowsFrom
from rlctl.adapters.engine.rules import (
    ABSENT,
    Calculation,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Same,
    When,
    Writing,
)
from rlctl.adapters.engine.values import interval, more_optimizer_steps, rows
from rlctl.adapters.engine.writing import ConfigWithOrigins
from rlctl.adapters.verl import asynchronous
from rlctl.adapters.verl.roles import ACTOR, REFERENCE, Role
from rlctl.adapters.verl.training_engine import micro
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, finding
from rlctl.config import Config
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic

A = "actor_rollout_ref.actor"
R = "actor_rollout_ref.rollout"


class Prompts(Calculation):
    """Prompts, each with as many responses as its group has; the canonical config counts the responses."""

    def read(self, value: Any, view: Reading) -> Any:
        group = view.get(f"{R}.n")
        if not isinstance(value, int) or not isinstance(group, int):
            return ABSENT
        responses = value * group
        note = said("{prompts} prompts x {group} responses = {value}", prompts=value, group=group, value=responses)
        return Computed(responses, note)

    def write(self, value: Any, view: Writing) -> Any:
        if value is None:
            return ABSENT
        group, lost = view.config.batch.responses_per_prompt, ""
        prompts, rest = divmod(value, group)
        if rest or not prompts:
            near = arithmetic.nearest_multiples(value, group)
            lost = said(
                "{mini} responses are not a whole number of prompts with {group} responses each; use {near}",
                mini=value,
                group=group,
                near=near,
            )
            prompts = max(1, round(value / group))
        note = said(
            "{mini} responses / {group} per prompt = {prompts} prompts", mini=value, group=group, prompts=prompts
        )
        return Computed(prompts, note, lost=lost)


class MiniBatch(Prompts):
    """The same of the policy's mini-batch, which is the whole step where the config does not say it."""

    def write(self, value: Any, view: Writing) -> Any:
        return super().write(arithmetic.mini_batch_responses(view.config), view)


MINI = ("batch", "mini_batch_responses")
N_GPUS = "trainer.n_gpus_per_node"


def within_a_step(given: ConfigWithOrigins) -> tuple[ConfigWithOrigins, str]:
    """The config of another framework with a mini-batch of at most a step, and why: verl refuses more."""
    mini, step = given.config.batch.mini_batch_responses, arithmetic.responses_per_step(given.config)
    source = given.sources.get(MINI)
    if mini is None or mini <= step or source is None or source.key == f"{A}.ppo_mini_batch_size":
        return given, ""
    reason = text("mini-batch-within-step", mini=mini, step=step)
    config = replace(given.config, batch=replace(given.config.batch, mini_batch_responses=None))
    return replace(given, config=config), reason


class CountedFromOne(Same):
    """Steps of which the first is number 1, so that one more is written; 0 means none."""

    def read(self, value: Any, view: Reading) -> Any:
        if not isinstance(value, int):
            return ABSENT
        steps = max(0, value - 1)
        note = said("counted from 1: {steps} means {value} critic-only steps", steps=value, value=steps)
        return Computed(steps, note) if value else Computed(0, how="mapped")

    def write(self, value: Any, view: Writing) -> Any:
        return Computed(value + 1) if value else Computed(0, how="mapped")


def _read_prompts(view: Reading) -> Iterator[Flow]:
    if asynchronous.is_fully(view):
        yield from asynchronous.read_prompts(view)
    else:
        yield from PROMPTS.read(view)


STEPS_FIRST = "an epoch has at least one step, so the steps come first"


def _read_total(view: Reading) -> Iterator[Flow]:
    if asynchronous.is_fully(view):
        yield from asynchronous.read_total(view)
    used = (view.path("trainer.total_training_steps"),)
    yield Flow(view.to("schedule.total_steps"), view.get("trainer.total_training_steps"), used, same=True)


def _steps(view: Writing) -> int | None:
    """Steps of the run, where verl has to be told them: it goes by steps, and drops the rest of an epoch."""
    schedule, count = view.config.schedule, rows(view.options)
    if schedule.total_epochs is not None and count is not None and _has_rest(view, count):
        return arithmetic.total_steps(view.config, count)
    if schedule.total_optimizer_steps is None:
        return schedule.total_steps
    limit = -(-schedule.total_optimizer_steps // arithmetic.optimizer_steps_per_step(view.config))
    return limit if schedule.total_steps is None else min(schedule.total_steps, limit)


def _has_rest(view: Writing, count: int) -> bool:
    """Whether the source goes on with the rest of an epoch, and there is one."""
    per_step = view.config.batch.prompts_per_step
    return view.config.data.last_batch == "carry" and per_step <= count and count % per_step != 0


def _write_total(view: Writing) -> Iterator[Out]:
    schedule, steps, count = view.config.schedule, _steps(view), rows(view.options)
    used: tuple[KeyPath, ...] = (view.to("schedule.total_steps"),)
    how: Provenance = "mapped"
    note = ""
    if schedule.total_optimizer_steps is not None:
        used = (*used, view.to("schedule.total_optimizer_steps"))
        each = arithmetic.optimizer_steps_per_step(view.config)
        how, note = (
            "derived",
            said(
                "{total_optimizer_steps} optimizer steps / {each} per step",
                total_optimizer_steps=schedule.total_optimizer_steps,
                each=each,
            ),
        )
    if steps != schedule.total_steps and schedule.total_epochs is not None and count is not None:
        used = (*used, view.to("schedule.total_epochs"))
        how, note = (
            "derived",
            said(
                "{total_epochs} x {count} rows / {prompts_per_step} per step",
                total_epochs=schedule.total_epochs,
                count=count,
                prompts_per_step=view.config.batch.prompts_per_step,
            ),
        )
    yield Flow(view.path("trainer.total_training_steps"), steps, used, how, note, same=how == "mapped")
    yield from more_optimizer_steps(view, steps)


def _write_epochs(view: Writing) -> Iterator[Out]:
    epochs, steps, count = view.config.schedule.total_epochs, _steps(view), rows(view.options)
    used = (view.to("schedule.total_epochs"),)
    if epochs is not None and count is not None and _has_rest(view, count) and steps is not None:
        needed = -(-steps // arithmetic.steps_per_epoch(view.config, count))
        note = said(
            "verl drops an epoch's incomplete last step, so {steps} steps need {needed}", steps=steps, needed=needed
        )
        yield Flow(view.path("trainer.total_epochs"), needed, used, "derived", note, always=True)
    elif epochs is not None and steps is not None and epochs >= steps:
        yield Flow(view.path("trainer.total_epochs"), epochs, used, "derived", STEPS_FIRST, always=True)
    elif epochs is not None:
        yield Flow(view.path("trainer.total_epochs"), epochs, used, same=True)
    elif steps is not None:
        note = said("verl stops at the first of steps and epochs; {steps_first}", steps_first=STEPS_FIRST)
        yield Flow(view.path("trainer.total_epochs"), steps, used, "derived", note, always=True)


def _read_epochs_or_none(view: Reading) -> Iterator[Flow]:
    """verl's PPO evaluates before its first epoch, so that a run of none only evaluates."""
    if view.get("trainer.total_epochs") == 0 and not asynchronous.is_fully(view):
        used = (view.path("trainer.total_epochs"),)
        yield Flow(view.to("run.mode"), "evaluate_only", used, "derived", "0 epochs: verl evaluates and ends")
    else:
        yield from _read_epochs(view)


def _read_epochs(view: Reading) -> Iterator[Flow]:
    key = asynchronous.EPOCHS if view.written(asynchronous.EPOCHS) else "trainer.total_epochs"
    epochs, steps, used = view.get(key), view.get("trainer.total_training_steps"), (view.path(key),)
    if isinstance(epochs, int) and isinstance(steps, int) and epochs >= steps:
        yield Flow(view.to("schedule.total_epochs"), None, used, "mapped", STEPS_FIRST)
    else:
        yield Flow(view.to("schedule.total_epochs"), epochs, used, same=True)


def total_rules(*, evaluates: bool = False) -> list[Rule]:
    """How long a run is; the same keys for PPO and SFT.

    Args:
        evaluates: whether a run of no epochs evaluates.
    """
    return [
        CustomRule(
            "total steps",
            (DialectKey("trainer.total_training_steps"), DialectKey(asynchronous.SAMPLES, ABSENT)),
            ("schedule.total_steps", "schedule.total_optimizer_steps"),
            _read_total,
            _write_total,
            by_key={
                "trainer.total_training_steps": ("schedule.total_steps", "schedule.total_optimizer_steps"),
                asynchronous.SAMPLES: "schedule.total_steps",
            },
            why="One number of steps is written for limits in steps, in optimizer steps and in epochs.",
        ),
        CustomRule(
            "total epochs",
            (DialectKey("trainer.total_epochs"), DialectKey(asynchronous.EPOCHS, ABSENT)),
            ("schedule.total_epochs", "run.mode") if evaluates else ("schedule.total_epochs",),
            _read_epochs_or_none if evaluates else _read_epochs,
            _write_epochs,
            by_key={
                "trainer.total_epochs": ("schedule.total_epochs", "run.mode") if evaluates else "schedule.total_epochs",
                asynchronous.EPOCHS: "schedule.total_epochs",
            },
            why="What is written depends on which of the steps and the epochs ends the run first.",
        ),
        FollowsFrom(
            "data.last_batch",
            reads=lambda view: "carry" if asynchronous.is_fully(view) else "drop",
            writes=lambda view: "drop",
            note="verl always does this",
            harmless=(
                (
                    lambda view: view.config.schedule.total_epochs is None,
                    "verl drops an epoch's incomplete last step; the run is limited by steps",
                ),
                (
                    lambda view: rows(view.options) is not None,
                    "verl drops an epoch's incomplete last step. Wrote the number of steps",
                ),
            ),
            reason=said(
                "verl drops an epoch's incomplete last step instead of carrying it into the next epoch: {hint}",
                hint="state dataset_rows, and rlctl writes the number of steps",
            ),
            formula="an epoch's incomplete last step is dropped",
        ),
    ]


def needs(config: Config) -> list[Finding]:
    """What verl makes of the devices: roles share them, and a mini-batch must divide by the replicas."""
    placement, mini = config.placement, arithmetic.mini_batch_responses(config)
    own = asynchronous.pools(config)
    nodes, width = own[0] if own else (placement.nodes, placement.devices_per_node)
    if placement.layout == "split" and not own:
        width = devices_that_divide(config)
    devices = nodes * width
    found = []
    trains = arithmetic.train_devices(config)
    if placement.layout == "split" and not own and trains != devices:
        found.append(finding("devices-shared", Level.WARNING, N_GPUS, devices=devices, trains=trains))
    each = arithmetic.devices_per_replica(config.train.engine)
    if placement.layout == "explicit" or devices % each or mini % (devices // each) == 0:
        return found
    fewer = next((each * n for n in range(devices // each - 1, 0, -1) if mini % n == 0), each)
    more = next((each * n for n in range(devices // each + 1, mini + 1) if mini % n == 0), None)
    return [
        *found,
        finding(
            "devices-uneven",
            Level.WARNING,
            N_GPUS,
            mini=mini,
            replicas=devices // each,
            fewer=fewer,
            more=more or "none",
        ),
    ]


def devices_that_divide(config: Config) -> int:
    """The most devices a node that verl takes for shared roles: replicas divide a mini-batch, engines divide the devices."""
    placement, mini = config.placement, arithmetic.mini_batch_responses(config)
    each, parallel = arithmetic.devices_per_replica(config.train.engine), config.rollout.parallel
    engine = parallel.tensor_parallel_size * parallel.pipeline_parallel_size * parallel.data_parallel_size
    counts = [(width, width * placement.nodes) for width in range(placement.devices_per_node, 0, -1)]
    fitting = (
        width for width, total in counts if total % each == 0 and total % engine == 0 and mini % (total // each) == 0
    )
    return next(fitting, placement.devices_per_node)


ACTOR_MICRO = micro(
    "batch.micro_batch",
    dynamic=f"{A}.use_dynamic_bsz",
    tokens=f"{A}.ppo_max_token_len_per_gpu",
    responses=f"{A}.ppo_micro_batch_size_per_gpu",
    total=f"{A}.ppo_micro_batch_size",
)
FOLLOWS_ACTOR = {"dynamic": f"{A}.use_dynamic_bsz", "tokens": f"{A}.ppo_max_token_len_per_gpu"}


def log_prob_micro(prefix: str, to: str, role: Role, passes: Callable[[Writing], bool]) -> CustomRule:
    """The micro-batch of a log-prob pass, which follows the actor's where nothing is written."""
    return micro(
        to,
        dynamic=f"{prefix}.log_prob_use_dynamic_bsz",
        tokens=f"{prefix}.log_prob_max_token_len_per_gpu",
        responses=f"{prefix}.log_prob_micro_batch_size_per_gpu",
        total=f"{prefix}.log_prob_micro_batch_size",
        like=FOLLOWS_ACTOR,
        role=role,
        passes=passes,
    )


PROMPTS = Key("data.train_batch_size", "batch.prompts_per_step", always=True)
RULES: list[Rule] = [
    *asynchronous.RULES,
    CustomRule(
        "prompts",
        (*PROMPTS.keys, *asynchronous.PROMPTS),
        PROMPTS.canonical,
        _read_prompts,
        PROMPTS.write,
        why="The fully asynchronous trainer has no batch: a step is the product of three other keys.",
    ),
    Key(f"{R}.n", "batch.responses_per_prompt", always=True),
    Key(
        f"{A}.ppo_mini_batch_size",
        "batch.mini_batch_responses",
        convert=MiniBatch(),
        always=True,
        formula="prompts x rollout.n = responses",
    ),
    Key(f"{A}.ppo_epochs", "batch.ppo_epochs"),
    ACTOR_MICRO,
    log_prob_micro(R, "batch.log_prob_micro_batch", ACTOR, lambda view: True),
    log_prob_micro(
        "actor_rollout_ref.ref",
        "reference.micro_batch",
        REFERENCE,
        lambda view: arithmetic.needs_reference(view.config),
    ),
    Key(f"{A}.shuffle", "batch.shuffle"),
    Key(f"{A}.data_loader_seed", "batch.shuffle_seed", ABSENT),
    Key("trainer.balance_batch", "batch.balance"),
    Dropped("batch.round_tokens_to", "verl pads as its engines need it"),
    *total_rules(evaluates=True),
    interval("trainer.test_freq", "schedule.evaluate_every"),
    Key("trainer.val_before_train", "schedule.evaluate_at_start"),
    Dropped("schedule.evaluate_at_end", "verl always evaluates after the last step if test_freq is set"),
    Key(
        "trainer.critic_warmup",
        "schedule.critic_warmup_steps",
        convert=CountedFromOne(),
        formula="critic_warmup - 1, counted from 1",
    ),
    When(
        (Key("data.gen_batch_size", "rollout.oversampling.generation_batch_prompts"),),
        lambda view: not asynchronous.is_fully(view),
        lambda view: True,
        "prompts are sampled one by one",
    ),
    Key("data.val_batch_size", "data.evaluation_batch_prompts"),
]
