"""Rules on the schedule: what runs ahead, what may wait, and what is too old."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.report import Fix
from rlctl.config import Config
from rlctl.config.sections.execution import FileBuffer
from rlctl.planning import arithmetic, rollout_schedule


def _trains_on_rollout(config: Config) -> bool:
    return config.run.mode == "full" and config.algorithm.objective.choice in ("rl", "mix")


def staleness(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What the schedule makes old is not dropped for its age."""
    sync = config.weight_sync
    if not _trains_on_rollout(config):
        return
    streams = rollout_schedule.streams(config)
    if not streams:
        yield from _too_old_in_turns(config)
    if sync.max_staleness_steps is None or sync.on_stale == "keep":
        return
    behind, made = rollout_schedule.most_behind(config), rollout_schedule.staleness(config)
    key = ("weight_sync", "max_staleness_steps")
    if sync.max_staleness_steps < behind:
        fixes: list[Fix] = [(key, made), (key, None), (("weight_sync", "on_stale"), "keep")]
        yield problem("staleness_sync", key, fixes, every=behind + 1, behind=behind, most=sync.max_staleness_steps)
    elif streams and sync.on_stale == "drop" and sync.style == "fixed" and sync.max_staleness_steps < made:
        yield problem(
            "staleness",
            key,
            [(key, made), (("weight_sync", "on_stale"), "wait"), (("weight_sync", "max_steps_ahead"), 0)],
            ahead=sync.max_steps_ahead,
            made=made,
            most=sync.max_staleness_steps,
        )


def _too_old_in_turns(config: Config) -> Iterator[Problem]:
    """Where a step's responses are drawn when it needs them, none are left out for their age."""
    made = rollout_schedule.most_behind(config)
    if rollout_schedule.sync_schedule(config).oldest_by_strategy(made) > 0:
        yield problem("staleness_strategy", ("algorithm", "sample_strategy_args"), every=made + 1, made=made)


def capacity(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A step fits into the buffer."""
    responses = arithmetic.drawn_responses(config)
    limit = config.buffer.capacity
    replays, files = config.buffer.replay.enabled, isinstance(config.buffer, FileBuffer)
    waits = rollout_schedule.streams(config) or (rollout_schedule.passes_buffer(config) and not replays and not files)
    key = ("buffer", "capacity")
    if _trains_on_rollout(config) and waits and limit is not None and limit < responses:
        yield problem("buffer-too-small", key, [(key, responses), (key, None)], capacity=limit, responses=responses)


def over_rollout(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Somebody is waited for."""
    if config.rollout.oversampling.ratio >= 1:
        yield problem("over-rollout", ("rollout", "oversampling", "ratio"))


def measured_order(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """An order by measured difficulty knows the answers before."""
    if _trains_on_rollout(config) and config.data.curriculum.order == "difficulty" and rollout_schedule.streams(config):
        key = ("data", "curriculum", "order")
        yield problem("difficulty-ahead", key, [(key, "random"), (("weight_sync", "max_steps_ahead"), 0.0)])


RULES = (staleness, capacity, over_rollout, measured_order)
