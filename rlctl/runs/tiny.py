"""A config with a small random model in place of each of its models, and a few short steps: what ``rlctl try --tiny`` runs.

The algorithm, the data and the rewards stay. Two workers on CPU compute it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlctl.common.messages.reasons import said
from rlctl.config import Config, Loaded, stages_of
from rlctl.config.sections.agents import ProgramAgent, RunningAgent, ToolsAgent
from rlctl.config.sections.algorithm import (
    DifficultyMask,
    GroupMean,
    LongIncorrect,
    Overlong,
    PassRateCalculator,
    RewardShapingMapper,
    ZeroVarianceGroups,
)
from rlctl.config.sections.model import Model
from rlctl.config.sections.rewards import JudgeReward, ModelReward
from rlctl.config.sections.train import Megatron
from rlctl.planning import arithmetic
from rlctl.planning.scaling import Change, Edit, cpu_edits, edited

WORKERS = 2
MAX_RESPONSE = 32
"""Tokens of a response, or of an agent's turn: a random model hardly ever ends one."""
MAX_TRAJECTORY = 1024
"""Tokens of an agent's trajectory: enough for several turns."""
MAX_ROWS = 256
"""Rows read of each source."""
MICRO_TOKENS = 2048
SHORT = "a random model rarely ends a response, so a long limit only costs time"
FEW = "a few prompts"
SMALL = "a random model of the same architecture"
FULL_SIZE = "applies only to the full-size model"
NEVER = "a random model's responses get equal rewards and rarely end, so filters would leave nothing to train on"
LEFT_OUT = (ZeroVarianceGroups, GroupMean, Overlong, DifficultyMask, LongIncorrect)
"""Filters that a random model's responses do not pass."""
KEEPING = (RewardShapingMapper, PassRateCalculator)
"""Experience operators that drop nothing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A small random model to make in place of a config's model."""

    path: str
    folder: Path
    scores: bool = False
    trust_remote_code: bool = False


def tiny(loaded: Loaded, folder: Path, *, prompts: int, steps: int) -> tuple[Loaded, list[Change], list[Wanted]]:
    """The config of a few steps with small models in a folder, what changed, and the models that have to be made there.

    Args:
        loaded: the config as it was read.
        folder: an existing one, for the models.
        prompts: of a step.
        steps: of each stage.
    """
    wanted: dict[tuple[str, bool], Wanted] = {}

    def place(path: str, trust_remote_code: bool = False, *, scores: bool = False) -> str:
        name = f"model-{len(wanted) + 1}"
        made = wanted.setdefault((path, scores), Wanted(path, folder / name, scores, trust_remote_code))
        made.folder.mkdir(exist_ok=True)
        return str(made.folder)

    config, changes = edited(loaded.config, partial(_edits, place=place, prompts=prompts, steps=steps))
    return replace(loaded, config=config), changes, list(wanted.values())


def _edits(config: Config, *, place: Callable[..., str], prompts: int, steps: int) -> Iterator[Edit]:
    yield from cpu_edits(config, WORKERS)
    yield from _models(config, place)
    yield from _lengths(config)
    yield from _batch(config, prompts)
    yield from _schedule(config, steps)
    yield from _data(config)


def _data(config: Config) -> Iterator[Edit]:
    sources = [("train", config.data.train)]
    if config.run.mode == "evaluate_only":
        sources.append(("eval", config.data.eval))
    else:
        yield Edit(("data", "eval"), (), "a few steps need no evaluation")
        yield Edit(("schedule", "evaluate_every"), None, "a few steps need no evaluation")
    for name, listed in sources:
        for index, source in enumerate(listed):
            yield Edit(("data", name, index, "max_samples"), min(source.max_samples or MAX_ROWS, MAX_ROWS), FEW)


