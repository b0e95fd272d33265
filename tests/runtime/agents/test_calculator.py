"""The calculator preset as a user starts it: a tiny model learns to call its tool."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.agents.made import CALCULATOR


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_a_tiny_model_learns_to_call_the_calculator(tmp_path: Path) -> None:
    shutil.copytree(CALCULATOR, tmp_path / "presets/calculator")
    rlctl = [sys.executable, "-m", "rlctl", "launch", "presets/calculator/calculator.yaml"]
    for command in (
        [sys.executable, "presets/calculator/make_task.py", "calculator"],
        [*rlctl, "--set", "run.folder=runs"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    lines = (tmp_path / "runs/calculator/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    accuracy = [e["metrics"]["evaluation/products/accuracy"] for e in events if e["kind"] == "evaluation"]
    steps = [e["metrics"] for e in events if e["kind"] == "step" and "agent/calls" in e["metrics"]]
    assert accuracy[-1] > accuracy[0] + 0.2
    assert steps[0]["agent/calls"] < 0.7
    assert steps[-1]["agent/calls"] > 0.95
    assert steps[-1]["agent/token_drift"] < 0.1
