"""Progress is read off events alone, says a line a step where nobody watches, and knows how long it will take."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from rich.console import Console

from rlctl.cli import summary
from rlctl.cli.progress import Progress, duration, number

EVENTS: list[dict[str, Any]] = [
    {"kind": "run_started", "run": "demo", "folder": "runs/demo"},
    {"kind": "stage_started", "stage": "grpo", "step": 0, "total_steps": 4},
    {"kind": "evaluation", "stage": "grpo", "step": 0, "metrics": {"evaluation/gsm8k/accuracy": 0.125}},
    {"kind": "phase", "stage": "grpo", "step": 1, "name": "rollout"},
    {"kind": "step", "stage": "grpo", "step": 1, "total_steps": 4, "metrics": {"reward/mean": 0.5, "time/step": 20.0}},
    {"kind": "step", "stage": "grpo", "step": 2, "total_steps": 4, "metrics": {"reward/mean": 0.75, "time/step": 40.0}},
    {"kind": "checkpoint", "stage": "grpo", "step": 2, "folder": "runs/demo/checkpoints/grpo/2"},
    {"kind": "advisory", "stage": "grpo", "message": "the disk is nearly full", "hint": "free some"},
    {"kind": "something_new", "stage": "grpo"},
]


def test_elsewhere_there_is_a_line_for_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        for event in EVENTS:
            progress(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "grpo: 4 steps",
        "grpo: step 0  gsm8k accuracy 0.125",
        "grpo: step 1/4  reward 0.5  1m 00s left",
        "grpo: step 2/4  reward 0.75  1m 00s left",
        "grpo: saved at step 2: runs/demo/checkpoints/grpo/2",
        "grpo: the disk is nearly full (free some)",
    ]


def test_nobody_knows_the_steps_of_a_run_that_ends_when_its_buffer_is_dry(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress({"kind": "stage_started", "stage": "main", "step": 0, "total_steps": None})
        progress({"kind": "step", "stage": "main", "step": 1, "total_steps": None, "metrics": {"time/step": 2.0}})
    assert capsys.readouterr().err.splitlines() == ["main: until the buffer is dry", "main: step 1"]


def test_a_reward_that_tells_no_right_answers_is_shown_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """A function that returns a float, as verl's usually do: there is no accuracy."""
    first = {"evaluation/maths/hard/reward": 0.25, "evaluation/maths/hard/length_mean": 9.0, "evaluation/b/best@4": 1.0}
    both = {"evaluation/code/reward": 0.5, "evaluation/code/accuracy": 0.75}
    with Progress() as progress:
        progress({"kind": "evaluation", "stage": "main", "step": 3, "metrics": first | both})
    assert capsys.readouterr().err == "main: step 3  maths/hard reward 0.250  code accuracy 0.750\n"
    stage = {"evaluated": {"first": {"evaluation/maths/reward": 0.25}, "last": {"evaluation/maths/reward": 0.5}}}
    assert summary.evaluation(stage) == "maths reward 0.250 -> 0.500"


def test_changes_that_are_accepted_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress({"kind": "changes_accepted", "stage": "main", "step": 3, "changes": ["a: changed", "b: is gone"]})
    assert capsys.readouterr().err == (
        "main: continues from step 3 with changed training data, as --accept-changes says:\n  a: changed\n  b: is gone\n"
    )


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(quiet=True) as progress:
        for event in EVENTS:
            progress(event)
    assert capsys.readouterr().err == ""


def test_the_display_shows_phase_step_numbers_and_time_left() -> None:
    progress = Progress(quiet=True)
    for event in EVENTS:
        progress(event)
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - what it prints is recorded
    console.print(progress.renderable())
    shown = console.export_text()
    for part in ("grpo", "step 2/4", "1m 00s left", "rollout", "reward 0.75", "gsm8k accuracy 0.125"):
        assert part in shown


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_live_display_takes_in_what_others_write_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as progress:
        for event in EVENTS:
            progress(event)
        print("a warning of some library", file=sys.stderr)
    shown = terminal.getvalue()
    assert "step 2/4" in shown
    assert "a warning of some library" in shown
    assert sys.stderr is terminal


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (59.6, "1m 00s"), (3600, "1h 00m"), (7500, "2h 05m")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.123456, "0.1235"), (12345.6, "12,346"), ("nan", "nan"), (3, "3")])
def test_numbers(value: Any, text: str) -> None:
    assert number(value) == text


def test_a_line_comes_every_so_many_steps_and_at_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(every=3) as progress:
        for step in range(1, 8):
            progress(
                {"kind": "step", "stage": "main", "step": step, "total_steps": 7, "metrics": {"reward/mean": step}}
            )
    assert re.findall(r"step (\d)/7", capsys.readouterr().err) == ["3", "6", "7"]
    assert progress.metrics == {"reward/mean": 7}, "the display has every step's numbers"
