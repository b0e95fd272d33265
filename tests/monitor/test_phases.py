"""How long phases take, and what is left, worked out by hand."""

from __future__ import annotations

from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import phases_of, seconds_left, timeline, usual_seconds


def made() -> StepTable:
    table = StepTable()
    for step, (rollout, train) in enumerate([(2.0, 1.0), (4.0, 1.0), (9.0, 1.0)], 1):
        table.add(step, {"time/rollout": rollout, "time/train": train, "time/idle": 0.5, "time/step": rollout + 1.5})
    return table


def test_phases_in_their_order_and_their_medians() -> None:
    assert phases_of(made()) == ["rollout", "train"]
    assert usual_seconds(made(), "rollout") == 4.0
    assert usual_seconds(made(), "sync") is None


def test_the_timeline_of_the_last_steps() -> None:
    assert timeline(made(), 2) == [
        (2, {"rollout": 4.0, "train": 1.0, "idle": 0.5}),
        (3, {"rollout": 9.0, "train": 1.0, "idle": 0.5}),
    ]


def test_what_is_left_is_steps_times_their_mean() -> None:
    assert seconds_left(made(), 5) == 2 * (3.5 + 5.5 + 10.5) / 3
    assert seconds_left(made(), None) is None
    assert seconds_left(StepTable(), 5) is None
