"""When new weights go to rollout, and how far rollout may be ahead of training: the arithmetic of section ``weight_sync``.

A weight version is the number of steps that the policy was trained for. The staleness of a response is a difference of
versions: the steps between the weights that its first token was sampled with and the weights that are trained on it. Prompts
are counted from the start of the stage.
"""

from __future__ import annotations

import math

from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config import Config
from rlctl.config.sections.execution import MemoryBuffer, WeightSync
from rlctl.planning import adapter_sync, arithmetic

UNBOUNDED = ("trainer_driven", "explorer_driven", "fully_async")
"""Styles in which rollout does not wait for training, only for room in the buffer."""


def sleep_level(config: Config) -> int:
    """How deep rollout engines sleep in a resolved config: weights that a sync overwrites first needn't be kept."""
    sync, memory = config.weight_sync, config.rollout.memory
    if memory.sleep_level is not None:
        return memory.sleep_level
    if adapter_sync.resolved_to_adapters(config):
        return 1
    every_step = sync.style == "fixed" and sync.every == 1 and sync.every_optimizer_steps is None
    return 2 if every_step and memory.quantization is None else 1


def _longest(config: Config) -> int:
    """Steps between two synchronisations at most."""
    optimizer_steps = config.weight_sync.every_optimizer_steps
    if optimizer_steps is None:
        return config.weight_sync.every
    return -(-optimizer_steps // arithmetic.optimizer_steps_per_step(config))


def most_behind(config: Config) -> int:
    """Steps that the weights of rollout are old at most, if nothing runs ahead."""
    return _longest(config) - 1


def limits_staleness(config: Config) -> bool:
    """Whether ``max_staleness_steps`` can change a run: responses of a fixed schedule may never get that old."""
    sync = config.weight_sync
    if sync.max_staleness_steps is None or config.run.mode == "evaluate_only":
        return False
    replays = config.run.mode != "full" or config.buffer.replay.enabled
    return replays or sync.style != "fixed" or sync.max_staleness_steps < staleness(config)


def passes_buffer(config: Config) -> bool:
    """Whether groups go through a buffer where they are drawn and trained on in turns."""
    section = config.buffer
    return not isinstance(section, MemoryBuffer) or section.replay.enabled or section.log_path is not None


def streams(config: Config) -> bool:
    """Whether responses are handled one by one as they finish; else a step's are drawn and scored together."""
    rollout, sync = config.rollout, config.weight_sync
    over = rollout.oversampling
    few = rollout.max_running_prompts is not None and rollout.max_running_prompts < config.batch.prompts_per_step
    late = rollout.timeouts.dynamic is not None or rollout.timeouts.response is not None
    return bool(
        sync.max_steps_ahead
        or sync.style != "fixed"
        or over.ratio
        or over.additional_prompts
        or over.additional_responses
        or config.reward_loop.overlap_with_rollout
        or few
        or late
    )


def in_background(config: Config) -> bool:
    """Whether rollout goes on while the policy is trained: where it has devices of its own. Else they take turns."""
    return streams(config) and config.placement.layout != "colocated"


def in_flight(sync: WeightSync) -> str:
    """What becomes of responses under way at new weights; where nobody waits for anybody, they go on."""
    return "continue" if sync.style == "fully_async" and sync.in_flight_requests == "wait" else sync.in_flight_requests


def in_order(config: Config) -> bool:
    """Whether groups are trained on in the order of their prompts; else in the order in which they finish."""
    over = config.rollout.oversampling
    first_come = bool(over.ratio or over.additional_prompts)
    return config.weight_sync.on_stale == "wait" or (in_flight(config.weight_sync) == "wait" and not first_come)


@record
class Horizon:
    """How many prompts may be begun."""

    groups: int
    """Groups to train on, since the start of the stage, that may be there or under way."""
    waiting: int | None
    """Of them, those that may not have been trained on yet; None is any number."""


@record
class SyncSchedule:
    """When a stage sends weights, and what may be begun and trained on between: all that a run asks while it goes on."""

    sync: WeightSync
    prompts_per_step: int
    optimizer_steps_per_step: int
    """Counts if ``every_optimizer_steps`` is set."""
    longest: int
    """Steps between two synchronisations at most."""
    capacity: int | None
    """Groups that may be under way or wait to be trained on, beside those of the step; None is any number."""
    strategy_limit: float
    """``max_staleness`` of Trinity-RFT's ``staleness_control``; infinite without it."""
    in_order: bool
    """Whether groups are trained on in the order of their prompts; else in the order in which they finish."""
    in_background: bool
    """Whether rollout goes on while the policy is trained; else they take turns."""

    @property
    def in_flight(self) -> str:
        """What becomes of responses under way at new weights."""
        return in_flight(self.sync)

    def due(self, step: int) -> bool:
        """Whether weights are sent after a step; who is driven by the explorer sends them when it has explored enough."""
        every, each = self.sync.every_optimizer_steps, self.optimizer_steps_per_step
        if every is None:
            return step % self.sync.every == 0
        return step * each // every > (step - 1) * each // every

    def next_due(self, step: int) -> int:
        """The first step after ``step`` that sends weights."""
        return next(later for later in range(step + 1, step + 2 + self.longest) if self.due(later))

    def last_due(self, step: int) -> int:
        """The last step up to ``step`` that sent weights; 0 is the start."""
        return next((before for before in range(step, 0, -1) if self.due(before)), 0)

    def oldest_version(self, version: int) -> int:
        """The oldest weights whose responses are trained on while the policy is of ``version``."""
        most, oldest = self.sync.max_staleness_steps, self.oldest_by_strategy(version)
        return oldest if most is None or self.sync.on_stale != "drop" else max(version - most, oldest)

    def oldest_by_strategy(self, version: int) -> int:
        """The same by Trinity-RFT's ``staleness_control``: for step t it is ``max(t - max_staleness - 1, 0)``, and before step t
        the policy is of version t - 1."""
        return 0 if math.isinf(self.strategy_limit) else max(math.ceil(version - self.strategy_limit), 0)

    def horizon(self, *, synced: int, total_steps: int, explored: int = 0) -> Horizon:
        """What may be begun with the weights of a step.

        Args:
            synced: the step whose weights rollout has.
            total_steps: of the stage.
            explored: groups that were there when it got them; counts where the explorer decides when to synchronise.
        """
        sync, prompts = self.sync, self.prompts_per_step
        most = total_steps * prompts
        if sync.style == "fixed":
            most = min(most, math.ceil((self.next_due(synced) + sync.max_steps_ahead) * prompts))
        elif sync.style == "explorer_driven":
            start = math.ceil(sync.max_steps_ahead * prompts) if synced == 0 else 0
            most = min(most, explored + start + self.longest * prompts)
        if sync.on_stale == "wait" and sync.max_staleness_steps is not None:
            most = min(most, (synced + sync.max_staleness_steps + 1) * prompts)
        return Horizon(most, self.capacity)


def sync_schedule(config: Config) -> SyncSchedule:
    """That of a stage."""
    algorithm, optimizer_steps = config.algorithm, config.weight_sync.every_optimizer_steps
    controlled = algorithm.sample_strategy == "staleness_control"
    return SyncSchedule(
        sync=config.weight_sync,
        prompts_per_step=config.batch.prompts_per_step,
        optimizer_steps_per_step=1 if optimizer_steps is None else arithmetic.optimizer_steps_per_step(config),
        longest=_longest(config),
        capacity=_capacity(config),
        strategy_limit=float(algorithm.sample_strategy_args.get("max_staleness", math.inf)) if controlled else math.inf,
        in_order=in_order(config),
        in_background=in_background(config),
    )


def _capacity(config: Config) -> int | None:
    """Groups that may be under way or wait to be trained on, beside those of the step; None is any number."""
    responses = config.buffer.capacity
    if responses is not None:
        return max(1, responses // config.batch.responses_per_prompt)
    if config.weight_sync.style in UNBOUNDED:
        return (1 + max(1, math.ceil(config.weight_sync.max_steps_ahead))) * config.batch.prompts_per_step
    return None


def staleness(config: Config) -> int:
    """Steps that responses of a fixed schedule are old at most, if all are waited for."""
    return most_behind(config) + math.ceil(config.weight_sync.max_steps_ahead)


def schedule_name(config: Config) -> str:
    """The schedule in a few words."""
    sync = config.weight_sync
    every = "" if _longest(config) == 1 else said(", weights sent every {count} steps", count=_longest(config))
    if sync.style != "fixed":
        return said("asynchronous, {style}{every}", style=sync.style.replace("_", " "), every=every)
    if not sync.max_steps_ahead:
        return said("synchronous{every}", every=every)
    if sync.max_steps_ahead == 1 and sync.in_flight_requests == "wait":
        return said("one step off{every}", every=every)
    return said("asynchronous, up to {ahead:g} steps ahead{every}", ahead=sync.max_steps_ahead, every=every)
