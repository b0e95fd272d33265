"""A config as a form: every value with its section, help, type, default, where it was written, and whether it matters now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from rlctl import arithmetic
from rlctl.config import EDITED, Config, Loaded
from rlctl.config.chinese import key_help
from rlctl.config.fields import Choice, Interval
from rlctl.config.inspect import FieldInfo, Key, sections_in, settings, type_text, walk
from rlctl.documents import KeyPath
from rlctl.editing.session import Session
from rlctl.editing.values import alternatives, text_of

Kind = Literal["choice", "enum", "bool", "number", "text", "list", "mapping", "section"]
"""What a field is edited with; ``section``: one that may be missing as a whole, as ``critic``."""

ESSENTIAL = frozenset(
    {
        "run.name",
        "run.folder",
        "run.seed",
        "model.path",
        "data.train",
        "data.eval",
        "data.max_prompt_tokens",
        "batch.prompts_per_step",
        "batch.responses_per_prompt",
        "batch.mini_batch_responses",
        "batch.micro",
        "schedule.total_steps",
        "schedule.total_epochs",
        "schedule.evaluate_every",
        "algorithm.objective",
        "algorithm.advantage",
        "algorithm.policy_loss",
        "algorithm.kl_in_loss",
        "algorithm.kl_in_reward",
        "rollout.engine",
        "rollout.max_response_tokens",
        "rollout.sampling.temperature",
        "rollout.parallel.tensor",
        "train.engine",
        "train.optimizer.learning_rate",
        "train.learning_rate_schedule.name",
        "critic",
        "reference",
        "rewards",
        "placement.layout",
        "placement.nodes",
        "placement.devices_per_node",
        "checkpoint.every",
        "checkpoint.export",
        "tracking",
    }
)
"""What a person sets first; the others are in the full view."""


@dataclass(frozen=True, slots=True)
class FieldView:
    """One value of a config."""

    path: KeyPath
    pattern: str
    kind: Kind
    value: Any
    text: str
    """As it stands in the field."""
    default: str
    """What the dialect's silence means, as text; empty where it must be set."""
    help: str
    type: str
    unit: str
    range: str
    options: tuple[str, ...]
    """Of a choice or an enum, what it can be."""
    origin: str
    """Where it was written, as a person would say it."""
    changed: bool
    """Whether it is not the default."""
    edited: bool
    """Whether it is not what the file says."""
    applies: bool
    """Whether it matters in this run."""
    info: FieldInfo

    @property
    def section(self) -> KeyPath:
        """The section that it stands in."""
        return self.path[:-1]

    @property
    def is_essential(self) -> bool:
        return self.pattern in ESSENTIAL


APPLIES: Mapping[str, Callable[[Config], bool]] = {
    "rollout": arithmetic.needs_rollout,
    "rewards": arithmetic.scores,
    "sync": arithmetic.needs_rollout,
    "buffer": arithmetic.needs_rollout,
    "critic": arithmetic.needs_critic,
    "reference": arithmetic.needs_reference,
    "algorithm.advantage": lambda config: config.algorithm.objective.choice in ("rl", "mix"),
    "algorithm.policy_loss": lambda config: config.algorithm.objective.choice in ("rl", "mix"),
    "train": arithmetic.trains,
}
"""When a section, or a choice with its options, matters; everything else always does."""


def fields(session: Session) -> list[FieldView]:
    """Every value of the config as it is now, in the schema's order."""
    loaded, keys = session.loaded, _keys()
    saved = {} if session.file is None else _values(session.file.loaded.config)
    defaults = _values(session.defaults)
    dormant = [section for section, matters in APPLIES.items() if not matters(loaded.config)]
    found = []
    for setting in settings(loaded.config):
        key = keys.get(setting.pattern)
        if key is None:  # the name of a chosen option: it is in the choice's own field
            continue
        default = defaults.get(setting.path, setting.default)
        edited = session.file is not None and saved.get(setting.path, NOWHERE) != setting.value
        found.append(_field(key, setting.path, setting.value, default, loaded, edited, dormant))
    return found


