"""Every line of an event log is JSON, whatever was measured and however the writer before ended; writing never stops a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.reporting.events import Events


def test_numbers_that_json_lacks_are_written_by_name(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    events = Events(tmp_path / "events.jsonl", seen.append)
    events.enter_stage("grpo")
    metrics = {
        "policy/loss": math.nan,
        "policy/grad_norm": math.inf,
        "reward/mean": 0.5,
        "more": [-math.inf, (1, math.nan)],
    }
    events.emit("step", step=1, metrics=metrics, folder=tmp_path)
    events.close()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    [event] = [json.loads(line, parse_constant=refuse) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert event["metrics"] == {
        "policy/loss": "nan",
        "policy/grad_norm": "inf",
        "reward/mean": 0.5,
        "more": ["-inf", [1, "nan"]],
    }
    assert (event["kind"], event["stage"], event["folder"]) == ("step", "grpo", str(tmp_path))
    assert seen[0]["metrics"] == event["metrics"]


@pytest.mark.parametrize("cut", ['{"kind": "st', '{"text": "' + "a" * 3_000_000, ""])
def test_a_line_that_a_crash_cut_off_is_removed_and_whole_ones_stay(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "step", "step": 1}\n' + cut)
    events = Events(path, lambda event: None)
    events.emit("resumed", step=1)
    events.close()
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["step", "resumed"]


def test_a_full_disk_is_told_once_and_stops_nothing() -> None:
    seen: list[dict[str, Any]] = []
    events = Events(Path("/dev/full"), seen.append)
    for step in (1, 2):
        events.emit("step", step=step)
    events.close()
    kinds = [event["kind"] for event in seen]
    assert kinds == ["advisory", "step", "step"]
    assert "No space left on device" in seen[0]["message"]


def test_a_log_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"):
        Events(tmp_path / "nowhere" / "events.jsonl", lambda event: None)


def test_a_phase_outside_of_the_steps_is_timed(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with Events(tmp_path / "events.jsonl", seen.append).timed("start"):
        pass
    assert [(event["kind"], event["name"]) for event in seen] == [("phase", "start"), ("phase_ended", "start")]
    assert 0 <= seen[1]["seconds"] < 10
