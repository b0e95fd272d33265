"""A log is read as it grows: every whole line once, whatever else happens to the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlctl.monitor.log import EventLog


def line(kind: str, **data: Any) -> str:
    return json.dumps({"time": 1.5, "kind": kind, **data}) + "\n"


def kinds(log: EventLog, **how: Any) -> list[str]:
    return [event["kind"] for event in log.read(**how)]


def test_a_line_comes_once_and_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    assert kinds(log) == []
    path.write_text(line("run_started") + line("step")[:20])
    assert kinds(log) == ["run_started"]
    with path.open("a") as file:
        file.write(line("step")[20:])
    assert kinds(log) == ["step"]
    assert kinds(log) == []
    assert log.position == log.size


def test_a_line_longer_than_what_is_read_at_a_time_comes_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line("samples", samples="x" * 5000) + line("step"))
    log = EventLog(path)
    assert kinds(log, most=100) == ["samples"]
    assert kinds(log, most=100) == ["step"]


def test_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"time": 1\n\xff\xfe\n[1]\n{"kind": 3}\n' + line("step").encode())
    assert kinds(EventLog(path)) == ["step"]


def test_a_log_that_was_begun_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line("run_started") + line("step"))
    log = EventLog(path)
    assert not log.begun_anew()
    assert kinds(log) == ["run_started", "step"]
    path.write_text(line("failure"))
    assert log.begun_anew()
    assert kinds(log) == ["failure"]
    assert not log.begun_anew()


def test_one_kind_can_be_passed_over_up_to_a_place(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line("phase") + line("step") + line("phase"))
    assert kinds(EventLog(path), passing_over="phase", before=10) == ["step", "phase"]
    assert kinds(EventLog(path), passing_over="phase", before=10**6) == ["step"]


def test_a_log_begun_anew_is_known_though_it_is_longer_and_has_the_files_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line("step"))
    log = EventLog(path)
    assert kinds(log) == ["step"]
    assert not log.begun_anew()
    path.write_text(json.dumps({"time": 9.5, "kind": "failure"}) + "\n" + line("step") * 3)
    assert log.begun_anew()
    assert kinds(log) == ["failure", "step", "step", "step"]


def test_reading_begins_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line("phase") + line("step") + line("failure"))
    first, second = len(line("phase")), len(line("phase") + line("step"))
    for position, found in [(0, 3), (-5, 3), (1, 2), (first, 2), (first + 1, 1), (second, 1), (second + 1, 0)]:
        log = EventLog(path)
        log.skip_to(position)
        assert len(kinds(log)) == found, position


def test_a_line_too_long_to_be_an_event_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.monitor.log.LONGEST_LINE", 1 << 12)
    log = EventLog(tmp_path / "events.jsonl")
    log.path.write_text('{"kind": "a"}\n' + "x" * (1 << 16) + '\n{"kind": "b"}\n')
    found: list[str] = []
    while len(found) < 2:
        found += [event["kind"] for event in log.read(16)]
    assert found == ["a", "b"]


def test_a_log_that_is_no_regular_file_is_an_error_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        EventLog(tmp_path / "events.jsonl").read()
