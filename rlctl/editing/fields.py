"""A config as a form: every value with its section, help, type, default, where it was written, and whether it matters now."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import Any, Literal, get_args, get_origin

from rlctl.config import EDITED, Config, Loaded
from rlctl.config.chinese import in_words, key_help, option_help
from rlctl.config.explain import shown_type
from rlctl.config.fields import Choice, Interval
from rlctl.config.inspect import FieldInfo, KeyInfo, fields_of, sections_in, settings, walk
from rlctl.documents import KeyPath
from rlctl.editing.session import Session
from rlctl.editing.values import alternatives, text_of
from rlctl.planning import arithmetic

Kind = Literal["choice", "enum", "bool", "number", "text", "path", "list", "mapping", "section"]
"""What a field is edited with; ``path``: text that may name a file; ``section``: may be missing as a whole, as ``critic``."""

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
        "batch.micro_batch",
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
        "rollout.parallel.tensor_parallel_size",
        "train.engine",
        "train.optimizer.lr",
        "train.lr_scheduler.type",
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
    """A value of a config, as the editor shows it."""

    path: KeyPath
    pattern: str
    kind: Kind
    value: Any
    text: str
    """As it stands in the field: of a linked value its ``${...}``."""
    now: str
    """The value itself as text."""
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
    def is_linked(self) -> bool:
        """Whether it follows another value, or the environment."""
        return self.text != self.now

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
    "weight_sync": arithmetic.needs_rollout,
    "buffer": arithmetic.needs_rollout,
    "critic": arithmetic.needs_critic,
    "reference": arithmetic.needs_reference,
    "algorithm.advantage": lambda config: config.algorithm.objective.choice in ("rl", "mix"),
    "algorithm.policy_loss": lambda config: config.algorithm.objective.choice in ("rl", "mix"),
    "train": arithmetic.trains,
}
"""When a section, or a choice with its options, matters; everything else always does."""


def dormant_in(config: Config) -> list[str]:
    """The sections and choices that do not matter in a run."""
    return [section for section, matters in APPLIES.items() if not matters(config)]


_CODE = re.compile(r"(`{1,2})([^`]+)\1")


class Form:
    """The fields of a session, kept up to date: a section that was not changed is the object that it was, and not asked
    again."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._known: dict[str, tuple[tuple[Any, ...], list[FieldView]]] = {}

    def views(self) -> list[FieldView]:
        """Every value of the config as it is now, in the schema's order."""
        session = self.session
        config, file = session.config, session.file
        dormant = dormant_in(config)
        found: list[FieldView] = []
        for top, info in fields_of(Config).items():
            marks = (getattr(config, info.attribute), file, getattr(session.defaults, info.attribute), dormant)
            known = self._known.get(top)
            if known is None or not all(
                a is b or (a is dormant and a == b) for a, b in zip(marks, known[0], strict=True)
            ):
                known = self._known[top] = (marks, _section(session, top, dormant))
            found += known[1]
        return found


def fields(session: Session) -> list[FieldView]:
    """Every value of the config as it is now, in the schema's order."""
    return Form(session).views()


def _section(session: Session, top: str, dormant: list[str]) -> list[FieldView]:
    loaded, known = session.loaded, keys()
    saved = {} if session.file is None else values_of(session.file.loaded.config, top)
    defaults = values_of(session.defaults, top)
    found = []
    for setting in settings(loaded.config, only=(top,)):
        key = known.get(setting.pattern)
        if key is None:  # the name of a chosen option: it is in the choice's own field
            continue
        default = defaults.get(setting.path, setting.default)
        edited = session.file is not None and saved.get(setting.path, NOWHERE) != setting.value
        view = field_at(key, setting.path, setting.value, default, loaded, dormant=dormant, edited=edited)
        found.append(view)
    return found


ALIKE = 0.6
"""From here on two names are spellings of one word; below, what they share is chance, as ``train_files`` and ``extra_key``."""
Names = Callable[[str], Iterable[str]]
"""The names of a pattern."""


def no_names(pattern: str) -> Iterable[str]:
    """The names of a key where other formats have none."""
    return ()


def search(found: list[FieldView], text: str, names: Names, inner: Names = no_names) -> list[FieldView]:
    """The fields that a person looks for, best first; every word has to be there, and case does not matter.

    A word may be part of the key, of what dialects call it (``names`` of a pattern), of the help, or of what is in it (its
    ``inner`` names); or its letters stand in the key in this order, as ``gnorm`` in ``max_grad_norm``. What is called so comes
    first: by its key, then by a dialect that means it alone or first.
    """
    words = text.lower().split()
    ranks: dict[str, tuple[float, float] | None] = {}
    ranked = []
    for number, view in enumerate(found):
        if view.pattern not in ranks:
            ranks[view.pattern] = _rank(view, words, names, inner)
        rank = ranks[view.pattern]
        if rank is not None:
            called, fit = rank
            is_item = any(isinstance(part, int) for part in view.path)
            ranked.append((called >= 1, called > 0, is_item, called, fit, len(view.path), number))
    return [found[number] for *_, number in sorted(ranked)]


def _rank(view: FieldView, words: list[str], names: Names, inner: Names) -> tuple[float, float] | None:
    """How well a field fits, by whether it is called so, and by its words; None where one of these is nowhere."""
    key, called = view.pattern.lower(), [name.lower() for name in names(view.pattern)]
    inside = [*(name.lower() for name in inner(view.pattern)), *(option.lower() for option in view.options)]
    helps = [_help(view.pattern).lower(), keys()[view.pattern].help.lower()]
    texts = [key], called, *((inside, helps) if view.kind == "section" else (helps, inside))
    fit = 0.0
    for word in words:
        found = _fit(word, texts)
        if found is None and not _letters(word, key):
            return None
        fit = max(fit, 3.0 * len(texts) if found is None else found)
    whole = "_".join(words)
    return 0.0 if whole in view.options else _called(whole, key, called, inside), fit


