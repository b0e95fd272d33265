"""What differs in meaning between two configs of any dialects: their effective values, whether written or a dialect's default.

Values that only say the same in another way are equal: a mini-batch of the whole step and none at all, an interval in steps and
the same in optimizer steps, a warm-up that ticks once a step and one that ticks with the optimizer, a KL term with coefficient 0
and none. What nothing reads is not compared: the critic without one, the end of a constant learning rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rlctl.adapters.engine.values import serves_teacher
from rlctl.common.notebook import InNotebook
from rlctl.common.records import record
from rlctl.common.report import Report
from rlctl.config import Config, Loaded, Source, stages_of, to_plain
from rlctl.config.fields import Choice, Interval
from rlctl.config.inspect import settings
from rlctl.documents import KeyPath, dotted, parse_dotted
from rlctl.planning import arithmetic
from rlctl.planning.rollout_schedule import limits_staleness

TICKS: tuple[KeyPath, ...] = (("warmup_steps",), ("decay_steps",), ("wsd_decay_steps",), ("total_steps",))
"""Lengths of a learning-rate schedule, compared in optimizer steps."""
OF_DECAY = ("min_lr_ratio", "min_lr", "num_cycles", "decay_steps", "wsd_decay_steps", "wsd_decay_style", "total_steps")
"""Keys of a learning-rate schedule that a constant one does not read."""
OF_RL = (
    "advantage",
    "policy_loss",
    "kl_in_loss",
    "kl_in_reward",
    "old_log_probs",
    "reward_shaping",
    "train_temperature",
)
"""Keys of the algorithm that only reinforcement learning reads."""
_NODE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
GROUPING = "step_reinforce"
"""The estimator that reads how rewards are grouped, whether they are normalized or not."""
SAMPLED_KL = ("k1", "kl")
"""Names of the estimator that a teacher's log-probs have in an advantage if none is set."""
NEVER_CLIPS = 1e9
"""A bound that no ratio reaches: as good as none."""


@record
class Side:
    """What one config says of a key."""

    value: Any
    key: str = ""
    """In the config's own dialect; empty where it is silent."""
    file: str | None = None
    line: int | None = None
    default: bool = False
    """Whether the config is silent, so that its dialect's default holds."""
    expression: str = ""
    """What was written, if the value comes from the environment; it is shown, and the value is not."""

    @property
    def shown(self) -> Any:
        return self.expression or self.value

    def as_data(self) -> dict[str, Any]:
        data = asdict(self) | {"value": self.shown}
        del data["expression"]
        return data


@record
class Difference:
    """One canonical key that the two configs give different values."""

    key: str
    section: str
    first: Side
    second: Side

    def as_data(self) -> dict[str, Any]:
        return asdict(self) | {"first": self.first.as_data(), "second": self.second.as_data()}


@record
class Comparison(InNotebook):
    """What differs between two configs, and what each was read as."""

    first: str
    """As ``verl@0.9``."""
    second: str
    differences: tuple[Difference, ...]

    def as_data(self) -> dict[str, Any]:
        """What ``rlctl diff --json`` prints."""
        found = [item.as_data() for item in self.differences]
        return {"first": self.first, "second": self.second, "differences": found}


def compare(first: tuple[Loaded, Report], second: tuple[Loaded, Report]) -> Comparison:
    """Compare two configs that were read; keys that only one framework has are compared if both are of it."""
    (ours, mine), (theirs, other) = first, second
    names = [report.dialect.partition("@")[0] for report in (mine, other)]
    found = differences(ours, theirs, extensions=names[0] if names[0] == names[1] else "")
    return Comparison(mine.dialect, other.dialect, tuple(found))


def differences(first: Loaded, second: Loaded, *, extensions: str = "", rows: int | None = None) -> list[Difference]:
    """What differs, in the schema's order, stage by stage.

    Args:
        first: one config.
        second: the other.
        extensions: the dialect of both, whose own keys are compared too; empty where they are of two.
        rows: prompts in the training data, if that is known: epochs are then compared with steps.
    """
    ours, theirs = stages_of(first.config), stages_of(second.config)
    if len(ours) != len(theirs):
        sides = (Side([stage.name for stage in stages], "stages") for stages in (ours, theirs))
        return [Difference("stages", "stages", *sides)]
    found: list[Difference] = []
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        prefix: KeyPath = ("stages", index) if len(ours) > 1 else ()
        found += _of_stage(mine.config, other.config, prefix, first, second, extensions, rows)
    return found


