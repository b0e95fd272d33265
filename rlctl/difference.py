"""What differs in meaning between two configs of any dialects: their effective values, whether written or a dialect's default.

Values that only say the same in another way are equal: a mini-batch of the whole step and none at all, an interval in steps and
the same in optimizer steps, a warm-up that ticks once a step and one that ticks with the optimizer, a KL term with coefficient 0
and none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlctl import arithmetic
from rlctl.config import Config, Loaded, Source, stages_of, to_plain
from rlctl.config.fields import Choice, Interval
from rlctl.config.inspect import settings
from rlctl.documents import KeyPath, dotted

TICKS: tuple[KeyPath, ...] = (("warmup", "ticks"), ("decay_ticks",), ("wsd_decay_ticks",), ("total_ticks",))
"""Lengths of a learning-rate schedule, compared in optimizer steps."""


@dataclass(frozen=True, slots=True)
class Side:
    """What one config says of a key."""

    value: Any
    key: str = ""
    """In the config's own dialect; empty where it is silent."""
    file: str | None = None
    line: int | None = None
    default: bool = False
    """Whether the config is silent, so that its dialect's default holds."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One canonical key that the two configs give different values."""

    key: str
    section: str
    first: Side
    second: Side

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def differences(first: Loaded, second: Loaded, *, extensions: str = "") -> list[Difference]:
    """What differs, in the schema's order, stage by stage.

    Args:
        first: one config.
        second: the other.
        extensions: the dialect of both, whose own keys are compared too; empty where they are of two.
    """
    ours, theirs = stages_of(first.config), stages_of(second.config)
    if len(ours) != len(theirs):
        sides = (Side([stage.name for stage in stages], "stages") for stages in (ours, theirs))
        return [Difference("stages", "stages", *sides)]
    found: list[Difference] = []
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        prefix: KeyPath = ("stages", index) if len(ours) > 1 else ()
        found += _of_stage(mine.config, other.config, prefix, first, second, extensions)
    return found


def _of_stage(
    mine: Config, other: Config, prefix: KeyPath, first: Loaded, second: Loaded, extensions: str
) -> Iterator[Difference]:
    ours, theirs = _values(mine, extensions), _values(other, extensions)
    for path in dict.fromkeys([*ours, *theirs]):
        if path not in ours or path not in theirs:
            known, unknown = (ours, theirs) if path in ours else (theirs, ours)
            if _told_above(path, known, unknown):
                continue
        left, right = ours.get(path), theirs.get(path)
        if left != right:
            sides = (_side(left, path, prefix, first), _side(right, path, prefix, second))
            yield Difference(dotted(prefix + path), str(path[0]), *sides)


def _told_above(path: KeyPath, known: Mapping[KeyPath, Any], unknown: Mapping[KeyPath, Any]) -> bool:
    """Whether a key is missing on one side only because of what is told of a setting above it: null there, or another option."""
    for length in range(1, len(path)):
        above = path[:length]
        if above in unknown and unknown[above] != known.get(above):
            return True
    return False


def _values(config: Config, extensions: str) -> dict[KeyPath, Any]:
    """Every effective value by its place; a choice by its name, a null section as None."""
    found: dict[KeyPath, Any] = {}
    for setting in settings(config):
        value = setting.value
        if setting.path[0] in ("extensions", "stages", "rlctl"):
            continue
        if isinstance(value, Choice):
            found[setting.path] = value.choice
        elif isinstance(value, Interval):
            found[setting.path] = to_plain(_in_steps(value, config))
        elif isinstance(value, tuple) and any(hasattr(item, "__dataclass_fields__") for item in value):
            found[setting.path] = f"{len(value)} entries"
        elif hasattr(value, "__dataclass_fields__"):
            found[setting.path] = "set"
        else:
            found[setting.path] = to_plain(value)
    kept = config.carried_for(extensions)
    return _normal(found, config) | {("extensions", extensions, name): value for name, value in kept.items()}


def _in_steps(interval: Interval, config: Config) -> Interval:
    per_step = arithmetic.optimizer_steps_per_step(config)
    if interval.optimizer_steps is not None and interval.optimizer_steps % per_step == 0:
        return Interval(steps=interval.optimizer_steps // per_step)
    return interval


def _normal(values: dict[KeyPath, Any], config: Config) -> dict[KeyPath, Any]:
    """The values with one way of saying what can be said in several."""
    if config.batch.mini_batch_responses == arithmetic.responses_per_step(config):
        values["batch", "mini_batch_responses"] = None
    for role in ("train", "critic"):
        schedule: KeyPath = (role, "learning_rate_schedule")
        if values.get((*schedule, "tick")) == "step":
            values |= {(*schedule, *key): _in_optimizer_steps(values.get((*schedule, *key)), config) for key in TICKS}
    for name in ("kl_in_loss", "kl_in_reward"):
        term = getattr(config.algorithm, name)
        if term is not None and term.coefficient == 0:
            place: KeyPath = ("algorithm", name)
            values = {path: value for path, value in values.items() if path[:2] != place} | {place: None}
    return values


def _in_optimizer_steps(ticks: Any, config: Config) -> Any:
    return ticks * arithmetic.optimizer_steps_per_step(config) if isinstance(ticks, int) else ticks


def _side(value: Any, path: KeyPath, prefix: KeyPath, loaded: Loaded) -> Side:
    source = _source(path, prefix, loaded)
    if source is None:
        return Side(value, default=True)
    place, silent = source.at, source.kind == "dialect_default"
    return Side(value, source.key, place.file if place else None, place.line if place else None, silent)


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
