"""A run is watched from what the runtime itself writes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rlctl.monitor.watching import RunView
from rlctl.runtime.events import Events


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(tmp_path / "events.jsonl", lambda event: None)


def up_to_date(view: RunView) -> RunView:
    while view.poll():
        pass
    return view


def step(events: Events, number: int, **metrics: float) -> None:
    events.emit("phase", step=number - 1, name="rollout")
    events.emit("step", step=number, total_steps=9, metrics={"time/rollout": 2.0, "time/step": 3.0, **metrics})


def test_stages_steps_and_the_phase(tmp_path: Path, events: Events) -> None:
    view = RunView(tmp_path)
    assert view.stage is None
    events.emit("run_started", folder=str(tmp_path), run="demo", stages=["sft", "grpo"])
    for name in ("sft", "grpo"):
        events.enter_stage(name)
        events.emit("stage_started", total_steps=9, step=0, notes=["a note"])
        for number in (1, 2):
            step(events, number, **{"reward/mean": number / 2})
    events.emit("evaluation", step=2, metrics={"evaluation/x/accuracy": 0.5})
    events.emit("sync", step=2, version=2)
    events.emit("phase", step=2, name="rollout")
    up_to_date(view)
    assert list(view.stages) == ["sft", "grpo"]
    assert view.stage is not None
    assert view.stage.name == "grpo"
    assert list(view.stage.steps.series("reward/mean").values) == [0.5, 1.0]
    assert view.stage.evaluations.last("evaluation/x/accuracy") == 0.5
    assert view.stage.weight_version == 2
    assert view.phase is not None
    assert (view.phase.name, view.phase.usual) == ("rollout", 2.0)
    assert 0 <= view.phase.elapsed(time.time()) < 60
    assert view.phase.elapsed(0.0) == 0.0
    events.emit("run_ended", status="finished", cause="", stages={})
    assert up_to_date(view).phase is None


def test_a_resumed_run_tells_its_steps_again(tmp_path: Path, events: Events) -> None:
    events.enter_stage("main")
    events.emit("stage_started", total_steps=9, step=0, notes=[])
    for number in (1, 2, 3):
        step(events, number, loss=1.0)
    events.emit("failure", message="lost", actor="policy-0", traceback="")
    events.emit("run_started", folder=str(tmp_path), run="demo", stages=["main"])
    events.emit("stage_started", total_steps=9, step=1, notes=[])
    view = up_to_date(RunView(tmp_path))
    assert list(view.stages["main"].steps.steps) == [1]
    assert view.failure is None
    step(events, 2, loss=2.0)
    assert list(up_to_date(view).stages["main"].steps.series("loss").values) == [1.0, 2.0]


def test_the_first_failure_is_the_one_that_is_shown(tmp_path: Path, events: Events) -> None:
    events.emit("failure", message="first", actor="rollout-1", traceback="")
    events.emit("failure", message="second", actor="policy-0", traceback="")
    view = up_to_date(RunView(tmp_path))
    assert view.failure is not None
    assert view.failure["message"] == "first"


def test_samples_are_read_when_they_are_looked_at(tmp_path: Path, events: Events) -> None:
    events.enter_stage("grpo")
    events.emit("stage_started", total_steps=9, step=0, notes=[])
    shown = {
        "prompt": "1+1=",
        "answer": "2",
        "responses": ["2", "你好"],
        "rewards": [1.0, 0.0],
        "components": [{"math": 1.0}, {"math": 0.0}],
        "weight_version": 4,
    }
    events.emit("samples", step=1, samples=[shown])
    events.emit("samples", step=2, samples=[{"sequence": "a b", "trained_on": "b"}])
    view = up_to_date(RunView(tmp_path))
    assert view.samples.steps("grpo") == [1, 2]
    [group] = view.samples.groups("grpo", 1)
    assert [response.text for response in group.responses] == ["2", "你好"]
    assert (group.mean_reward, group.is_equal, group.weight_version) == (0.5, False, 4)
    [sequence] = view.samples.groups("grpo", 2)
    assert (sequence.prompt, sequence.answer, sequence.responses) == ("a b", "trained_on: b", ())
    assert view.samples.groups("grpo", 3) == []


def test_old_phases_are_passed_over_and_the_last_one_is_not(tmp_path: Path, events: Events) -> None:
    events.emit("stage_started", total_steps=None, step=0, notes=[])
    for number in range(1, 3000):
        step(events, number)
    events.emit("phase", step=2999, name="train")
    view = RunView(tmp_path)
    began, polls = time.process_time(), 0
    while view.poll(1 << 16):
        polls += 1
    assert time.process_time() - began < 2.0
    assert polls > 2
    assert view.behind == 0
    assert view.phase is not None
    assert view.phase.name == "train"
    assert len(view.stages["main"].steps) == 2999


def test_another_run_in_the_same_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    def told(*events: dict[str, Any]) -> None:
        path.write_text("".join(json.dumps({"time": 1.0, **event}) + "\n" for event in events))

    told(*({"kind": "step", "step": number, "metrics": {"x": 1.0}} for number in range(1, 9)))
    view = up_to_date(RunView(tmp_path))
    told({"kind": "step", "step": 1, "metrics": {"y": 2.0}})
    assert list(up_to_date(view).stages["main"].steps.columns) == ["y"]
