"""Rollout on devices of its own, in Ray, ahead of training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran, Task


@pytest.mark.ray
def test_rollout_apart_and_ahead(task: Task, run: Callable[..., Ran], tmp_path: Path) -> None:
    """Two engines beside one trainer; every response is at most two synchronisations old."""
    config: Any = task.config(
        tmp_path,
        placement={"layout": "split", "devices_per_node": 3, "rollout_devices": 2, "device": "cpu"},
        schedule={"total_steps": 3},
        weight_sync={"max_steps_ahead": 2, "max_staleness_steps": 2, "in_flight_requests": "continue"},
        checkpoint={"every": None, "at_end": False, "export": "never"},
    )
    ran = run(config)
    assert ran.result.status == "finished", ran.events[-1]
    metrics = [event["metrics"] for event in ran.kinds("step")]
    assert len(metrics) == 3
    assert all(each["staleness/max"] <= 2 for each in metrics)
    assert all("time/wait_for_rollout" in each for each in metrics)
    assert len(ran.kinds("evaluation")) >= 1, "engines answer held-out prompts in between"
