"""Two ``rlctl launch`` at once, on Ray, share a buffer in PostgreSQL: one explores, one trains, and one is killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import to_plain
from rlctl.monitor.samples import SampleIndex

pytestmark = [pytest.mark.ray, pytest.mark.soak]


def events_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def responses_of(folder: Path) -> set[tuple[Any, ...]]:
    """The step of every group that is shown, and its responses."""
    samples = SampleIndex(folder)
    return {
        (step, tuple(response.text for response in group.responses))
        for step in samples.steps("main")
        for group in samples.groups("main", step)
    }


def test_two_launches_share_a_database_and_one_is_killed(task: Any, postgresql: str, tmp_path: Path) -> None:
    def launch(mode: str) -> subprocess.Popen[str]:
        config = task.config(
            tmp_path,
            run={"name": mode, "folder": str(tmp_path), "mode": mode, "seed": 7},
            buffer={"type": "sql", "url": postgresql, "label": "launches", "capacity": 32, "read_timeout": 300},
            schedule={"total_steps": 6, "evaluate_at_start": False},
            data={"eval": []},
            checkpoint={"every": 2},
        )
        file = tmp_path / f"{mode}.yaml"
        file.write_text(json.dumps(to_plain(config)))
        return subprocess.Popen(
            [sys.executable, "-m", "rlctl", "launch", str(file)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    explorer, trainer = launch("rollout_only"), launch("train_only")
    deadline = time.monotonic() + 400
    while len([e for e in events_of(tmp_path / "train_only") if e["kind"] == "step"]) < 3:
        assert trainer.poll() is None, trainer.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(trainer.pid, signal.SIGKILL)
    trainer.wait()
    trainer = launch("train_only")
    for process in (explorer, trainer):
        _, told = process.communicate(timeout=400)
        assert process.returncode == 0, told
    steps = [event["step"] for event in events_of(tmp_path / "train_only") if event["kind"] == "step"]
    assert sorted(set(steps)) == [1, 2, 3, 4, 5, 6]
    drawn = {name: responses_of(tmp_path / name) for name in ("rollout_only", "train_only")}
    assert drawn["train_only"] == drawn["rollout_only"], "every group once, in order, whatever was killed"
    versions = [
        e["metrics"]["buffer/weight_version"] for e in events_of(tmp_path / "rollout_only") if e["kind"] == "step"
    ]
    assert versions[-1] > 0
