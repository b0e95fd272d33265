"""Lines of a plot are cut at the edges of its canvas: what is on it is drawn, wherever their ends are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlctl.tui.widgets.braille import crossed
from rlctl.tui.widgets.curves_plot import _cut

SIZE = np.array([10, 8])


def cut(*lines: tuple[tuple[float, float], tuple[float, float]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    first, last = _cut(np.array(lines, dtype=float), SIZE)
    return [(tuple(one), tuple(other)) for one, other in zip(first.tolist(), last.tolist(), strict=True)]


def test_what_is_inside_stays_and_what_is_beside_goes() -> None:
    assert cut(((1, 1), (8, 6))) == [((1, 1), (8, 6))]
    assert cut(((-5, 1), (-1, 6)), ((1, 9), (8, 20)), ((20, 1), (20, 6)), ((-4, 3), (3, -4))) == []


def test_what_goes_over_an_edge_ends_at_it() -> None:
    assert cut(((-10, 3), (30, 3))) == [((0, 3), (9, 3))]
    assert cut(((4, -100), (4, 100))) == [((4, 0), (4, 7))]
    assert cut(((5, 5), (5, 25))) == [((5, 5), (5, 7))]
    assert cut(((-3, -3), (20, 20))) == [((0, 0), (7, 7))]


def test_a_point_is_a_line() -> None:
    assert cut(((2, 2), (2, 2)), ((-1, 2), (-1, 2))) == [((2, 2), (2, 2))]


ENDS = st.tuples(st.integers(-30, 40), st.integers(-30, 40))


@given(ENDS, ENDS)
def test_a_line_is_left_out_only_where_none_of_it_is_on_the_canvas(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    way = np.linspace(one, other, 2001)
    inside = ((way >= 0) & (way <= SIZE - 1)).all(axis=1)
    found = cut((one, other))
    if inside.any():
        [(first, last)] = found
        assert np.abs(np.array(first) - way[inside][0]).max() <= 1.1
        assert np.abs(np.array(last) - way[inside][-1]).max() <= 1.1
    for dots in found:
        assert all(0 <= x < SIZE[0] and 0 <= y < SIZE[1] for x, y in dots)


def test_a_line_crosses_the_cells_that_its_dots_are_in() -> None:
    """From the top left dot of 2 x 1 cells to the lowest of the fourth column: one dot a row, half a step rounded up."""
    found = crossed(np.array([[0, 0]]), np.array([[3, 3]]), 2, 1)
    assert found.tolist() == [[0x01 | 0x10, 0x04 | 0x80]]
    assert crossed(np.array([[1, 2]]), np.array([[1, 2]]), 1, 1).tolist() == [[0x20]]
