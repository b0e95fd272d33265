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
from rlctl.config import Config
from rlctl.errors import RunError
from rlctl.runtime.stopping import StopSwitch


def limited(config: Config, **limits: Any) -> Config:
    return replace(config, run=replace(config.run, **limits))


@pytest.mark.ray
def test_sessions_of_one_run(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    config = task.config(tmp_path, objective="sft", schedule={"total_steps": 6}, checkpoint={"every": 100})
    folder = runs.folder_of(config)

    def stop_after_the_first_step(event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            runs.stop(runs.inspect(folder))

    def stop_now(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and event["name"] == "train":
            runs.stop(runs.inspect(folder), now=True)

    def steps(ran: Any) -> list[int]:
        return [event["step"] for event in ran.kinds("step")]

    def saved() -> list[str]:
        return sorted(path.name for path in (folder / "checkpoints" / "main").glob("step-*"))

    asked = run(config, watch=stop_after_the_first_step)
    assert (asked.result.status, steps(asked), saved()) == ("stopped", [1], ["step-000001"])

    at_once = run(config, watch=stop_now)
    assert (at_once.result.status, steps(at_once), saved()) == ("stopped", [], ["step-000001"])
    assert runs.inspect(folder).status == "stopped"

    counted = run(limited(config, max_steps_this_session=2))
    assert (counted.result.status, steps(counted), saved()[-1]) == ("stopped", [2, 3], "step-000003")

    timed = run(limited(config, time_limit=0.001))
    assert (timed.result.status, steps(timed), saved()[-1]) == ("stopped", [4], "step-000004")

    other = replace(config, batch=replace(config.batch, prompts_per_step=4))
    with pytest.raises(RunError, match=r"another config:\n  batch.prompts_per_step: 8 -> 4\n") as refused:
        run(other)
    assert "--new" in refused.value.hint

    last = run(config)
    assert (last.result.status, steps(last)) == ("finished", [5, 6])
    with pytest.raises(RunError, match="is finished"):
        run(config)
    with pytest.raises(RunError, match="nothing to resume"):
        runs.resume(runs.inspect(folder), observer=lambda event: None)


def test_the_first_signal_is_remembered_and_the_second_interrupts(tmp_path: Path) -> None:
    switch = StopSwitch(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    with switch.on_signals():
        assert not switch.now()
        os.kill(os.getpid(), signal.SIGTERM)
        assert switch.now()
        assert switch.after_step()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == before


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