def _of_stage(
    mine: Config,
    other: Config,
    prefix: KeyPath,
    first: Loaded,
    second: Loaded,
    extensions: str,
    rows: int | None,
) -> Iterator[Difference]:
    ours, theirs = (effective_values(config, extensions, rows) for config in (mine, other))
    for role in ("train", "critic"):
        _join_warmups(role, (ours, theirs), (mine, other), rows)
    unread = {*_unread(mine), *_unread(other)}
    for path in dict.fromkeys([*ours, *theirs]):
        if any(path[:length] in unread for length in range(1, len(path) + 1)):
            continue
        if path not in ours or path not in theirs:
            known, unknown = (ours, theirs) if path in ours else (theirs, ours)
            if _told_above(path, known, unknown):
                continue
        left, right = ours.get(path), theirs.get(path)
        if not _same(left, right):
            sides = (_side(left, path, prefix, first), _side(right, path, prefix, second))
            if all(side.default for side in sides) and _differs_above(path, ours, theirs):
                continue
            yield Difference(dotted(prefix + path), str(path[0]), *sides)


def _same(left: Any, right: Any) -> bool:
    """Whether two values are equal, numbers up to rounding."""
    numbers = isinstance(left, float | int) and isinstance(right, float | int)
    return left == right or (numbers and math.isclose(left, right, rel_tol=1e-9))


def _told_above(path: KeyPath, known: Mapping[KeyPath, Any], unknown: Mapping[KeyPath, Any]) -> bool:
    """Whether a key is missing on one side only because of what is told of a setting above it: null there, or another option."""
    for length in range(1, len(path)):
        above = path[:length]
        if above in unknown and unknown[above] != known.get(above):
            return True
    return False


def _differs_above(path: KeyPath, ours: Mapping[KeyPath, Any], theirs: Mapping[KeyPath, Any]) -> bool:
    """Whether a setting above a key differs, such as the option that it belongs to: a default of it follows from that."""
    return any(ours.get(path[:length]) != theirs.get(path[:length]) for length in range(1, len(path)))


def effective_values(config: Config, extensions: str = "", rows: int | None = None) -> dict[KeyPath, Any]:
    """Every value that has an effect, by its place; a choice by its name, a null section as None."""
    found: dict[KeyPath, Any] = {}
    for setting in settings(config):
        value = setting.value
        if setting.path[0] in ("extensions", "stages", "rlctl"):
            continue
        if isinstance(value, Choice):
            found[setting.path] = value.type_name
        elif isinstance(value, Interval):
            found[setting.path] = to_plain(_in_steps(value, config))
        elif isinstance(value, tuple) and any(hasattr(item, "__dataclass_fields__") for item in value):
            found[setting.path] = _listed(value)
        elif hasattr(value, "__dataclass_fields__"):
            found[setting.path] = "set"
        else:
            found[setting.path] = to_plain(value)
    kept = config.carried_for(extensions)
    return _normal(found, config, rows) | {("extensions", extensions, name): value for name, value in kept.items()}


def _listed(items: tuple[Any, ...]) -> str:
    """What a list holds: the types of its items where they have types, or how many there are; the items are compared alone."""
    if all(isinstance(item, Choice) for item in items):
        return ", ".join(item.type_name for item in items)
    return f"{len(items)} {'entry' if len(items) == 1 else 'entries'}"


