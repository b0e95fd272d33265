"""The FrozenLake preset as a user starts it: a tiny model learns to walk over several turns."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FROZENLAKE = Path(__file__).parents[3] / "presets/frozenlake"


@pytest.fixture
def lake() -> object:
    sys.path.insert(0, str(FROZENLAKE))
    try:
        import lake
    finally:
        sys.path.remove(str(FROZENLAKE))
    return lake


def test_evaluation_maps_are_never_those_of_training(lake: object) -> None:
    maps = {
        held_out: {"".join(lake.map_of(seed, held_out=held_out)) for seed in range(200)} for held_out in (True, False)
    }  # type: ignore[attr-defined]
    assert not maps[True] & maps[False]
    assert min(map(len, maps.values())) > 10


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_a_tiny_model_learns_to_cross_unseen_lakes(tmp_path: Path) -> None:
    shutil.copytree(FROZENLAKE, tmp_path / "presets/frozenlake")
    rlctl = [sys.executable, "-m", "rlctl", "launch", "presets/frozenlake/frozenlake.yaml"]
    for command in (
        [sys.executable, "presets/frozenlake/make_task.py", "frozenlake"],
        [*rlctl, "--set", "run.folder=runs"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    lines = (tmp_path / "runs/frozenlake/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    reached = [e["metrics"]["evaluation/unseen_lakes/accuracy"] for e in events if e["kind"] == "evaluation"]
    assert reached[-1] > reached[0] + 0.2