def search(found: list[FieldView], text: str, names: Callable[[str], list[str]]) -> list[FieldView]:
    """The fields that a person looks for: by key, by what dialects call it (``names`` of a pattern), then by help.

    Every word has to be there; case does not matter.
    """
    words = text.lower().split()

    def matches(*texts: str) -> bool:
        joined = " ".join(texts).lower()
        return all(word in joined for word in words)

    by_key = [view for view in found if matches(view.pattern)]
    by_name = [view for view in found if view not in by_key and matches(view.pattern, *names(view.pattern))]
    by_help = [
        view
        for view in found
        if view not in by_key
        and view not in by_name
        and matches(view.pattern, view.help, _keys()[view.pattern].help)  # English is found in any language
    ]
    return by_key + by_name + by_help


NOWHERE = object()
"""In place of the value of a key that the file does not have."""


def _values(config: Config) -> dict[KeyPath, Any]:
    """Every value by its path, where a choice is itself and not its name."""
    return {setting.path: setting.value for setting in settings(config) if setting.pattern in _keys()}


@cache
def _keys() -> dict[str, Key]:
    return {key.pattern: key for key in walk(Config)}


@cache
def _nature(pattern: str) -> tuple[Kind, str, tuple[str, ...]]:
    """What a key is edited with, its type in words, and its options: they never change."""
    info = _keys()[pattern].info
    return kind_of(info), type_text(info.type), _options(info)


def _field(
    key: Key, path: KeyPath, value: Any, default: Any, loaded: Loaded, edited: bool, dormant: list[str]
) -> FieldView:
    info = key.info
    required = info.required and default is None
    kind, type_, options = _nature(key.pattern)
    return FieldView(
        path=path,
        pattern=key.pattern,
        kind=kind,
        value=value,
        text=loaded.expressions.get(path) or text_of(value),
        default="" if required else text_of(default),
        help=key_help(key),
        type=type_,
        unit=info.unit,
        range="" if info.range is None else str(info.range),
        options=options,
        origin=origin_of(loaded, path),
        changed=value != default,
        edited=edited,
        applies=not any(
            key.pattern == section or key.pattern.startswith((f"{section}.", f"{section}<")) for section in dormant
        ),
        info=info,
    )


def kind_of(info: FieldInfo) -> Kind:
    """What a field is edited with."""
    held = sections_in(info.type)
    if any(suffix == "[]" for _, suffix in held) or _has(info.type, tuple):
        return "list"
    if any(suffix == "{}" for _, suffix in held) or _has(info.type, dict):
        return "mapping"
    if any(issubclass(cls, Choice) for cls, _ in held):
        return "choice"
    if held:
        return "section"
    if _options(info):
        return "enum"
    if _has(info.type, bool):
        return "bool"
    return "number" if _has(info.type, int) or _has(info.type, float) or info.type is Interval else "text"


def _options(info: FieldInfo) -> tuple[str, ...]:
    for cls, suffix in sections_in(info.type):
        if issubclass(cls, Choice) and not suffix:
            return cls.names()
    literals = [str(item) for hint in alternatives(info.type) if get_origin(hint) is Literal for item in get_args(hint)]
    return tuple(literals)


def _has(hint: Any, kind: type) -> bool:
    return any(part is kind or get_origin(part) is kind for part in alternatives(hint))


def origin_of(loaded: Loaded, path: KeyPath) -> str:
    """Where a value was written: file and line, ``--set``, here, the environment, or a default and whose."""
    for length in range(len(path), 0, -1):
        source = loaded.sources.get(path[:length])
        if source is None:
            continue
        if source.at is not None and source.at.file == EDITED:
            return "changed here"
        if source.kind == "dialect_default":
            return "the dialect's default"
        place = f"{source.at}" if source.at is not None else source.kind
        variable = ", from the environment" if source.kind == "environment" else ""
        return f"{place}{variable}" + (f" ({source.key})" if source.key else "")
    return "default"
