"""A run ends when it is asked to: at once, after its step, after so long or so many steps; and goes on when it is launched again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl import runs
from rlctl.common.errors import RunError
from rlctl.config import Config
from rlctl.runs.record import Record, write_record
from rlctl.runs.rollback import go_back
from rlctl.runs.starting import where_it_began
from rlctl.runtime.stopping import CHECKPOINT_FILE, StopSwitch
from tests.runtime.local import launch_here


def limited(config: Config, **limits: Any) -> Config:
    return replace(config, run=replace(config.run, **limits))


def test_sessions_of_one_run(task: Any, tmp_path: Path) -> None:
    config = task.config(tmp_path, objective="sft", schedule={"total_steps": 6}, checkpoint={"every": 100})
    folder = runs.folder_of(config)

    def stop_after_the_first_step(event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            runs.stop(runs.inspect(folder))

    def session(config: Config, watch: Callable[[dict[str, Any]], None] = lambda event: None) -> tuple[Any, ...]:
        """How a session ends, the steps that it took, and the newest checkpoint."""
        steps: list[int] = []

        def observe(event: dict[str, Any]) -> None:
            watch(event)
            if event["kind"] == "step":
                steps.append(event["step"])

        status = launch_here(config, observe).status
        return status, steps, max(path.name for path in (folder / "checkpoints" / "main").glob("step-*"))

    assert session(config, stop_after_the_first_step) == ("stopped", [1], "step-000001")
    assert session(limited(config, max_steps_this_session=2)) == ("stopped", [2, 3], "step-000003")
    assert session(limited(config, time_limit=0.001)) == ("stopped", [4], "step-000004")
    assert runs.inspect(folder).status == "stopped"
    assert runs.inspect(folder).directory == str(Path.cwd())

    other = replace(config, batch=replace(config.batch, prompts_per_step=4))
    with pytest.raises(RunError, match=r"a different config:\n  batch.prompts_per_step: 8 -> 4\n") as refused:
        launch_here(other)
    assert "--new" in refused.value.hint

    assert [kept.step for kept in runs.checkpoints(folder)] == [4, 3, 1]
    with pytest.raises(RunError, match="no complete checkpoint of step 2") as refused:
        go_back(config, folder, 2)
    assert refused.value.hint.endswith("4, 3, 1")
    go_back(config, folder, 3)

    def save_after_step_five(event: dict[str, Any]) -> None:
        if event["kind"] == "step" and event["step"] == 5:
            runs.checkpoint(runs.inspect(folder))

    assert session(config, save_after_step_five) == ("finished", [4, 5, 6], "step-000006")
    saved = sorted(path.name for path in (folder / "checkpoints" / "main").glob("*-0*"))
    assert saved == ["aside-000004", *(f"step-{step:06d}" for step in (1, 3, 5, 6))], "none that nobody asked for"
    assert runs.checkpoints(folder) == []
    assert not (folder / CHECKPOINT_FILE).exists()
    with pytest.raises(RunError, match="is not running; it is finished"):
        runs.checkpoint(runs.inspect(folder))
    with pytest.raises(RunError, match="is finished"):
        launch_here(config)
    with pytest.raises(RunError, match="nothing to resume"):
        runs.resume(runs.inspect(folder), observer=lambda event: None)
    assert "nothing to resume" in runs.resume_apart(folder).refused(within=60)


def test_relative_paths_of_a_run_are_from_where_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, elsewhere, folder = tmp_path / "begun", tmp_path / "elsewhere", tmp_path / "runs" / "demo"
    for path in (begun, elsewhere, folder):
        path.mkdir(parents=True)
    write_record(folder, Record("demo", "stopped", 1, "host", 0.0, directory=str(begun)))
    monkeypatch.chdir(elsewhere)
    with where_it_began(runs.inspect(Path("../runs/demo"))) as found:
        assert (Path.cwd(), found) == (begun, folder)
    assert Path.cwd() == elsewhere
    begun.rmdir()
    with where_it_began(runs.inspect(Path("../runs/demo"))) as found:
        assert (Path.cwd(), found) == (elsewhere, Path("../runs/demo"))


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_told_and_remembered_and_the_second_interrupts(
    tmp_path: Path, first: signal.Signals
) -> None:
    told: list[str] = []
    switch, before = StopSwitch(tmp_path), signal.getsignal(first)
    with switch.on_signals(told.append):
        signal.signal(first, lambda number, frame: pytest.fail("as Ray does"))
        switch.take_signals()
        assert not switch.now()
        os.kill(os.getpid(), first)
        assert switch.now()
        assert switch.after_step()
        with pytest.raises(KeyboardInterrupt), switch.interrupted_by(2):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # while all is put away
    assert signal.getsignal(first) == before
    assert [message.split(":")[0] for message in told] == [first.name]


def test_where_nobody_asks_the_first_signal_interrupts(tmp_path: Path) -> None:
    switch = StopSwitch(tmp_path)
    with switch.on_signals():
        with pytest.raises(KeyboardInterrupt), switch.interrupted_by(1):
            os.kill(os.getpid(), signal.SIGINT)
        assert switch.now()
        with pytest.raises(KeyboardInterrupt), switch.interrupted_by(1):
            pytest.fail("one that came before is not forgotten")


def test_under_nohup_a_lost_terminal_is_no_signal(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        switch = StopSwitch(tmp_path)
        with switch.on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not switch.now()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_stop_file_a_limit_of_time_and_a_limit_of_steps_end_the_run_after_its_step(tmp_path: Path) -> None:
    assert not StopSwitch(tmp_path).after_step()
    assert not StopSwitch(tmp_path, time_limit=60.0, max_steps=1).after_step()
    assert StopSwitch(tmp_path, time_limit=-1.0).after_step()
    counting = StopSwitch(tmp_path, max_steps=2)
    for expected in (False, True):
        counting.step_over()
        assert counting.after_step() is expected
    (tmp_path / "stop").touch()
    asked = StopSwitch(tmp_path)
    assert asked.after_step()
    assert not asked.now()
