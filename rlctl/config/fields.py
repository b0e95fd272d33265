"""How a section of the config is declared: units, ranges, choices and intervals.

A section is a frozen dataclass with a string under every field. A field's type says what it holds; ``Annotated`` adds
its unit and range. A setting that brings its own options is a ``Choice``: subclasses register under a type.

    class Advantage(Choice): ...                      # the setting
    class Grpo(Advantage, type="grpo"):               # {type: grpo, normalize_by_std: true} in a file
        normalize_by_std: bool = True
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeVar, dataclass_transform

from rlctl.common.messages.reasons import said, together
from rlctl.common.records import record, with_methods


@record
class Unit:
    """The unit of a number, as shown beside it."""

    name: str


@record
class Range:
    """The values a number may take; ``above`` and ``below`` exclude their bound."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def words(self) -> str:
        """``at least 0 and less than 1``, in the language of the message that holds it."""
        bounds = (
            ("at least {bound:g}", self.at_least),
            ("more than {bound:g}", self.above),
            ("at most {bound:g}", self.at_most),
            ("less than {bound:g}", self.below),
        )
        given = (said(words, bound=bound) for words, bound in bounds if bound is not None)
        return together(given, {"en": " and ", "zh": " 且"})

    def __str__(self) -> str:
        return self.words()


@record
class Secret:
    """Marks a field whose literal value must never be shown, logged or stored."""


@record
class Local:
    """Marks a path on this machine, in which a leading ``~`` or ``$HOME`` is the user's folder; see ``reveal.py``."""


MAX_DEVICES = 100_000
"""Devices of a run, at most: several times the largest known cluster. What counts devices must end in finite time."""

Count = Annotated[int, Range(at_least=1)]
ParallelSize = Annotated[int, Range(at_least=1, at_most=MAX_DEVICES)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(at_least=0)]
Fraction = Annotated[float, Range(at_least=0, at_most=1)]
Tokens = Annotated[int, Unit("tokens"), Range(at_least=1)]
Prompts = Annotated[int, Unit("prompts"), Range(at_least=1)]
Responses = Annotated[int, Unit("responses"), Range(at_least=1)]
Steps = Annotated[int, Unit("steps"), Range(at_least=1)]
Devices = Annotated[int, Unit("devices"), Range(at_least=1, at_most=MAX_DEVICES)]
Seconds = Annotated[float, Unit("seconds"), Range(above=0, at_most=1e9)]
"""Thirty years, at most: no wait of the operating system takes infinity."""
GiB = Annotated[float, Unit("GiB"), Range(above=0)]
Staleness = Annotated[int, Unit("steps"), Range(at_least=0)]

OTHER = "other"
"""What key patterns call the option of a setting that takes types without a class of their own."""
_OWN = re.compile(r"[a-z]\w*\.\S+")
"""A name that one framework has: ``verl.my_estimator``."""

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def section(cls: type[T]) -> type[T]:
    """Declare a config section: a frozen, keyword-only dataclass whose mappings may default to ``{}``."""
    for name in inspect.get_annotations(cls):
        if isinstance(cls.__dict__.get(name), dict):
            setattr(cls, name, field(default_factory=dict))
    return with_methods(dataclass(kw_only=True, init=False, repr=False, eq=False)(cls))


class Choice:
    """A setting that is a type plus that type's own options; each direct subclass is one setting with its own registry."""

    tag: ClassVar[str] = "type"
    """The key that holds the type in a file."""
    choice: ClassVar[str]
    """The type of this option."""
    registry: ClassVar[dict[str, type[Choice]]]
    further: ClassVar[tuple[str, ...]] = ()
    """Types without a class of their own that the setting's option ``other`` stands for; it has the type as ``kind``."""

    def __init_subclass__(cls, *, type: str | None = None, further: tuple[str, ...] = ()) -> None:
        super().__init_subclass__()
        if Choice in cls.__bases__:
            cls.registry = {}
        if further:
            cls.__mro__[1].further = further  # type: ignore[attr-defined]
        if type is not None:
            if type in cls.registry:
                raise TypeError(f"{cls.registry[type].__name__} and {cls.__name__} both have the type {type!r}")
            cls.choice = type
            cls.registry[type] = cls

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The types this setting can have, in the order they are declared."""
        return (*(name for name in cls.registry if not (cls.further and name == OTHER)), *cls.further)

    @classmethod
    def option(cls, name: object) -> tuple[str, type[Choice]] | None:
        """The option of a type, and what key patterns call it; None if the setting has no such type.

        A setting with ``further`` types also takes any name after that of a framework: ``verl.my_estimator``.
        """
        if not isinstance(name, str) or (cls.further and name == OTHER):
            return None
        if name in cls.registry:
            return name, cls.registry[name]
        return (OTHER, cls.registry[OTHER]) if cls.further and (name in cls.further or _OWN.fullmatch(name)) else None

    @property
    def type_name(self) -> str:
        """The type as a file has it."""
        return getattr(self, "kind", "") if self.further and self.choice == OTHER else self.choice


@section
class Interval:
    """How often something happens. In a file an integer counts steps; ``{optimizer_steps: 100}`` says another unit."""

    steps: Count | None = None
    """Steps: rounds of rollout and training. A larger number means less often."""
    optimizer_steps: Count | None = None
    """Optimizer steps: calls of ``optimizer.step()``. Rounded to the end of the step they fall in."""
    epochs: Count | None = None
    """Passes over the training data."""

    def to_short(self) -> int | None:
        """The short form, where there is one."""
        return self.steps if self.optimizer_steps is None and self.epochs is None else None