def _in_steps(interval: Interval, config: Config) -> Interval:
    per_step = arithmetic.optimizer_steps_per_step(config)
    if interval.optimizer_steps is not None and interval.optimizer_steps % per_step == 0:
        return Interval(steps=interval.optimizer_steps // per_step)
    return interval


def _normal(values: dict[KeyPath, Any], config: Config, rows: int | None) -> dict[KeyPath, Any]:
    """The values with one way of saying what can be said in several."""
    _join_schedule(values, config, rows)
    _join_batch(values, config)
    _join_objective(values, config)
    for role in ("train", "critic"):
        _join_learning_rates(values, role, config, rows)
    return values


def _join_schedule(values: dict[KeyPath, Any], config: Config, rows: int | None) -> None:
    """One number of steps for epochs, steps and optimizer steps, if the length of the data is known or not needed."""
    total = arithmetic.total_steps(config, rows) if _can_count(config, rows) else None
    if total is not None:
        values |= {("schedule", name): None for name in ("total_epochs", "total_optimizer_steps")}
        values["schedule", "total_steps"] = total
    if not limits_staleness(config):
        values["weight_sync", "max_staleness_steps"] = None
    each, between = arithmetic.optimizer_steps_per_step(config), config.weight_sync.every_optimizer_steps
    if between is not None and between % each == 0:
        values |= {("weight_sync", "every_optimizer_steps"): None, ("weight_sync", "every"): between // each}


def _can_count(config: Config, rows: int | None) -> bool:
    short = rows is not None and rows < config.batch.prompts_per_step and config.data.last_batch == "drop"
    return config.schedule.total_epochs is None or (rows is not None and not short)


def _join_batch(values: dict[KeyPath, Any], config: Config) -> None:
    if config.batch.mini_batch_responses == arithmetic.responses_per_step(config):
        values["batch", "mini_batch_responses"] = None
    if arithmetic.optimizer_steps_per_step(config) == 1:
        values["batch", "shuffle"] = None
    if not arithmetic.needs_critic(config):
        return
    own = arithmetic.critic_batch(config)
    values["critic", "ppo_epochs"] = own.ppo_epochs
    same = own.mini_batch_responses == config.batch.mini_batch_responses
    values["critic", "mini_batch_responses"] = None if same else own.mini_batch_responses
    if arithmetic.critic_steps_per_step(config) == 1:
        values["critic", "shuffle"] = None


def _join_objective(values: dict[KeyPath, Any], config: Config) -> None:
    algorithm = config.algorithm
    for name in ("kl_in_loss", "kl_in_reward"):
        term = getattr(algorithm, name)
        if term is not None and term.coefficient == 0:
            place: KeyPath = ("algorithm", name)
            for path in [path for path in values if path[:2] == place]:
                del values[path]
            values[place] = None
    if algorithm.kl_in_reward is None or algorithm.kl_in_reward.coefficient == 0:
        values.pop(("algorithm", "advantage", "kl_order"), None)
    if config.rollout.sampling.temperature == 1:
        values["algorithm", "train_temperature"] = "sampling"
    shaping = algorithm.reward_shaping
    if shaping.normalize.mean is None and shaping.normalize.std is None and algorithm.advantage.choice != GROUPING:
        values["algorithm", "reward_shaping", "group_by"] = None
    _join_overlong_penalty(values, config)
    distilled: KeyPath = ("algorithm", "distillation", "args")
    args = values.get(distilled)
    if isinstance(args, dict):
        usual = args.get("policy_gradient") and args.get("estimator") in SAMPLED_KL
        unread = {"estimator"} if usual else set()
        values[distilled] = {
            name: value for name, value in args.items() if name not in unread and not serves_teacher(name)
        }
    dual: KeyPath = ("algorithm", "policy_loss", "dual_clip")
    if isinstance(bound := values.get(dual), (int, float)) and bound >= NEVER_CLIPS:
        values[dual] = None


def _join_overlong_penalty(values: dict[KeyPath, Any], config: Config) -> None:
    """Set the default limit; whether the penalty grows beyond it matters only if responses can be longer."""
    penalty, longest = config.algorithm.reward_shaping.overlong_penalty, config.rollout.max_response_tokens
    if penalty is None:
        return
    place: KeyPath = ("algorithm", "reward_shaping", "overlong_penalty")
    limit = longest if penalty.limit is None else penalty.limit
    values[*place, "limit"] = limit
    if limit >= longest:
        values[*place, "clamp"] = None


def _join_learning_rates(values: dict[KeyPath, Any], role: str, config: Config, rows: int | None) -> None:
    """A schedule in optimizer steps, its end as a share of the peak; of a constant one only its warm-up."""
    place: KeyPath = (role, "lr_scheduler")
    if values.get((*place, "step_unit")) == "step":
        values |= {(*place, *key): _in_optimizer_steps(values.get((*place, *key)), config) for key in TICKS}
    steps = arithmetic.total_steps(config, rows) if _can_count(config, rows) else None
    if steps is not None and values.get((*place, "total_steps")) == _in_optimizer_steps(steps, config):
        values[*place, "total_steps"] = None  # the length of the run, as null is
    if values.get((role, "optimizer", "weight_decay")) == 0:
        values[role, "optimizer", "decay_norms_and_biases"] = None
    peak, end = values.get((role, "optimizer", "lr")), values.get((*place, "min_lr"))
    if end is not None and peak:
        values |= {(*place, "min_lr_ratio"): end / peak, (*place, "min_lr"): None}
    elif values.get((*place, "min_lr_ratio")) is None:
        values[*place, "min_lr_ratio"] = 0.0
    if values.get((*place, "warmup_steps")) is not None:
        values[*place, "warmup_ratio"] = None  # the steps decide
    if values.get((*place, "warmup_steps")) == 0:
        values[*place, "warmup_steps"] = None
    constant, warms = values.get((*place, "type")) == "constant", _warms(values, place)
    if constant:
        values |= {(*place, key): None for key in OF_DECAY}
    if arithmetic.optimizer_steps_per_step(config) == 1 or (constant and not warms):
        values[*place, "step_unit"] = None


def _join_warmups(
    role: str, sides: tuple[dict[KeyPath, Any], ...], configs: tuple[Config, ...], rows: int | None
) -> None:
    """A warm-up that one config says as a ratio and the other in steps: both in optimizer steps, at the ratio's place."""
    share, steps = ((role, "lr_scheduler", name) for name in ("warmup_ratio", "warmup_steps"))
    if sum(bool(values.get(share)) for values in sides) != 1 or any(
        getattr(config, role) is None for config in configs
    ):
        return
    if not all(_can_count(config, rows) for config in configs):
        return
    counts = [arithmetic.warmup_in_optimizer_steps(config, role, rows) for config in configs]
    if None not in counts:
        for values, count in zip(sides, counts, strict=True):
            values |= {share: count, steps: None}


def _warms(values: Mapping[KeyPath, Any], place: KeyPath) -> bool:
    return any(values.get((*place, key)) for key in ("warmup_steps", "warmup_ratio"))


def _unread(config: Config) -> list[KeyPath]:
    """The sections that nothing reads in this config. If only one of two configs reads them, another difference says why."""
    found: list[KeyPath] = []
    if not arithmetic.needs_critic(config):
        found.append(("critic",))
    if not arithmetic.needs_reference(config):
        found.append(("reference",))
    if not config.data.eval:
        found += [("schedule", name) for name in ("evaluate_every", "evaluate_at_start", "evaluate_at_end")]
    if not arithmetic.trains(config) or config.algorithm.objective.choice != "rl":
        found += [("algorithm", name) for name in OF_RL]
    return found


def _in_optimizer_steps(ticks: Any, config: Config) -> Any:
    return ticks * arithmetic.optimizer_steps_per_step(config) if isinstance(ticks, int) else ticks


def _side(value: Any, path: KeyPath, prefix: KeyPath, loaded: Loaded) -> Side:
    source = _source(path, prefix, loaded)
    if source is None:
        return Side(value, default=True)
    place, silent = source.at, source.kind == "dialect_default"
    expression = "" if silent else _of_environment(path, prefix, loaded)
    return Side(value, source.key, place.file if place else None, place.line if place else None, silent, expression)


def _of_environment(path: KeyPath, prefix: KeyPath, loaded: Loaded) -> str:
    """The expression of a value if the environment, perhaps by way of another key, gives it."""
    text = loaded.expressions.get(prefix + path) or loaded.expressions.get(path, "")
    following, seen = [text], set[str]()
    while following:
        if "${oc.env:" in (each := following.pop()):
            return text
        names = set(_NODE.findall(each)) - seen
        seen |= names
        following += [loaded.expressions.get(parse_dotted(name), "") for name in names]
    return ""


def _source(path: KeyPath, prefix: KeyPath, loaded: Loaded) -> Source | None:
    """Where a value, something in it, or what it is in came from; what was written before what is a default."""
    for root in (prefix, ()):
        for length in range(len(path), 0, -1):
            above = root + path[:length]
            if above in loaded.sources:
                return loaded.sources[above]
            if length == len(path):
                inside = [source for place, source in loaded.sources.items() if place[: len(above)] == above]
                if inside:
                    return next((source for source in inside if source.kind != "dialect_default"), inside[0])
    return None
