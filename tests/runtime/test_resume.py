"""A run that is killed, interrupted or damaged goes on to the very numbers of one that was not, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlctl import runs
from rlctl.runtime.checkpoints.checkpoint import read_checkpoint
from tests.runtime.told import Numbers, events_of, numbers_of

pytestmark = pytest.mark.ray

SECONDS = 12.0
"""From a signal to the end of everything; a run itself aims at under 10, and the machine may be busy."""


def numbers(folder: Path) -> Numbers:
    return numbers_of(events_of(folder))


def weights(folder: Path, stage: str) -> bytes:
    return (folder / "checkpoints" / stage / "hf" / "model.safetensors").read_bytes()


def ended_after(folder: Path, ended: Any) -> float:
    """Seconds from the signal to the event that says that the run is over and its workers are gone."""
    last = json.loads((folder / "events.jsonl").read_text().splitlines()[-1])
    assert last["kind"] == "run_ended"
    return float(last["time"]) - ended.sent


def killed(session: Callable[..., Any], config: Any, at: Sequence[Any], after: float = 0.0) -> None:
    """Run until it is killed at an event; nothing of it is left then."""
    ended = session(config, at=at, after=after)
    assert ended.process.returncode == -signal.SIGKILL, ended.err
    assert ended.survivors() == []
    assert runs.inspect(runs.folder_of(config)).status == "interrupted"


def test_a_run_that_is_stopped_then_killed_then_damaged_ends_as_the_one_that_was_not(
    task: Any, whole: Any, run: Callable[..., Any], session: Callable[..., Any], tmp_path: Path
) -> None:
    config = task.two_stages(tmp_path)
    folder = runs.folder_of(config)
    sent: list[float] = []

    def interrupt(event: dict[str, Any]) -> None:
        if [event.get(key) for key in ("stage", "kind", "name", "step")] == ["grpo", "phase", "rollout", 1]:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    ended = run(config, watch=interrupt)
    assert (ended.result.status, runs.inspect(folder).status) == ("stopped", "stopped")
    assert ended.ended - sent[0] < SECONDS
    assert not [child.name() for child in psutil.Process().children(recursive=True) if "ray" in child.name()]

    killed(session, config, ("phase", "grpo", 2, "save"), after=0.02)
    checkpoints = folder / "checkpoints" / "grpo"
    newest = max(path for path in checkpoints.iterdir() if read_checkpoint(path))
    cut = max((newest / "policy").iterdir(), key=lambda path: path.stat().st_size)
    cut.write_bytes(cut.read_bytes()[:-1])

    events: list[dict[str, Any]] = []
    result = runs.resume(runs.inspect(folder), observer=events.append)
    assert result.status == "finished", result.cause
    passed_over = [event["message"] for event in events if event["kind"] == "advisory"]
    assert any(str(newest) in message and "damaged or incomplete" in message for message in passed_over), passed_over
    resumed = [event["step"] for event in events if event["kind"] == "resumed"]
    assert resumed == ([1] if newest.name == "step-000002" else [])
    assert numbers(folder) == whole.numbers
    assert weights(folder, "sft") == weights(whole.result.folder, "sft")
    assert weights(folder, "grpo") == weights(whole.result.folder, "grpo")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_the_whole_group_leaves_nothing_behind(
    task: Any, session: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    config = task.two_stages(tmp_path)
    ended = session(config, at=("phase", "sft", None, "start"), send=number, times=2)
    assert ended.out.splitlines()[-1:] == ["ended stopped"], ended.err
    assert ended.survivors(SECONDS) == []

    ended = session(config, at=("phase", "grpo", 1, "rollout"), send=number)
    assert ended.out.splitlines()[-1:] == ["ended stopped"], ended.err
    assert ended_after(runs.folder_of(config), ended) < SECONDS
    assert ended.seconds < 3 * SECONDS, "the interpreter too is gone soon"
    assert ended.survivors(1.0) == []


MOMENTS = [
    (stage, step, phase, after)
    for stage, phases in (
        ("sft", ("data", "train", "save", "export")),
        ("grpo", ("rollout", "reward", "train", "sync", "save", "export")),
    )
    for step in (1, 2)
    for phase in phases
    for after in (0.0, 0.03)
    if phase != "export" or step == 2
]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("stage", "step", "phase", "after"), MOMENTS)
def test_any_moment_is_a_moment_to_be_killed_at(
    task: Any, whole: Any, session: Callable[..., Any], tmp_path: Path, stage: str, step: int, phase: str, after: float
) -> None:
    config = task.two_stages(tmp_path)
    killed(session, config, ("phase", stage, 3 if phase == "export" else step, phase), after)
    result = runs.resume(runs.inspect(runs.folder_of(config)), observer=lambda event: None)
    assert result.status == "finished", result.cause
    assert numbers(result.folder) == whole.numbers
    assert weights(result.folder, "grpo") == weights(whole.result.folder, "grpo")


PHASES = [
    *((None, "read"), ("sft", "start"), ("sft", "data"), ("sft", "train"), ("sft", "save"), ("sft", "export")),
    *(("grpo", name) for name in ("start", "sync", "evaluate", "rollout", "reward", "train", "save", "export")),
]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_an_interrupt_in_any_phase_ends_the_run_which_goes_on_afterwards(
    task: Any, whole: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    config = task.two_stages(tmp_path)
    before = set(os.listdir("/dev/shm"))  # noqa: PTH208 - names alone are compared
    for stage, phase in PHASES:
        sent: list[float] = []

        def interrupt(event: dict[str, Any], stage: str | None = stage, phase: str = phase, sent: Any = sent) -> None:
            if not sent and event["kind"] == "phase" and event["name"] == phase and stage in (None, event.get("stage")):
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

        ended = run(config, watch=interrupt)
        if ended.result.status == "finished":
            assert phase == "export", "a run that is all but over may end"
            break
        assert (ended.result.status, sent != []) == ("stopped", True), (stage, phase, ended.result.cause)
        assert ended.ended - sent[0] < SECONDS, (stage, phase)
        assert not [child.name() for child in psutil.Process().children(recursive=True) if "ray" in child.name()]
        assert set(os.listdir("/dev/shm")) <= before, "shared memory is given back"  # noqa: PTH208
    else:
        result = runs.resume(runs.inspect(runs.folder_of(config)), observer=lambda event: None)
        assert result.status == "finished", result.cause
    folder = runs.folder_of(config)
    assert numbers(folder) == whole.numbers
    assert weights(folder, "grpo") == weights(whole.result.folder, "grpo")
