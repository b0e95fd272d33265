"""What crosses between a program and its tests is plain data of exactly the types that it names, whatever the other side sends."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlctl.runtime.rewards.programs import wire

PLAIN = (type(None), bool, int, float, complex, Decimal, Fraction, str, bytes, range, list, tuple, dict, set, frozenset)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.fractions()
)
VALUES = st.recursive(
    SCALARS | st.decimals(allow_nan=False) | st.complex_numbers(allow_nan=False) | st.frozensets(SCALARS),
    lambda each: st.lists(each) | st.lists(each).map(tuple) | st.dictionaries(SCALARS, each) | st.sets(SCALARS),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 99)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from([*"ibDlotszdcfrI", "__class__"]),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=2), each, max_size=2),
)
STEP = st.tuples(st.sampled_from([*"ibDlotszdcfrI", "?"]), st.integers(-2, 5) | st.text(max_size=4) | JSON).map(list)
STEPS = st.lists(STEP | JSON, max_size=8)


def is_plain(value: Any) -> bool:
    if type(value) not in (*PLAIN, type(iter([]))):
        return False
    parts = (
        [*value, *value.values()]
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple | set | frozenset)
        else ()
    )
    return all(map(is_plain, parts))


@given(VALUES)
def test_plain_data_arrives_as_it_is(value: Any) -> None:
    found = wire.unpack(json.loads(json.dumps(wire.pack(value))))
    assert found == value
    assert type(found) is type(value)
    assert is_plain(found)


@given(STEPS | JSON)
def test_whatever_is_sent_is_plain_data_or_an_error(steps: Any) -> None:
    try:
        found = wire.unpack(steps)
    except Exception:  # noqa: BLE001 - any error ends the tests
        return
    assert is_plain(found)


@pytest.mark.parametrize("value", [object(), len, int, wire, {"a": [print]}, memoryview(b"x"), type("T", (), {})()])
def test_anything_else_does_not_cross(value: Any) -> None:
    with pytest.raises(wire.NotPlain):
        wire.pack(value)


def test_what_is_endless_does_not_cross() -> None:
    cycle: list[Any] = []
    cycle.append({"a": cycle})
    with pytest.raises(wire.NotPlain, match="contains itself"):
        wire.pack(cycle)
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(wire.NotPlain, match="too deeply"):
        wire.pack(deep)
    assert wire.unpack([1, *[["l", 1]] * 100_000])[0]
