"""ROLL's device mappings: what its examples write is read as Python reads it, what is printed comes back, the rest is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlctl.adapters.roll.devices import DevicesError, parse_devices, print_devices

DEVICES = st.lists(st.integers(0, 300), unique=True, max_size=24)


@st.composite
def mappings(draw: st.DrawFn) -> str:
    """Text that Python takes for a list of numbers, written in one of the ways of people."""
    start, count = draw(st.integers(0, 64)), draw(st.integers(1, 16))
    space = draw(st.sampled_from(["", " "]))
    run = f"list(range({start},{space}{start + count}))"
    far = [draw(st.integers(100, 200))]
    kinds = [run, f"{run} + {far}", f"[*range({start}, {start + count}), {far[0]}]", f"list({far})", f"({run})"]
    steps = f"list(range({start}, {start + 2 * count}, 2))"
    return draw(
        st.sampled_from([*kinds, steps, f"range({count})", f"({start}, {start + 1},)", f"{start}, {start + 1}"])
    )


@given(mappings())
def test_a_mapping_is_read_as_python_reads_it(text: str) -> None:
    assert parse_devices(text) == tuple(eval(text))


@given(DEVICES)
def test_what_is_printed_is_read_back(devices: list[int]) -> None:
    text = print_devices(devices)
    assert parse_devices(text) == tuple(devices)
    assert eval(text) == devices


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (range(16), "list(range(0,16))"),
        ([0, 1, 4, 5, 6], "[0, 1] + list(range(4,7))"),
        ([1], "[1]"),
        ([0, 1], "list(range(0,2))"),
        ([], "[]"),
    ],
)
def test_devices_are_printed_as_rolls_examples_write_them(devices: list[int], text: str) -> None:
    assert print_devices(list(devices)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("list(range(0,8)", "at character 16: ')' is missing"),
        ("__import__('os').system('x')", "at character 1: '__import__'"),
        ("[0, a]", "at character 5: 'a'"),
        ("list(range(0,8)) x", "at character 18: 'x'"),
        ("range(2) + range(3)", "at character 10: Python cannot add range"),
        ("list(range(0, 8, 0))", "a step of 0 never ends"),
        ("list(range(0, 999999999))", "999999999 devices"),
        ("[0, 1, 0]", "names device 0 twice"),
        ("[-1]", "at character 2: '-'"),
        ("3", "a single number is not a list"),
        ("", "the end"),
        ("(" * 500, "more than 100 brackets"),
        ([0, 1], "is a YAML list; ROLL wants text"),
        (8, "is 8; ROLL wants text"),
    ],
)
def test_what_is_no_list_of_devices_is_refused_with_its_place(text: object, says: str) -> None:
    with pytest.raises(DevicesError) as caught:
        parse_devices(text)
    assert says in str(caught.value)
