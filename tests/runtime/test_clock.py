"""The system's clock may be set while a run goes on: it is for people to read, and no number and no duration hangs on it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Task
from .local import run_here
from .test_schedules import config_of, steps, unlike


def test_a_clock_that_jumps_back_and_forth_changes_nothing(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(
        task, tmp_path, weight_sync={"max_steps_ahead": 1}, schedule={"total_steps": 3}, checkpoint={"every": 1}
    )
    whole = run_here(config, tmp_path / "whole")
    jumps, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + jumps[0])

    def jump(event: dict[str, Any]) -> None:
        """An hour back at one event, two on at the next, and so on."""
        jumps[0] = -3600.0 if jumps[0] >= 0 else 3600.0

    set_again = run_here(config, tmp_path / "set", watch=jump)
    assert unlike(steps(set_again), steps(whole)) == {}
    for metrics in (event["metrics"] for event in set_again if event["kind"] == "step"):
        times = {name: value for name, value in metrics.items() if name.startswith("time/")}
        assert all(0 <= value < 600 for value in times.values()), times
        assert times["time/train"] + times["time/idle"] <= times["time/step"] + 0.1, times
