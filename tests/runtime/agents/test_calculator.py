"""The calculator preset as a user starts it: a tiny model learns to call its tool."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.agents.made import CALCULATOR


def events_of(preset: str, folder: Path) -> list[dict[str, Any]]:
    """The events of a preset's run, named as the preset is."""
    shutil.copytree(CALCULATOR, folder / "presets/calculator")
    rlctl = [sys.executable, "-m", "rlctl", "launch", f"presets/calculator/{preset}.yaml"]
    for command in (
        [sys.executable, "presets/calculator/make_task.py", "calculator"],
        [*rlctl, "--set", "run.folder=runs"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in (folder / f"runs/{preset}/events.jsonl").read_text().splitlines()]


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_a_tiny_model_learns_to_call_the_calculator(tmp_path: Path) -> None:
    events = events_of("calculator", tmp_path)
    accuracy = [e["metrics"]["evaluation/products/accuracy"] for e in events if e["kind"] == "evaluation"]
    steps = [e["metrics"] for e in events if e["kind"] == "step" and "agent/calls" in e["metrics"]]
    assert accuracy[-1] > accuracy[0] + 0.2
    assert steps[0]["agent/calls"] < 0.7
    assert steps[-1]["agent/calls"] > 0.95
    assert steps[-1]["agent/token_drift"] < 0.1


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(3600)
def test_the_model_behind_a_program_learns_without_a_change_to_the_program(tmp_path: Path) -> None:
    events = events_of("program", tmp_path)
    reward = [e["metrics"]["evaluation/products/reward"] for e in events if e["kind"] == "evaluation"]
    assert reward[-1] > reward[0] + 0.3
