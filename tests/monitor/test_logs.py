"""Logs are read from their ends, incrementally, and what looks like an error is known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rlctl.monitor import logs
from rlctl.monitor.logs import LogTail, line_of, logs_of


def test_the_logs_of_a_run(tmp_path: Path) -> None:
    for name in ("policy-0.log", "controller.log", "10.0.0.1/rollout-0.log", "empty.log", "other.txt"):
        path = tmp_path / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if name == "empty.log" else "x\n")
    assert [log.name for log in logs_of(tmp_path)] == ["controller", "10.0.0.1/rollout-0", "policy-0"]
    assert logs_of(tmp_path / "nowhere") == []


def test_a_long_log_is_read_from_its_end_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "policy-0.log"
    with path.open("w") as file:
        for number in range(40_000):
            file.write(f"line {number} of a log that is rather long\n")
    tail = LogTail(path)
    began = time.process_time()
    while tail.poll():
        pass
    assert time.process_time() - began < 10
    assert tail.lines[-1].text == "line 39999 of a log that is rather long"
    assert tail.lines[0].text.startswith("line ")
    assert 0 < len(tail.lines) < 10_000
    assert tail.skipped > 0
    few = len(tail.lines)
    tail.earlier()
    assert len(tail.lines) == pytest.approx(2 * few, rel=0.05)
    with path.open("a") as file:
        file.write("not whole")
        file.flush()
        assert tail.poll()
        assert tail.lines[-1].text.startswith("line 39999")
        file.write(" yet\n\n你好\r\n")
    assert tail.poll()
    assert [line.text for line in list(tail.lines)[-3:]] == ["not whole yet", "", "你好"]
    assert not tail.poll()


def test_a_log_that_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("one\ntwo\n")
    tail = LogTail(path)
    tail.poll()
    path.write_text("new\n")
    tail.poll()
    assert [line.text for line in tail.lines] == ["new"]


def test_a_bar_of_progress_without_an_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHUNK", 100)
    path = tmp_path / "x.log"
    path.write_text("".join(f"\r{number}%" for number in range(101)) + "\n")
    tail = LogTail(path)
    while tail.poll():
        assert len(tail._rest) <= 100
    assert [line.text for line in tail.lines] == ["100%"]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Traceback (most recent call last):", "error"),
        ("ValueError: no such thing", "error"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", "error"),
        ("ERROR rlctl: it failed", "error"),
        ("finished with 0 errors", ""),
        ("mean squared terror", ""),
        ("WARNING vllm: slow", "warning"),
        ("FutureWarning: use another", "warning"),
        ("INFO step 3", ""),
    ],
)
def test_what_looks_like_an_error(text: str, level: str) -> None:
    assert line_of(text).level == level


def test_controls_of_a_terminal_are_left_out_and_lines_are_cut() -> None:
    assert line_of("\x1b[31mred\x1b[0m\x07 10%\r 20%").text == " 20%"
    assert line_of("\x1b[1;31mred\x1b[0m").text == "red"
    assert len(line_of("x" * 10_000).text) == logs.LONGEST


def test_lines_are_found_by_an_expression_letters_or_their_level(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("a step(\nERROR one\nwarning: two\n")
    tail = LogTail(path)
    tail.poll()

    def found(wanted: str, level: str = "") -> list[str]:
        return [line.text for line in tail.matching(wanted, level=level)]

    assert found("one|two") == ["ERROR one", "warning: two"]
    assert found("step(") == ["a step("]
    assert found("", "error") == ["ERROR one"]
    assert found("two", "error") == []
