"""Rules on the schedule: what runs ahead, what may wait, and what is too old."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem
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
    if not rollout_schedule.streams(config):
        yield from _too_old_in_turns(config)
        return
    if sync.max_staleness is None:
        return
    made = rollout_schedule.staleness(config)
    if sync.on_stale == "drop" and sync.style == "fixed" and sync.max_staleness < made:
        yield Problem(
            "staleness",
            ("weight_sync", "max_staleness"),
            f"rollout is up to {sync.max_steps_ahead:g} steps ahead, so responses are up to {made} synchronisations old, and"
            f" those older than {sync.max_staleness} are dropped: most of what is drawn ahead would be thrown away",
            "{fix}",
            (
                (("weight_sync", "max_staleness"), made),
                (("weight_sync", "on_stale"), "wait"),
                (("weight_sync", "max_steps_ahead"), 0),
            ),
        )


def _too_old_in_turns(config: Config) -> Iterator[Problem]:
    """Where a step's responses are drawn when it needs them, none are left out for their age."""
    made = rollout_schedule.most_behind(config)
    if rollout_schedule.oldest_by_strategy(config, made) > 0:
        yield Problem(
            "staleness",
            ("algorithm", "sample_strategy_args"),
            f"weights are sent every {made + 1} steps, so that responses are drawn by weights up to {made} versions old, and "
            "staleness_control leaves out those of a step: nothing would be left to train on",
            f"set its max_staleness to {made} or more, or weight_sync.every to 1",
        )


def capacity(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A step fits into the buffer."""
    responses = arithmetic.drawn_responses(config)
    limit = config.buffer.capacity
    replays, files = config.buffer.replay.enabled, isinstance(config.buffer, FileBuffer)
    waits = rollout_schedule.streams(config) or (rollout_schedule.passes_buffer(config) and not replays and not files)
    if _trains_on_rollout(config) and waits and limit is not None and limit < responses:
        yield Problem(
            "buffer-too-small",
            ("buffer", "capacity"),
            f"the buffer has room for {limit} responses and a step takes {responses}: it would never be filled",
            "{fix}",
            ((("buffer", "capacity"), responses), (("buffer", "capacity"), None)),
        )


def over_rollout(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Somebody is waited for."""
    if config.rollout.oversampling.ratio >= 1:
        yield Problem(
            "over-rollout",
            ("rollout", "oversampling", "ratio"),
            "ratio is 1: no prompt is waited for",
            "set rollout.oversampling.ratio below 1: it is the share of stragglers",
        )


def measured_order(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """An order by measured difficulty knows the answers before."""
    if _trains_on_rollout(config) and config.data.curriculum.order == "difficulty" and rollout_schedule.streams(config):
        yield Problem(
            "difficulty-ahead",
            ("data", "curriculum", "order"),
            "prompts are ordered by how well those before were answered, and here they are begun before that is known",
            "set data.curriculum.order to random, or weight_sync.max_steps_ahead to 0 with nothing else that begins prompts one"
            " by one",
        )


RULES = (staleness, capacity, over_rollout, measured_order)
