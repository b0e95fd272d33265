"""A run is watched from what the runtime itself writes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rlctl.monitor.watching import RunView
from rlctl.runtime.reporting.events import Events


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


def test_old_phases_are_passed_over_and_the_last_one_is_not(tmp_path: Path, events: Events) -> None:
    events.emit("stage_started", total_steps=None, step=0, notes=[])
    for number in range(1, 3000):
        step(events, number)
    events.emit("phase", step=2999, name="train")
    view = RunView(tmp_path)
    began, polls = time.process_time(), 0
    while view.poll(1 << 16):
        polls += 1
    assert time.process_time() - began < 20
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


def test_the_end_of_a_long_log_is_known_before_the_whole(tmp_path: Path, events: Events) -> None:
    events.enter_stage("grpo")
    events.emit("stage_started", total_steps=9, step=0, notes=[])
    for number in range(1, 9000):
        step(events, number, **{"reward/mean": number / 2, "policy/kl": 0.1})
    whole, newest = up_to_date(RunView(tmp_path)), RunView.newest(tmp_path)
    assert newest.stage is not None
    assert whole.stage is not None
    assert (newest.stage.name, newest.stage.total_steps, newest.stage.steps.steps[-1]) == ("grpo", 9, 8999)
    assert 100 < len(newest.stage.steps) < len(whole.stage.steps) == 8999
    assert newest.stage.steps.row(-1) == whole.stage.steps.row(-1)
    assert newest.phase == whole.phase


def test_what_was_read_is_shown_when_it_is_taken(tmp_path: Path, events: Events) -> None:
    events.emit("stage_started", total_steps=9, step=0, notes=[])
    step(events, 1, loss=1.0)
    view = up_to_date(RunView(tmp_path))
    shown = view.version
    step(events, 2, loss=2.0)
    batch = view.read()
    assert list(view.stages["main"].steps.steps) == [1]
    view.take(batch)
    assert list(view.stages["main"].steps.series("loss").values) == [1.0, 2.0]
    assert view.version == shown + 1
    view.take(view.read())
    assert view.version == shown + 1


def test_a_resumption_in_one_batch_with_what_it_takes_back(tmp_path: Path, events: Events) -> None:
    events.emit("stage_started", total_steps=9, step=0, notes=[])
    for number in (1, 2, 3, 4):
        step(events, number, loss=1.0)
    view = up_to_date(RunView(tmp_path))
    step(events, 5, loss=1.0)
    events.emit("stage_started", total_steps=9, step=3, notes=[])
    step(events, 4, loss=2.0)
    assert list(up_to_date(view).stages["main"].steps.series("loss").values) == [1.0, 1.0, 1.0, 2.0]


def test_events_that_say_nonsense_are_passed_over(tmp_path: Path) -> None:
    told = [{"kind": "step"}, {"kind": "step", "step": "x", "metrics": {}}, {"kind": "step", "step": 1, "metrics": [1]},
            {"kind": "samples", "step": None}, {"kind": "phase", "time": "soon"}, {"kind": "evaluation", "step": {}},
            {"kind": "step", "step": 1, "metrics": {"loss": "nan", "kl": None, "x": [1], "reward": 1}}]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    view = up_to_date(RunView(tmp_path))
    assert view.stages["main"].steps.row(-1) == {"reward": 1.0}


def test_a_folder_that_is_not_there_is_an_empty_run(tmp_path: Path) -> None:
    view = RunView(tmp_path / "gone")
    assert not view.poll()
    assert RunView.newest(tmp_path / "gone").stage is None


def test_syncs_are_one_event_until_something_else_happens(tmp_path: Path, events: Events) -> None:
    view = RunView(tmp_path)
    for number in range(1, 2001):  # more than the events that are kept
        events.emit("sync", step=number, version=number)
        if number in (1, 600):
            events.emit("checkpoint", step=number, folder="x")
            up_to_date(view)
    up_to_date(view)
    told = [(event["kind"], event.get("first_step", event["step"]), event["step"]) for event in view.events]
    assert told == [
        ("sync", 1, 1),
        ("checkpoint", 1, 1),
        ("sync", 2, 600),
        ("checkpoint", 600, 600),
        ("sync", 601, 2000),
    ]
    assert [event.get("syncs", 1) for event in view.events if event["kind"] == "sync"] == [1, 599, 1400]
    assert view.events_told == 5
    events.enter_stage("other")
    events.emit("sync", step=1, version=1)
    assert [event.get("stage") for event in up_to_date(view).events][-2:] == [None, "other"]