def _models(config: Config, place: Callable[..., str]) -> Iterator[Edit]:
    yield from _model(("model",), config.model, place)
    yield Edit(("model", "tokenizer"), None, "saved with the small model")
    for section, held in (("critic", config.critic), ("reference", config.reference)):
        if held is not None and held.model is not None:
            yield from _model((section, "model"), held.model, place)
    engines = {"train": config.train.engine, "reference": config.reference.engine}
    for section, engine in {**engines, "critic": config.critic and config.critic.engine}.items():
        if isinstance(engine, Megatron):
            yield Edit((section, "engine", "checkpoint_path"), None, FULL_SIZE)
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, ModelReward):
            path = place(reward.path, reward.trust_remote_code, scores=True)
            yield Edit(("rewards", index, "path"), path, SMALL)
            yield Edit(("rewards", index, "tokenizer"), None, "saved with the small model")
        elif isinstance(reward, JudgeReward) and reward.base_url is None:
            yield Edit(("rewards", index, "model"), place(reward.model), SMALL)
    taught = config.algorithm.distillation
    if taught is not None and taught.teacher:
        yield Edit(("algorithm", "distillation", "teacher"), place(taught.teacher), SMALL)


def _model(path: tuple[str, ...], model: Model, place: Callable[..., str]) -> Iterator[Edit]:
    from rlctl.runtime.models.tiny import SIZES

    if model.path:
        yield Edit((*path, "path"), place(model.path, model.trust_remote_code), SMALL)
    if model.lora is not None:
        yield Edit((*path, "lora", "adapter_path"), None, FULL_SIZE)
    kept = {name: value for name, value in model.overrides.items() if name not in SIZES}
    yield Edit((*path, "overrides"), kept, FULL_SIZE)


def _lengths(config: Config) -> Iterator[Edit]:
    rollout = config.rollout
    agents = arithmetic.agents_of(config)
    new = min(rollout.max_response_tokens, MAX_TRAJECTORY if agents else MAX_RESPONSE)
    for index, agent in enumerate(rollout.agents):
        if isinstance(agent, RunningAgent) and agent.name in agents:
            turn = min(agent.max_turn_tokens or MAX_RESPONSE, MAX_RESPONSE)
            yield Edit(("rollout", "agents", index, "max_turn_tokens"), turn, SHORT)
        if isinstance(agent, ToolsAgent | ProgramAgent):
            yield Edit(("rollout", "agents", index, "tool_format"), "auto", "as the chat template writes calls")
    yield Edit(("rollout", "max_response_tokens"), new, SHORT)
    least = min(rollout.sampling.min_response_tokens, new)
    yield Edit(("rollout", "sampling", "min_response_tokens"), least, SHORT)
    penalty = config.algorithm.reward_shaping.overlong_penalty
    if penalty is not None:
        share = new / rollout.max_response_tokens
        buffer = max(1, round(penalty.buffer * share))
        yield Edit(("algorithm", "reward_shaping", "overlong_penalty", "buffer"), buffer, "scaled with the limit")
        limit = None if penalty.limit is None else max(1, round(penalty.limit * share))
        yield Edit(("algorithm", "reward_shaping", "overlong_penalty", "limit"), limit, "scaled with the limit")
    kept = tuple(each for each in config.algorithm.filters if not isinstance(each, LEFT_OUT))
    yield Edit(("algorithm", "filters"), kept, NEVER)
    operators = tuple(each for each in config.algorithm.experience_operators if isinstance(each, KEEPING))
    yield Edit(("algorithm", "experience_operators"), operators, NEVER)


