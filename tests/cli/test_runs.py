"""``runs`` reads run folders alone: it lists, shows, follows, stops and removes runs that this process knows nothing of."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from rlctl.runs.inspection import CHECKPOINT_FILE, STOP_FILE
from rlctl.runs.record import began

EVENTS: list[dict[str, Any]] = [
    {"kind": "run_started", "run": "done", "folder": "x"},
    {"kind": "stage_started", "stage": "main", "step": 0, "total_steps": 2},
    {"kind": "evaluation", "stage": "main", "step": 0, "metrics": {"evaluation/gsm8k/accuracy": 0.25}},
    {"kind": "step", "stage": "main", "step": 1, "total_steps": 2, "metrics": {"reward/mean": 0.5}},
    {"kind": "step", "stage": "main", "step": 2, "total_steps": 2, "metrics": {"reward/mean": 0.75}},
    {"kind": "evaluation", "stage": "main", "step": 2, "metrics": {"evaluation/gsm8k/accuracy": 0.5}},
    {"kind": "stage_ended", "stage": "main", "step": 2, "seconds": {"rollout": 30.0, "train": 10.0}, "tokens": 4000,
     "evaluated": {"first": {"evaluation/gsm8k/accuracy": 0.25}, "last": {"evaluation/gsm8k/accuracy": 0.5}}},
]  # fmt: skip


def make_run(folder: Path, name: str, status: str, **record: Any) -> Path:
    """A run folder as a run leaves it."""
    run = folder / name
    run.mkdir(parents=True)
    known = {"name": name, "status": status, "pid": 1, "host": socket.gethostname(), "started": time.time() - 60}
    (run / "run.json").write_text(json.dumps({**known, "ended": time.time(), "cause": "", **record}))
    (run / "events.jsonl").write_text("".join(json.dumps({"time": time.time(), **event}) + "\n" for event in EVENTS))
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_run(tmp_path, "done", "finished")
    make_run(tmp_path, "broken", "failed", cause="the disk is full")
    return tmp_path


def alive(folder: Path, name: str) -> Path:
    """A run whose process is this one."""
    return make_run(folder, name, "running", pid=os.getpid(), process_began=began(os.getpid()), ended=None)


def test_runs_are_listed(rlctl: Any, folder: Path) -> None:
    shown = rlctl("runs", "list", "--folder", str(folder))
    rows = {line.split()[0]: line.split() for line in shown.out.splitlines()[2:]}
    assert rows["done"][1:4] == ["finished", "main", "2/2"]
    assert rows["broken"][1] == "failed"
    listed = json.loads(rlctl("runs", "list", "--folder", str(folder), "--json").out)
    assert {run["name"] for run in listed} == {"done", "broken"}


def test_brackets_in_names_are_text(rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EVENTS[-1], "stage", "warm[up]")
    run = make_run(tmp_path / "runs[v2]", "done", "finished")
    assert str(run) in rlctl("runs", "list", "--folder", str(run.parent)).out
    shown = rlctl("runs", "show", str(run)).out
    assert str(run) in shown
    assert "warm[up]" in shown


def test_no_runs_are_no_error(rlctl: Any, tmp_path: Path) -> None:
    shown = rlctl("runs", "list", "--folder", str(tmp_path / "none"))
    assert (shown.code, shown.out) == (0, "")


def test_a_run_shows_what_it_learned_and_where_its_time_went(rlctl: Any, folder: Path) -> None:
    shown = rlctl("runs", "show", "done", "--folder", str(folder))
    assert shown.code == 0
    assert "gsm8k accuracy 0.250 -> 0.500" in shown.out
    assert "rollout 75%" in shown.out
    assert "train 25%" in shown.out
    assert "100" in shown.out
    found = json.loads(rlctl("runs", "show", str(folder / "done"), "--json").out)
    assert found["stages"]["main"]["tokens"] == 4000


def test_a_failed_run_shows_its_cause_and_how_to_go_on(rlctl: Any, folder: Path) -> None:
    shown = rlctl("runs", "show", "broken", "--folder", str(folder))
    assert "the disk is full" in shown.out
    assert "rlctl runs resume" in shown.err


def test_a_run_that_is_not_there_names_the_nearest(rlctl: Any, folder: Path) -> None:
    shown = rlctl("runs", "show", "brokn", "--folder", str(folder))
    assert shown.code == 1
    assert "broken" in shown.err


def test_following_a_run_that_is_over_tells_it_all(rlctl: Any, folder: Path) -> None:
    shown = rlctl("runs", "follow", "done", "--folder", str(folder))
    assert shown.code == 0
    assert "main: step 2/2  reward 0.75" in shown.err
    assert "finished" in shown.err.splitlines()[-1]
    lines = rlctl("runs", "follow", "done", "--folder", str(folder), "--json").out.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == [event["kind"] for event in EVENTS]


def test_stopping_asks_the_run(rlctl: Any, folder: Path) -> None:
    run = alive(folder, "live")
    shown = rlctl("runs", "stop", "live", "--folder", str(folder))
    assert shown.code == 0
    assert (run / STOP_FILE).exists()
    assert rlctl("runs", "stop", "done", "--folder", str(folder)).code == 1


def test_a_checkpoint_is_asked_for(rlctl: Any, folder: Path) -> None:
    run = alive(folder, "live")
    assert rlctl("runs", "checkpoint", "live", "--folder", str(folder)).code == 0
    assert (run / CHECKPOINT_FILE).exists()
    assert not (run / STOP_FILE).exists()
    refused = rlctl("runs", "checkpoint", "done", "--folder", str(folder))
    assert refused.code == 1
    assert "is not running; it is finished" in refused.err


def test_removing_needs_a_yes(rlctl: Any, folder: Path) -> None:
    refused = rlctl("runs", "remove", "done", "--folder", str(folder))
    assert refused.code == 2
    assert "--yes" in refused.err
    assert rlctl("runs", "remove", "done", "--folder", str(folder), "--yes").code == 0
    assert not (folder / "done").exists()
    alive(folder, "live")
    assert rlctl("runs", "remove", "live", "--folder", str(folder), "--yes").code == 1


def test_a_finished_run_is_not_resumed(rlctl: Any, folder: Path) -> None:
    shown = rlctl("runs", "resume", "done", "--folder", str(folder))
    assert shown.code == 1
    assert "finished" in shown.err


DAMAGED = ["", "{", "[]", "{}", '{"name": 1}']


@pytest.mark.parametrize("content", DAMAGED)
@pytest.mark.parametrize("command", ["show", "follow", "checkpoint", "stop", "resume", "remove"])
def test_a_damaged_record_is_a_clean_error(rlctl: Any, folder: Path, command: str, content: str) -> None:
    (folder / "done" / "run.json").write_text(content)
    yes = ["--yes"] if command == "remove" else []
    shown = rlctl("runs", command, "done", "--folder", str(folder), *yes)
    assert shown.code == 1
    assert "bug in rlctl" not in shown.err, shown.err


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_record_does_not_hide_other_runs(rlctl: Any, folder: Path, content: str) -> None:
    (folder / "done" / "run.json").write_text(content)
    shown = rlctl("runs", "list", "--folder", str(folder))
    assert shown.code == 0
    assert "broken" in shown.out


def test_a_run_tells_what_it_is_at_and_what_looks_wrong(rlctl: Any, tmp_path: Path) -> None:
    run = alive(tmp_path, "now")
    with (run / "events.jsonl").open("a") as file:
        for step in range(3, 6):
            metrics = {"group/equal_share": 0.75, "time/rollout": 8.0, "time/step": 10.0}
            told = {"kind": "step", "stage": "main", "step": step, "total_steps": 8, "metrics": metrics}
            file.write(json.dumps({"time": time.time(), **told}) + "\n")
        file.write(json.dumps({"time": time.time() - 3, "kind": "phase", "stage": "main", "name": "rollout"}) + "\n")
        file.write(
            json.dumps({"time": time.time(), "kind": "stage_started", "stage": "main", "total_steps": 8, "step": 5})
            + "\n"
        )
    shown = rlctl("runs", "show", "now", "--folder", str(tmp_path))
    assert "rollout for" in shown.out
    assert "usually 8s" in shown.out
    assert "about 30s left" in shown.out
    assert "75% of the groups have equal rewards" in shown.err
    assert "algorithm.filters" in shown.err
    found = json.loads(rlctl("runs", "show", "now", "--folder", str(tmp_path), "--json").out)
    assert found["now"]["phase"] == "rollout"
    assert found["now"]["seconds_left"] == 30.0
    assert [item["code"] for item in found["advice"]] == ["equal-groups"]
