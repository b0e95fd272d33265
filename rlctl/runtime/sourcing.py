"""Where a stage's samples come from: rows of a data set, groups drawn when they are asked for or ahead, or what others drew.

make_builder  what a step is trained on
make_groups   what that takes its groups from (rl), as schedule and buffer say
"""

from __future__ import annotations

from pathlib import Path

from rlctl.config import Config
from rlctl.planning import arithmetic, rollout_schedule
from rlctl.runtime.buffers.interface import Buffer
from rlctl.runtime.buffers.make import make_buffer, shared_buffer
from rlctl.runtime.buffers.memory import MemoryBuffer
from rlctl.runtime.evaluation.response_files import JsonLines
from rlctl.runtime.experience.batch_builders import (
    BatchBuilder,
    DataBatchBuilder,
    ExploreBatchBuilder,
    MixBatchBuilder,
    NoBatchBuilder,
    PairBatchBuilder,
    RolloutBatchBuilder,
)
from rlctl.runtime.experience.buffered import Buffered, BufferReader, BufferWriter
from rlctl.runtime.experience.explore import Explorer, GroupSource
from rlctl.runtime.experience.recorded import with_skips
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.exploration import Exploration
from rlctl.runtime.schedules.scheduler import Scheduler
from rlctl.runtime.specs.experience import (
    failures_of,
    generation_spec,
    old_is_current,
    rollout_batch_spec,
    scheduler_spec,
    shaping_spec,
)
from rlctl.runtime.specs.trained import teaching_of
from rlctl.runtime.stage_context import Roles, StageContext


def make_builder(given: StageContext, roles: Roles, groups: GroupSource | None) -> BatchBuilder:
    """What a step of the stage is trained on. ``groups``: of ``make_groups``."""
    config, stream, tokenizer = given.stage.config, given.materials.stream, given.materials.tokenizer
    if roles.policy is None:
        return NoBatchBuilder() if groups is None else ExploreBatchBuilder(groups, tokenizer)
    if config.algorithm.objective.choice == "dpo" and roles.reference is not None:
        return PairBatchBuilder(stream, tokenizer, roles.reference)  # type: ignore[arg-type]
    if groups is None:
        teaching = teaching_of(config)
        return DataBatchBuilder(stream, tokenizer, teaching is not None and teaching.on_prompt)  # type: ignore[arg-type]
    drawn = RolloutBatchBuilder(
        rollout_batch_spec(config, old_is_current=old_is_current(config, given.plan)),
        groups=groups,
        tokenizer=tokenizer,
        policy=roles.policy,
        reference=roles.reference,
        shaping=Shaping.of(shaping_spec(config), explores=False),
        critic=roles.critic,
    )
    return drawn if given.materials.experts is None else MixBatchBuilder(drawn, given.materials.experts)


def make_groups(given: StageContext, roles: Roles) -> GroupSource | None:
    """Where training takes its groups from, as the schedule says; None where it takes none."""
    config, place, schedule = given.stage.config, given.place, rollout_schedule.sync_schedule(given.stage.config)
    if roles.policy is not None and arithmetic.drains_buffer(config):
        buffer = shared_buffer(config.buffer, place, seed=config.run.seed, stopped=given.stop.now)
        shaping = Shaping.of(shaping_spec(config), explores=False)
        return BufferReader(schedule, buffer, roles.policy, place / "weights", shaping, given.events.advise)
    draws = given.materials.stream is not None and config.algorithm.objective.choice in ("rl", "mix")
    if not draws or roles.rollout is None or roles.rewards is None:
        return None
    source = _ahead(given, roles) if rollout_schedule.streams(config) else _when_asked(given, roles)
    if arithmetic.fills_buffer(config):
        buffer = shared_buffer(config.buffer, place, seed=config.run.seed, stopped=given.stop.now)
        return BufferWriter(schedule, source, buffer, roles.rollout)
    return source


def _when_asked(given: StageContext, roles: Roles) -> GroupSource:
    """Groups that are drawn when a step asks for them."""
    config, materials = given.stage.config, given.materials
    schedule = rollout_schedule.sync_schedule(config)
    explorer = Explorer(
        generation_spec(config, given.stage.name, materials.stop_token_ids),
        schedule,
        materials.stream,  # type: ignore[arg-type]
        with_skips(config.run.skip, roles.rollout, given.place),  # type: ignore[arg-type]
        roles.rewards,  # type: ignore[arg-type]
        Shaping.of(shaping_spec(config), tokenizer=roles.rewards.tokenizer),  # type: ignore[union-attr]
        _keeper(config),
        failures_of(config, given.events.advise),
    )
    if arithmetic.fills_buffer(config) or not rollout_schedule.passes_buffer(config):
        return explorer
    return Buffered(schedule, explorer, _buffer(given))


def _ahead(given: StageContext, roles: Roles) -> GroupSource:
    """Groups that a thread draws while others are trained on."""
    config, materials, rewards = given.stage.config, given.materials, roles.rewards
    assert roles.rollout is not None, "there are engines"
    assert rewards is not None, "there are rewards to score with"
    draws = Draws(materials.stream)  # type: ignore[arg-type]
    shaping = Shaping.of(shaping_spec(config), tokenizer=rewards.tokenizer)
    buffer = MemoryBuffer(stopped=given.stop.now) if arithmetic.fills_buffer(config) else _buffer(given)
    scheduler = Scheduler(
        scheduler_spec(config, generation_spec(config, given.stage.name, materials.stop_token_ids)),
        draws,
        roles.rollout,
        rewards.score,
        shaping,
        failures_of(config, given.events.advise),
        hand_on=lambda group: buffer.put([group]),
        tell=given.events.advise,
    )
    return Exploration(
        rollout_schedule.sync_schedule(config),
        scheduler,
        draws,
        buffer,
        shaping,
        rewards.tokenizer,
        total_steps=materials.clock.total_steps,
        keeper=_keeper(config),
        failed=given.stop.fail,
        stopped=given.stop.now,
    )


def _buffer(given: StageContext) -> Buffer:
    """Between exploring and training in one run."""
    config = given.stage.config
    return make_buffer(config.buffer, given.place, seed=config.run.seed, stopped=given.stop.now)


def _keeper(config: Config) -> JsonLines | None:
    """Gets every response that is drawn for training, where the config keeps them."""
    folder = config.rollout.responses_folder
    return JsonLines(Path(folder).expanduser()) if folder else None