def _batch(config: Config, prompts: int) -> Iterator[Edit]:
    """A few prompts in as many mini-batches as the full-size step has, or as many as there are prompts."""
    count = min(prompts, config.batch.prompts_per_step)
    small = replace(config, batch=replace(config.batch, prompts_per_step=count, mini_batch_responses=None))
    yield Edit(("batch", "prompts_per_step"), count, FEW)
    if config.batch.mini_batch_responses is not None:
        parts = min(arithmetic.mini_batches_per_epoch(config), count)
        size = max(1, math.ceil(arithmetic.drawn_responses(small) / parts))
        yield Edit(("batch", "mini_batch_responses"), size, said("{count} mini-batches per step", count=parts))
    if config.critic is not None and config.critic.mini_batch_responses is not None:
        parts = min(
            arithmetic.critic_steps_per_step(config) // (config.critic.ppo_epochs or config.batch.ppo_epochs), count
        )
        size = max(1, math.ceil(arithmetic.drawn_responses(small) / parts))
        yield Edit(("critic", "mini_batch_responses"), size, said("{count} mini-batches per step", count=parts))
    for name, micro in (
        ("micro_batch", config.batch.micro_batch),
        ("log_prob_micro_batch", config.batch.log_prob_micro_batch),
    ):
        if micro is not None:
            tokens = min(micro.size, MICRO_TOKENS) if micro.unit == "tokens" else MICRO_TOKENS
            yield Edit(("batch", name, "unit"), "tokens", "fits a laptop; results do not change")
            yield Edit(("batch", name, "size"), tokens, "fits a laptop; results do not change")
    more = config.rollout.oversampling
    yield Edit(("rollout", "oversampling", "additional_prompts"), min(more.additional_prompts, count), FEW)
    if more.generation_batch_prompts is not None:
        yield Edit(("rollout", "oversampling", "generation_batch_prompts"), count, FEW)


def _schedule(config: Config, steps: int) -> Iterator[Edit]:
    schedule = config.schedule
    yield Edit(("schedule", "total_steps"), steps, "a few steps")
    yield Edit(("schedule", "total_epochs"), None, "a few steps")
    yield Edit(("schedule", "total_optimizer_steps"), None, "a few steps")
    yield Edit(("schedule", "critic_warmup_steps"), min(schedule.critic_warmup_steps, steps - 1), "a few steps")
    for section, trained in (("train", config.train), ("critic", config.critic)):
        if trained is not None and trained.lr_scheduler.warmup_steps:
            yield Edit((section, "lr_scheduler", "warmup_steps"), 0, "longer than a few steps")
    if config.weight_sync.every is not None and config.weight_sync.every > 1:
        yield Edit(("weight_sync", "every"), 1, "so that rollout gets new weights within these steps")


def make_models(config: Config, wanted: list[Wanted]) -> list[str]:
    """Make the small models, and say of each what it is, one line a model.

    Args:
        config: the full-size config, whose tokenizer and data are used.
        wanted: from ``tiny``.

    Raises:
        RunError: a model cannot be made, or the data cannot be read.
    """
    from rlctl.runtime.models import tiny as maker

    first = stages_of(config)[0].config
    name = first.model.tokenizer or first.model.path
    tokenizer: Any = maker.found_tokenizer(name, trust_remote_code=first.model.trust_remote_code)
    told = [said("tokenizer: {name}'s own", name=name)]
    if tokenizer is None:
        tokenizer = maker.made_tokenizer(maker.texts_in(_rows(config)))
        told = [
            said(
                "tokenizer: {name} is not available locally; built one with {count} tokens from the training data",
                name=name,
                count=len(tokenizer),
            )
        ]
    for number, each in enumerate(wanted):
        architecture, source = maker.architecture_of(each.path, trust_remote_code=each.trust_remote_code)
        count = maker.write_tiny(each.folder, architecture, tokenizer, seed=number + 1, scores=each.scores)
        kind = architecture.get("model_type")
        told.append(
            said(
                "model: {path} -> a random {kind} of {millions:.1f} M parameters (shape from {source})",
                path=each.path,
                kind=kind,
                millions=count / 1e6,
                source=source,
            )
        )
    return told


def _rows(config: Config) -> list[dict[str, Any]]:
    """Some rows of each training source."""
    from rlctl.runtime.data.sources import load_source
    from rlctl.runtime.models.tiny import ROWS_READ

    found: list[dict[str, Any]] = []
    for stage in stages_of(config):
        for index, source in enumerate(stage.config.data.train):
            rows = load_source(source, key=f"data.train[{index}]")
            found += [rows[number] for number in range(min(ROWS_READ, rows.num_rows))]
    return found
