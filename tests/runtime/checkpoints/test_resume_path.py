"""A run that begins at another one's checkpoint says what of that run holds, and what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.config import config_from
from rlctl.runtime.checkpoints.resume_path import describe_resume_diff, terms

from ..conftest import Task
from ..local import run_here
from ..test_schedules import steps

LINEAR = {"type": "linear", "warmup_steps": 0}


@pytest.mark.parametrize("takes", [True, False])
def test_the_schedule_of_another_run_is_taken_up_and_told(task: Task, tmp_path: Path, takes: bool) -> None:
    schedule = LINEAR | {"restore_from_checkpoint": takes}

    def train(rate: float) -> dict[str, object]:
        return {"optimizer": {"lr": rate}, "lr_scheduler": schedule}

    first = task.config(tmp_path, objective="sft", train=train(1e-3), schedule={"total_steps": 2}, data={"eval": []})
    run_here(first, tmp_path / "first")
    there = tmp_path / "first" / "checkpoints" / "main" / "step-000001"
    second = task.config(
        tmp_path,
        objective="sft",
        train=train(1e-4),
        schedule={"total_steps": 4},
        checkpoint={"resume": "path", "resume_path": str(there)},
        data={"eval": []},
    )
    seen = run_here(second, tmp_path / "second")
    told = [event["message"] for event in seen if event["kind"] == "advisory" and "another run's" in event["message"]]
    assert len(told) == 1, seen
    assert "its step (1) and its place in the data" in told[0]
    assert ("its learning-rate schedule (shape, length and peak)" in told[0]) is takes
    kept = "; the checkpoint's values continue" if takes else ""
    assert f"\n  train.optimizer.lr: 0.001 in the checkpoint, 0.0001 in this run{kept}" in told[0]
    assert "\n  schedule.total_steps: 2 in the checkpoint, 4 in this run" in told[0]
    rates = {step: found["policy/lr"] for step, found in steps(seen).items()}
    assert rates[2] == pytest.approx(5e-4 if takes else 7.5e-5), "half of two steps, or three quarters of four"
    resumed = run_here(second, tmp_path / "second")
    assert not [event for event in resumed if "another run's" in str(event.get("message"))], "its own by then"


def test_what_differs_is_counted_where_it_is_much() -> None:
    config = config_from({"schedule": {"total_steps": 1}})
    same = terms(config)
    assert describe_resume_diff(config, 3, same).endswith("; both use the same training settings")
    assert "does not record" in describe_resume_diff(config, 3, None)
    assert "\n  and 3 further keys" in describe_resume_diff(config, 3, same | {f"train.old_{n}": 0 for n in range(15)})