def _fit(word: str, texts: Sequence[Sequence[str]]) -> float | None:
    """How well a word fits: the first of some texts that have it, how it stands there, and in which; None where none has it."""
    for number, some in enumerate(texts):
        if found := [_place(word, text) + place / len(some) for place, text in enumerate(some) if word in text]:
            return 3 * number + min(found)
    return None


def _called(whole: str, key: str, names: list[str], inside: list[str]) -> float:
    """0 for a field whose key ends so or that has such an option; below 1 where a dialect calls it so, the less the more it means
    it, or an option has such a setting; 1 for others."""
    if _last(key) == whole or any(f"{name}.".startswith((f"{key}<{whole}>.", f"{key}[]<{whole}>.")) for name in inside):
        return 0
    places = [place for place, name in enumerate(names) if whole in (name, _last(name))]
    if places:
        alike = SequenceMatcher(None, whole, _last(key)).ratio()
        return 0.5 + 0.5 * places[0] / len(names) - (0.1 * alike if alike > ALIKE else 0)
    return 0.95 if any(name.startswith(f"{key}<") and _last(name) == whole for name in inside) else 1


def _last(name: str) -> str:
    """The last part of a key."""
    return name.rpartition(".")[2]


def _place(word: str, text: str) -> int:
    """How a word stands in a text that has it: 0 by itself, 1 where something begins, 2 inside."""
    at = [match.start() for match in re.finditer(re.escape(word), text)]
    begins = [place for place in at if place == 0 or not text[place - 1].isalnum()]
    if any(not text[place + len(word) : place + len(word) + 1].isalnum() for place in begins):
        return 0
    return 1 if begins else 2


def _letters(word: str, text: str) -> bool:
    rest = iter(text)
    return all(letter in rest for letter in word)


NOWHERE = object()
"""In place of the value of a key that the file does not have."""


def values_of(config: Config, top: str) -> dict[KeyPath, Any]:
    """Every value of a section by its path, where a choice is itself and not its name."""
    return {setting.path: setting.value for setting in settings(config, only=(top,)) if setting.pattern in keys()}


@cache
def keys() -> dict[str, KeyInfo]:
    return {key.pattern: key for key in walk(Config)}


@cache
def _help(pattern: str) -> str:
    return key_help(keys()[pattern])


@cache
def _nature(pattern: str) -> tuple[Kind, str, tuple[str, ...]]:
    """The kind of input for a key, its type in words, and its options. Cached: they never change."""
    info = keys()[pattern].info
    return kind_of(info), shown_type(info), _options(info)


def field_at(
    key: KeyInfo, path: KeyPath, value: Any, default: Any, loaded: Loaded, *, dormant: list[str], edited: bool = False
) -> FieldView:
    """Describe a field at a path of a config."""
    info = key.info
    required = info.required and default is None
    kind, type_, options = _nature(key.pattern)
    now = text_of(value)
    return FieldView(
        path=path,
        pattern=key.pattern,
        kind=kind,
        value=value,
        text=loaded.expressions.get(path) or now,
        now=now,
        default="" if required else text_of(default),
        help=without_markup(key_help(key)),
        type=type_,
        unit=in_words(info.unit),
        range="" if info.range is None else in_words(str(info.range)),
        options=options,
        origin=origin_of(loaded, (*path, value.tag) if isinstance(value, Choice) else path),
        changed=value != default,
        edited=edited,
        applies=not any(
            key.pattern == section or key.pattern.startswith((f"{section}.", f"{section}<")) for section in dormant
        ),
        info=info,
    )


def meanings(view: FieldView) -> dict[str, str]:
    """The help text of each option of a choice, or of a list of them; empty for other fields."""
    held = [cls for cls, _ in sections_in(view.info.type) if issubclass(cls, Choice)]
    options = {name: found[1] for cls in held for name in cls.names() if (found := cls.option(name)) is not None}
    return {name: without_markup(option_help(option)) for name, option in options.items()}


def without_markup(text: str) -> str:
    """A text of the docs without the backticks around code, which only pages render."""
    return _CODE.sub(r"\2", text)


def kind_of(info: FieldInfo) -> Kind:
    """The kind of input for a field."""
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
    if _has(info.type, int) or _has(info.type, float) or info.type is Interval:
        return "number"
    return "path" if info.name.endswith(("path", "folder")) else "text"


def _options(info: FieldInfo) -> tuple[str, ...]:
    for cls, suffix in sections_in(info.type):
        if issubclass(cls, Choice) and not suffix:
            return cls.names()
    literals = [str(item) for hint in alternatives(info.type) if get_origin(hint) is Literal for item in get_args(hint)]
    return tuple(literals)


def _has(hint: Any, kind: type) -> bool:
    return any(part is kind or get_origin(part) is kind for part in alternatives(hint))


def origin_of(loaded: Loaded, path: KeyPath) -> str:
    """The origin of a value in words: file and line, ``--set``, the editor, the environment, or a default and whose."""
    for length in range(len(path), 0, -1):
        source = loaded.sources.get(path[:length])
        if source is None:
            continue
        if source.at is not None and source.at.file == EDITED:
            return in_words("changed here")
        if source.kind == "dialect_default":
            return in_words("the framework's default")
        place = f"{source.at}" if source.at is not None else source.kind
        variable = f", {in_words('from the environment')}" if source.kind == "environment" else ""
        return f"{place}{variable}" + (f" ({source.key})" if source.key else "")
    return in_words("default")
