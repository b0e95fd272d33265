"""A tracker never stops the run: it is reported once and left out. One that cannot work at all is refused at the start."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlctl.common import packages
from rlctl.common.errors import MissingDependency
from rlctl.config import config_from
from rlctl.runtime.tracking import safe
from rlctl.runtime.tracking.interface import ShownResponse
from rlctl.runtime.tracking.make import make_trackers
from rlctl.runtime.tracking.safe import SafeTracker


class Broken:
    """A service that is gone from step 2 on."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        self.calls.append(step)
        if step >= 2:
            raise ConnectionError("gone\nmore")

    def log_config(self, config: Mapping[str, Any]) -> None:
        raise AssertionError("not asked for")

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        raise AssertionError("not asked for")

    def close(self) -> None:
        self.calls.append("close")


def test_the_first_failure_is_reported_once_and_ends_its_use() -> None:
    broken, reports = Broken(), list[str]()
    tracker = SafeTracker("svc", lambda: broken, reports.append)
    for step in (1, 2, 3):
        tracker.log({}, step=step)
    tracker.close()
    assert broken.calls == [1, 2]
    assert reports == ["the tracker svc failed at step 2; the run continues without it: ConnectionError: gone"]
    assert not tracker.enabled


class Slow(Broken):
    """Every call waits until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        self.go.wait()
        self.calls.append(metrics["x"])


def test_a_slow_tracker_holds_no_step_and_gets_everything_in_the_end() -> None:
    slow, reports, metrics = Slow(), list[str](), {"x": 0.0}
    tracker = SafeTracker("svc", lambda: slow, reports.append)
    for step in range(100):
        metrics["x"] = float(step)
        tracker.log(metrics, step=step)
    assert slow.calls == []
    slow.go.set()
    tracker.close()
    assert slow.calls == [*map(float, range(100)), "close"]
    assert reports == []


def test_a_tracker_that_hangs_is_left_behind() -> None:
    slow, reports = Slow(), list[str]()
    tracker = SafeTracker("svc", lambda: slow, reports.append)
    tracker.log({"x": 1.0}, step=1)
    began = time.monotonic()
    tracker.close(patience=0.2)
    assert time.monotonic() - began < 5
    assert reports == ["the tracker svc did not finish uploading within 0.2 s after the end; the rest is lost"]
    slow.go.set()


def test_a_tracker_that_is_far_behind_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe, "BACKLOG", 3)
    slow, reports = Slow(), list[str]()
    tracker = SafeTracker("svc", lambda: slow, reports.append)
    for step in range(9):
        tracker.log({"x": 1.0}, step=step)
    assert reports == ["the tracker svc is 3 calls behind; rlctl stops using it"]
    slow.go.set()
    tracker.close()
    assert len(reports) == 1


def test_a_start_that_takes_long_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe, "START", 0.1)
    go, slow, reports = threading.Event(), Slow(), list[str]()
    slow.go.set()
    tracker = SafeTracker("svc", lambda: [go.wait(), slow][1], reports.append)
    tracker.log({"x": 1.0}, step=1)
    go.set()
    tracker.close()
    assert (slow.calls, reports) == ([1.0, "close"], [])


@pytest.mark.parametrize("failing", ["log", "log_config", "log_responses", "close"])
def test_whatever_fails_is_told_and_harms_nothing(failing: str) -> None:
    class Service:
        def __getattr__(self, name: str) -> Any:
            def call(*_: Any, **__: Any) -> None:
                if name == failing:
                    raise SystemExit("no account")

            return call

    reports: list[str] = []
    service: Any = Service()
    with SafeTracker("svc", lambda: service, reports.append) as tracker:
        tracker.log_config({})
        tracker.log({"x": 1.0}, step=1)
        tracker.log_responses("table", [ShownResponse("a", "b", 1.0)], step=1)
    assert len(reports) == 1
    assert reports[0].endswith("the run continues without it: SystemExit: no account")


@pytest.mark.parametrize(
    ("name", "module"),
    [("swanlab", "swanlab"), ("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "torch.utils.tensorboard")],
)
def test_a_missing_package_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"tracking with {name} needs") as refused:
        make_trackers(config_from({"rlctl": 1, "tracking": [{"type": name}]}), tmp_path, print)
    assert refused.value.hint == packages.install(name)


def test_a_tracker_that_cannot_be_started_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("in the way")
    reports: list[str] = []
    config = config_from({"rlctl": 1, "tracking": [{"type": "tensorboard", "folder": str(tmp_path / "file" / "x")}]})
    assert make_trackers(config, tmp_path, reports.append) == []
    assert len(reports) == 1
    assert reports[0].startswith("the tracker tensorboard failed to start; the run continues without it: ")


def test_a_tracker_of_one_framework_is_not_made(tmp_path: Path) -> None:
    """The plan and the checks tell so."""
    config = config_from({"rlctl": 1, "tracking": [{"type": "clearml"}]})
    usual = make_trackers(config_from({"rlctl": 1, "tracking": []}), tmp_path, print)
    assert [type(made) for made in make_trackers(config, tmp_path, print)] == [type(made) for made in usual]
