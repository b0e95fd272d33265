"""Estimates agree with what people measured (``benchmarks/measured``), as far as docs/reference/memory-estimates.md says."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

import pytest

from benchmarks import estimates
from rlctl.planning.memory import fitted

MOST_FITTED = 8


@pytest.fixture(scope="module")
def errors() -> estimates.Errors:
    return estimates.together(estimates.sources())


def test_peaks(errors: estimates.Errors) -> None:
    assert 0.95 <= median(errors.ratios) <= 1.05
    assert errors.close_peaks >= 8 / 9


def test_what_ran_and_what_failed(errors: estimates.Errors) -> None:
    assert errors.right_pairs >= 0.87


def test_limits_of_the_context_length(errors: estimates.Errors) -> None:
    assert len(errors.cells) == 120
    assert errors.close_cells >= 0.95
    assert abs(errors.bias) <= 0.1


@pytest.mark.parametrize("column", [0, 1, 2, 3])
def test_no_column_of_the_limits_is_biased(errors: estimates.Errors, column: int) -> None:
    """Settings, trainers, sequence parallelism, models: predicted limits are as often too long as too short."""
    for value in {cell[0][column] for cell in _keyed(errors)}:
        distances = [predicted - measured for key, predicted, measured in _keyed(errors) if key[column] == value]
        assert abs(sum(distances) / len(distances)) <= 0.5, value


def _keyed(errors: estimates.Errors) -> list[tuple[list[str], int, int]]:
    return [(list(cell.values())[:4], *place[1:]) for cell, place in zip(estimates.cells(), errors.cells, strict=True)]


def test_few_constants_are_fitted() -> None:
    tree = ast.parse(Path(fitted.__file__).read_text(encoding="utf-8"))
    constants = {node.targets[0].id for node in tree.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    assert constants == set(estimates.SEARCHED)
    assert len(constants) <= MOST_FITTED
