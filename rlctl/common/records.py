"""Frozen dataclasses whose methods are shared: ``dataclass`` writes and compiles six functions for each class, which for all
classes of a conversion takes a fifth of its time.

    @record
    class Flow:              # as @dataclass(frozen=True): fields, defaults, ==, hash, repr, replace, asdict
        to: KeyPath
        free: bool = False
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass."""
    return with_methods(dataclass(init=False, repr=False, eq=False)(cls))


def with_methods(made: type[T]) -> type[T]:
    """Give a dataclass without methods those of a frozen one, unless it has its own."""
    known = [each for each in fields(made) if each.init]  # type: ignore[arg-type]
    made.__record__ = _Shape(  # type: ignore[attr-defined]
        tuple(each.name for each in known if not each.kw_only),
        frozenset(each.name for each in known),
        {each.name: each.default for each in known if each.default is not MISSING},
        {each.name: each.default_factory for each in known if each.default_factory is not MISSING},
        tuple(each.name for each in known if each.compare),
        getattr(made, "__post_init__", None),
    )
    for method in (_init, _repr, _eq, _hash, _setattr, _delattr):
        name = f"__{method.__name__[1:]}__"
        if name not in made.__dict__:
            setattr(made, name, method)
    return made


class _Shape(NamedTuple):
    """The fields of a class, as the generated methods use them."""

    by_position: tuple[str, ...]
    names: frozenset[str]
    defaults: Mapping[str, Any]
    factories: Mapping[str, Callable[[], Any]]
    compared: tuple[str, ...]
    after: Callable[[Any], None] | None
    """``__post_init__``."""


class _Made(Protocol):
    __record__: ClassVar[_Shape]


def _init(self: _Made, /, *values: Any, **named: Any) -> None:
    by_position, names, defaults, factories, _, after = self.__record__
    held = self.__dict__
    held.update(defaults)
    if values:
        held.update(zip(by_position, values, strict=False))
        if len(values) > len(by_position) or (named and not named.keys().isdisjoint(by_position[: len(values)])):
            raise TypeError(
                f"{type(self).__name__} got too many values by position, or one of {', '.join(named)} twice"
            )
    held.update(named)
    for name, factory in factories.items():
        if name not in held:
            held[name] = factory()
    if held.keys() != names:
        for name in sorted(held.keys() - names):
            raise TypeError(f"{type(self).__name__} has no field {name!r}")
        missing = next(each.name for each in fields(self) if each.name not in held)  # type: ignore[arg-type]
        raise TypeError(f"{type(self).__name__} needs a value for {missing!r}")
    if after is not None:
        after(self)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__record__.compared])


def _repr(self: Any) -> str:
    shown = ", ".join(f"{info.name}={getattr(self, info.name)!r}" for info in fields(self) if info.repr)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _setattr(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
