"""A record behaves as the frozen dataclass that it is written as."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import pytest

from rlctl.common.records import record


class Members:
    name: str
    size: int = 3
    held: list[int] = field(default_factory=list)
    note: str = field(default="", compare=False)
    last: bool = field(default=False, kw_only=True)

    @cached_property
    def doubled(self) -> int:
        return 2 * self.size


# mypy reads neither decorator where it is called, so both are made as a class statement would
Ours: Any = record(type("Thing", (Members,), dict(Members.__dict__)))
Theirs: Any = dataclass(frozen=True)(type("Thing", (Members,), dict(Members.__dict__)))


@record
class Base:
    one: int
    two: int = 2


@record
class Further(Base):
    three: int = 3


def test_values_are_given_shown_compared_and_replaced_as_those_of_a_frozen_dataclass() -> None:
    for arguments, named in [(("x",), {}), (("x", 4), {"last": True}), ((), {"name": "x", "held": [1], "note": "n"})]:
        ours, theirs = Ours(*arguments, **named), Theirs(*arguments, **named)
        assert asdict(ours) == asdict(theirs)
        assert repr(ours) == repr(theirs)
        assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
        assert is_dataclass(ours)
        for change in ({"size": 9}, {"note": "other"}):
            assert (replace(ours, **change) == ours) == (replace(theirs, **change) == theirs)
        assert ours != theirs
        assert ours.doubled == theirs.doubled == 2 * ours.size
    assert Ours("x").held is not Ours("x").held
    assert hash(Base(1)) == hash(Base(1, two=2))
    assert {Base(1), Base(1, 2), Base(1, 3)} == {Base(1), Base(1, 3)}
    assert Further(1, 5) == Further(one=1, two=5, three=3)
    assert Base(1, 5) != Further(1, 5)
    assert pickle.loads(pickle.dumps(Further(7, three=8))) == Further(7, 2, 8)


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), (("x", 1, [], "", True), {}), (("x",), {"name": "y"}), (("x",), {"colour": 1})]
)
def test_wrong_values_are_refused(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError):
            kind(*arguments, **named)


def test_a_record_does_not_change() -> None:
    made: Any = Base(1)
    with pytest.raises(FrozenInstanceError):
        made.one = 2
    with pytest.raises(FrozenInstanceError):
        del made.one


@record
class Bounded:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("below 0")


def test_a_record_is_checked_after_it_is_made() -> None:
    assert Bounded(1).size == 1
    for make in (lambda: Bounded(-1), lambda: replace(Bounded(1), size=-1)):
        with pytest.raises(ValueError, match="below 0"):
            make()
