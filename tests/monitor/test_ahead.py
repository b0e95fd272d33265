"""A log read in a separate process is the log that this process would read."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rlctl.common.messages.reasons import Said, said
from rlctl.monitor import ahead
from rlctl.monitor.ahead import reading_ahead, write_batches
from rlctl.monitor.log import CHUNK
from rlctl.monitor.watching import RunView
from rlctl.runtime.reporting.events import Events

STEPS = 8000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose log is read in several batches."""
    events = Events(tmp_path / "events.jsonl", lambda event: None)
    events.emit("stage_started", step=0, total_steps=STEPS)
    events.advise(said("events.jsonl cannot be written: {error}", error="disk full"))
    for step in range(1, STEPS + 1):
        events.emit("phase", step=step - 1, name="rollout")
        events.emit("step", step=step, total_steps=STEPS, metrics={"reward/mean": step / 7, "x": 1.0, "y" * 200: None})
    events.close()
    assert (tmp_path / "events.jsonl").stat().st_size > 2 * CHUNK
    return tmp_path


def taken(run: Path, most: int = 1000) -> RunView:
    """What is known after so many batches of the other process."""
    view = RunView(run)
    with reading_ahead(run) as batches:
        for place, (log, batch) in enumerate(batches, 1):
            view.log = log
            view.take(batch)
            if place == most:
                break
    return view


def shown(view: RunView) -> tuple[object, ...]:
    assert view.stage is not None
    table = view.stage.steps
    columns = {name: column.tobytes() for name, column in table.columns.items()}
    return list(table.steps), columns, list(view.events), view.events_told, view.stage.total_steps, view.phase


def test_the_batches_are_those_of_this_process(run: Path) -> None:
    view = taken(run)
    assert view.behind == 0
    assert shown(view) == shown(RunView(run).read_whole())
    assert isinstance(view.events[-1]["message"], Said)


def test_reading_continues_where_the_other_process_was(run: Path) -> None:
    view = taken(run, most=1)
    assert 0 < view.log.position < view.log.size
    assert shown(view.read_whole()) == shown(RunView(run).read_whole())


def test_a_process_that_is_killed_ends_its_batches(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **how: object) -> None:
            super().__init__(*args, **how)  # type: ignore[call-overload]
            started.append(self)

    monkeypatch.setattr(ahead.subprocess, "Popen", Kept)
    with reading_ahead(run) as batches:
        next(batches)
        os.kill(started[0].pid, signal.SIGKILL)
        started[0].wait()
        assert len(list(batches)) < RunView(run).log.size // CHUNK
    with reading_ahead(run):
        pass
    assert started[1].returncode == -signal.SIGKILL, "a process whose reader has ended is gone"


def test_without_another_process_there_are_no_batches(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead.sys, "executable", str(run / "python"))
    assert shown(taken(run).read_whole()) == shown(RunView(run).read_whole())
    assert taken(run).log.position == 0


def test_what_is_not_there_is_written_as_nothing(tmp_path: Path) -> None:
    out = io.BytesIO()
    write_batches(tmp_path, out)
    assert out.getvalue() == b""
