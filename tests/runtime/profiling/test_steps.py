"""Chosen steps leave a timeline that Perfetto loads and the traces of chosen workers; what fails there stops nothing."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlctl.config import config_from
from rlctl.planning.plan import make_plan
from rlctl.runtime.processes.group import LocalGroup
from rlctl.runtime.profiling.steps import Meter, chosen, of_tool
from rlctl.runtime.profiling.throughput import Interval
from rlctl.runtime.profiling.timeline import Timeline
from rlctl.runtime.profiling.usage import Call, Gpu, Usage
from rlctl.runtime.specs.stage import speed_of


class Worker:
    def train_step(self) -> float:
        import torch

        return float((torch.ones(8, 8) @ torch.ones(8, 8)).sum())

    def generate(self) -> None:
        time.sleep(0.01)


def meter_of(run: Path, told: list[str], **profiling: Any) -> tuple[Meter, dict[str, LocalGroup]]:
    config = config_from(
        {"profiling": profiling, "schedule": {"total_steps": 9}, "placement": {"device": "cpu", "devices_per_node": 1}}
    )
    groups = {name: LocalGroup(f"{name}-0", Worker()) for name in ("policy", "rollout", "reward")}
    speed = speed_of(config, make_plan(config).stages[0])
    return Meter.of(speed, config.profiling, groups, run, told.append), groups


def take_steps(meter: Meter, groups: dict[str, LocalGroup], steps: Sequence[int]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for step in steps:
        meter.begin(step)
        with meter.phase("rollout"):
            groups["rollout"].all(Worker.generate)
        with meter.phase("train"):
            groups["policy"].all(Worker.train_step)
        time.sleep(0.02)
        metrics = meter.metrics([], {})
        with meter.phase("save"):
            groups["reward"].all(Worker.generate)
        meter.end(step)
    return metrics


def events_of(path: Path) -> list[dict[str, Any]]:
    data = json.loads(path.read_text())
    assert set(data) == {"displayTimeUnit", "traceEvents"}
    return list(data["traceEvents"])


def test_a_step_is_measured_whether_or_not_it_is_profiled(tmp_path: Path) -> None:
    meter, groups = meter_of(tmp_path, [])
    metrics = take_steps(meter, groups, [1, 2])
    assert metrics["time/idle"] >= 0.02
    assert metrics["time/idle"] + metrics["time/rollout"] + metrics["time/train"] == pytest.approx(
        metrics["time/step"], abs=0.01
    )
    assert 0 < metrics["worker/rollout/busy_share"] < 1
    assert "worker/reward/busy_share" not in metrics, "what is after the step is no part of it"
    assert "time/save" not in metrics
    assert list(tmp_path.iterdir()) == []


def test_a_timeline_has_a_process_for_every_worker_and_all_that_happened(tmp_path: Path) -> None:
    meter, groups = meter_of(tmp_path, [], tool="timeline", steps=[2, 3, 5])
    take_steps(meter, groups, range(1, 7))
    files = sorted(path.name for path in (tmp_path / "profile").iterdir())
    assert files == ["timeline-step-2.json", "timeline-step-3.json", "timeline-step-5.json"]
    events = events_of(tmp_path / "profile" / "timeline-step-3.json")
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [name.split(" ")[0] for name in names.values()] == ["controller", "policy-0", "reward-0", "rollout-0"]
    spans = [(names[event["pid"]].split(" ")[0], event["name"]) for event in events if event["ph"] == "X"]
    assert sorted(spans) == [
        ("controller", "rollout"),
        ("controller", "save"),
        ("controller", "step 3"),
        ("controller", "train"),
        ("policy-0", "train_step"),
        ("reward-0", "generate"),
        ("rollout-0", "generate"),
    ]
    (step,) = [event for event in events if event["name"] == "step 3"]
    for event in events:
        if event["ph"] == "X":
            assert {"ts", "dur", "pid", "tid", "cat"} <= event.keys()
            assert step["ts"] - 1e3 <= event["ts"] <= event["ts"] + event["dur"] <= step["ts"] + step["dur"] + 1e4


def test_neighbours_are_in_one_file_where_that_is_asked_for(tmp_path: Path) -> None:
    meter, groups = meter_of(
        tmp_path, [], tool="timeline", steps=[2, 3, 5], continuous=True, folder=str(tmp_path / "x")
    )
    take_steps(meter, groups, range(1, 7))
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [
        "timeline-step-5.json",
        "timeline-steps-2-3.json",
    ]
    events = events_of(tmp_path / "x" / "timeline-steps-2-3.json")
    assert [event["name"] for event in events if event.get("cat") == "step"] == ["step 2", "step 3"]


def test_rows_of_a_timeline_never_overlap_and_memory_is_drawn() -> None:
    usage = Usage(10.0, 2.0, 5, 2**30, Gpu("g", 2**30, 2**31, 0))
    timeline = Timeline(
        [Interval("step 1", 9, 9)],
        [Interval("rollout", 10, 5), Interval("train", 12, 2), Interval("sync", 15, 1)],
        [Call("a-10", "m", usage), Call("a-2", "m", usage), Call("a-10", "n", usage)],
    )
    events = list(timeline.events())
    rows: dict[tuple[int, int], list[str]] = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append(event["name"])
    assert rows == {
        (0, 0): ["step 1"],
        (0, 1): ["rollout", "sync"],
        (0, 101): ["train"],
        (1, 0): ["m"],
        (2, 0): ["m"],
        (2, 100): ["n"],
    }
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["controller", "a-2 (process 5)", "a-10 (process 5)"]
    drawn = [event["args"] for event in events if event["ph"] == "C" and event["pid"] == 1]
    assert drawn == [{"resident": 1.0}, {"allocated": 1.0, "reserved": 2.0}]


def test_torch_traces_are_of_the_roles_that_are_named(tmp_path: Path) -> None:
    told: list[str] = []
    roles = {"policy": {"enabled": True, "args": {"torch": {"contents": ["shapes"]}}}, "rollout": {"enabled": False}}
    meter, groups = meter_of(tmp_path, told, tool="torch", steps=[1], roles=roles, worker_args={"contents": ["stack"]})
    take_steps(meter, groups, [1, 2])
    assert told == []
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == [
        "policy-0-step-1.json.gz",
        "timeline-step-1.json",
    ]
    with gzip.open(tmp_path / "profile" / "policy-0-step-1.json.gz") as file:
        trace = json.load(file)
    (matmul,) = [event for event in trace["traceEvents"] if event["name"] == "aten::mm"]
    assert matmul["args"]["Input Dims"] == [[8, 8], [8, 8]]


def test_ranks_are_chosen_by_role() -> None:
    roles = {"policy": {"enabled": True, "all_ranks": True}, "critic": {"enabled": True, "ranks": [1, 9]}}
    profiling = config_from({"profiling": {"tool": "torch", "steps": [1], "roles": roles}}).profiling
    workers: Any = {name: SimpleNamespace(names=["a", "b", "c"]) for name in ("policy", "critic", "rollout")}
    assert chosen(profiling, workers) == {"policy": [0, 1, 2], "critic": [1]}


def test_a_discrete_trace_is_of_one_call(tmp_path: Path) -> None:
    roles = {"policy": {"enabled": True, "discrete": True}}
    meter, groups = meter_of(tmp_path, [], tool="torch", steps=[1], roles=roles)
    meter.begin(1)
    groups["policy"].all(Worker.train_step)
    groups["rollout"].all(Worker.train_step)
    meter.end(1)
    assert sorted(path.name for path in (tmp_path / "profile").glob("*.gz")) == [
        "policy-0-step-1-001-train_step.json.gz",
    ]


def test_the_controller_is_profiled_where_it_has_settings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Workers in this very process cannot be at the same time, which their logs say."""
    roles = {"policy": {"enabled": True, "discrete": True}}
    meter, groups = meter_of(tmp_path, [], tool="torch", steps=[1], roles=roles, controller_args={"contents": ["cpu"]})
    take_steps(meter, groups, [1])
    assert [path.name for path in (tmp_path / "profile").glob("*.gz")] == ["controller-step-1.json.gz"]
    assert "one profiler at a time" in capfd.readouterr().err


def test_a_profiler_that_fails_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("in the way")
    told: list[str] = []
    meter, groups = meter_of(tmp_path, told, tool="timeline", steps=[1])
    assert take_steps(meter, groups, [1, 2])["time/step"] > 0
    assert len(told) == 1
    assert told[0].startswith("the profiler timeline failed; the run continues without it: ")


def test_settings_of_a_tool_may_stand_under_its_name() -> None:
    assert of_tool("torch", {"torch": {"a": 1}, "nsys": {"b": 2}}) == {"a": 1}
    assert of_tool("torch", {"nsys": {"b": 2}}) == {}
    assert of_tool("torch", {"a": 1}) == {"a": 1}
