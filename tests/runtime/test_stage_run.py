"""A stage evaluates and saves when its clock says so, at its end where that is asked for, and never otherwise."""

from __future__ import annotations

import pytest

from rlctl.runtime.stage_run import Clock


def clock(*, every: int | None, last: bool) -> Clock:
    return Clock(5, evaluate_every=every, save_every=every, evaluate_first=True, evaluate_last=last, save_last=last)


@pytest.mark.parametrize(
    ("every", "last", "evaluations", "saves"),
    [
        (2, True, [2, 4, 5], [2, 4, 5]),
        (2, False, [2, 4], [2, 4]),
        (None, True, [], [5]),
        (None, False, [], []),
    ],
)
def test_when_a_stage_evaluates_and_saves(
    every: int | None, last: bool, evaluations: list[int], saves: list[int]
) -> None:
    """Without an interval nothing is evaluated at the end, and something may still be saved."""
    made = clock(every=every, last=last)
    steps = range(1, made.total_steps + 1)
    assert [step for step in steps if made.evaluation_due(step)] == evaluations
    assert [step for step in steps if made.save_due(step)] == saves
