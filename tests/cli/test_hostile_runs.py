"""Run folders that anyone may have written, and links: a clear message, and nothing deleted that was not named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

DAMAGED: list[Any] = [
    {"kind": "step", "step": "x"},
    {"kind": "step", "step": None, "metrics": None},
    {"kind": "step", "step": 10**400, "metrics": {}},
    {"kind": "step", "step": 1, "total_steps": "many", "metrics": {"time/step": 1}},
    {"kind": "step", "step": 1, "total_steps": 3, "metrics": {"time/step": 1e999, "reward/mean": 10**400}},
    {"kind": "step", "step": 1, "total_steps": 3, "metrics": {"time/step": float("nan"), "reward/mean": "high"}},
    {"kind": "step", "step": 1, "metrics": [1]},
    {"kind": "stage_started", "step": [], "total_steps": {}},
    {"kind": "evaluation", "step": 1, "metrics": {"evaluation/x/accuracy": "good", "evaluation/y/reward": None}},
    {"kind": "evaluation", "step": {}, "metrics": 3},
    {"kind": "changes_accepted", "changes": 3},
    {"kind": "changes_accepted", "changes": [1, {}], "step": 1},
    {"kind": "advisory", "message": 3, "hint": []},
    {"kind": "checkpoint", "step": [], "folder": {}},
    {"kind": ["step"], "stage": {"a": 1}},
    {"kind": "phase", "name": 3, "time": "now"},
    {"kind": "samples", "samples": "none"},
    [],
    3,
    "\x1b]0;x\x07",
]


def write_run(folder: Path, events: list[Any] = []) -> Path:  # noqa: B006
    folder.mkdir(parents=True)
    record = {"name": "demo", "status": "finished", "pid": 1, "host": "x", "started": 1.0, "ended": 2.0}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    return folder


@pytest.mark.parametrize("event", DAMAGED, ids=lambda event: json.dumps(event)[:60])
@pytest.mark.parametrize("words", [["follow"], ["follow", "--json"], ["show"], ["show", "--json"]], ids=" ".join)
def test_a_damaged_event_is_passed_over(rlctl: Any, tmp_path: Path, words: list[str], event: Any) -> None:
    whole = {"kind": "step", "step": 2, "total_steps": 3, "metrics": {"reward/mean": 0.5}, "stage": "main"}
    run = write_run(tmp_path / "demo", [event, whole])
    done = rlctl("runs", words[0], str(run), *words[1:])
    assert done.code == 0, done.err
    assert "bug in rlctl" not in done.err
    assert "\x1b" not in done.out
    if words == ["follow"]:
        assert "0.5" in done.err


def test_a_link_is_not_removed_nor_what_it_leads_to(rlctl: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "elsewhere" / "demo")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(run)
    done = rlctl("runs", "remove", "link", "--folder", str(tmp_path / "runs"), "--yes")
    assert done.code == 1
    assert f"is a link to {run}" in done.err
    assert (run / "run.json").exists()
    assert (tmp_path / "runs" / "link").is_symlink()
    done = rlctl("runs", "remove", str(run), "--yes")  # as the message says
    assert done.code == 0, done.err
    assert not run.exists()


def test_a_link_in_a_run_is_removed_and_not_followed(rlctl: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    run = write_run(tmp_path / "demo")
    (run / "checkpoints").symlink_to(tmp_path / "mine")
    assert rlctl("runs", "remove", str(run), "--yes").code == 0
    assert (tmp_path / "mine" / "file").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may delete everything")
def test_a_folder_that_cannot_be_deleted_is_told(rlctl: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "demo")
    run.chmod(0o500)
    done = rlctl("runs", "remove", str(run), "--yes")
    run.chmod(0o700)
    assert done.code == 1
    assert "cannot be deleted" in done.err
    assert "bug in rlctl" not in done.err
