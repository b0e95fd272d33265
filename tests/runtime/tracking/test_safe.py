"""A tracker never stops the run: it is reported once and left out. One that cannot work at all is refused at the start."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import config_from
from rlctl.errors import MissingDependency, RunError
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

    def close(self) -> None:
        self.calls.append("close")


def test_the_first_failure_is_reported_once_and_ends_its_use() -> None:
    broken, reports = Broken(), list[str]()
    tracker = SafeTracker("svc", broken, reports.append)
    for step in (1, 2, 3):
        tracker.log({}, step=step)
    tracker.close()
    assert broken.calls == [1, 2]
    assert reports == ["the tracker svc failed at step 2 and is not used any more: ConnectionError: gone"]
    assert not tracker.enabled


def test_an_interrupt_is_no_failure_of_the_tracker() -> None:
    class Interrupted(Broken):
        def log(self, metrics: Mapping[str, float], *, step: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SafeTracker("svc", Interrupted(), print).log({}, step=1)


@pytest.mark.parametrize(
    ("name", "module"),
    [("swanlab", "swanlab"), ("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "torch.utils.tensorboard")],
)
def test_a_missing_package_is_named_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"pip install rlctl\[{name}\]"):
        make_trackers(config_from({"rlctl": 1, "tracking": [{"name": name}]}), tmp_path, print)


def test_a_tracker_that_cannot_be_started_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("in the way")
    reports: list[str] = []
    config = config_from({"rlctl": 1, "tracking": [{"name": "tensorboard", "folder": str(tmp_path / "file" / "x")}]})
    assert make_trackers(config, tmp_path, reports.append) == []
    assert len(reports) == 1
    assert reports[0].startswith("the tracker tensorboard cannot be started and is not used: ")


def test_other_trackers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not know"):
        make_trackers(config_from({"rlctl": 1, "tracking": [{"name": "other", "kind": "clearml"}]}), tmp_path, print)
