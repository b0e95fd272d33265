"""Under ``checkpoint.asynchronous`` nothing that is slow is waited for: neither a copy elsewhere nor an export."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config
from rlctl.runtime.checkpoints.checkpoint import verified
from rlctl.runtime.processes.calls import StopRequested
from rlctl.runtime.remote import files as remote
from rlctl.runtime.remote.checkpoints import RemoteCopies
from rlctl.runtime.remote.files import bring_into, names_in
from rlctl.runtime.train import export

from .conftest import Task
from .local import run_here

SECONDS = 120.0
"""How long a test waits for what it expects to come."""
PLACE = "memory://bucket/beside"


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(remote, "PAUSES", ())
    yield
    fsspec.filesystem("memory").store.clear()


def config_of(task: Task, folder: Path) -> Config:
    settings = {"every": 2, "asynchronous": True, "export": "always", "remote": PLACE, "keep_last": 1}
    return task.config(folder, objective="sft", schedule={"total_steps": 6}, checkpoint=settings)


def test_training_goes_on_while_a_checkpoint_is_exported_and_copied(task: Task, tmp_path: Path) -> None:
    """The first export is not over before step 3 is, and the first copy not before step 5."""
    over = {step: threading.Event() for step in range(1, 7)}
    waited: list[bool] = []

    def after(step: int, action: Any) -> Any:
        def later(*args: Any, **named: Any) -> Any:
            waited.append(over[step].wait(SECONDS))
            return action(*args, **named)

        return later

    def watch(event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            over[event["step"]].set()

    with (
        patch.object(export, "_write_files", after(3, export._write_files)),
        patch.object(remote, "_put", after(5, remote._put)),
    ):
        events = run_here(config_of(task, tmp_path), tmp_path / "run", watch=watch)
    assert waited
    assert all(waited), "training waited for what waited for it"
    saved = [event["step"] for event in events if event["kind"] == "checkpoint"]
    assert saved == [2, 4, 6]
    place = f"{PLACE}/run/main"
    assert names_in(place, key="k") == ["step-000006"], "the end of the run waits for the copies"
    assert [path.name for path in (tmp_path / "run" / "checkpoints" / "main").glob("step-*")] == ["step-000006"]
    bring_into(f"{place}/step-000006", tmp_path / "back", key="k")
    assert verified(tmp_path / "back") is not None
    weights = (tmp_path / "back" / "hf" / "model.safetensors").read_bytes()
    assert weights == (tmp_path / "run" / "checkpoints" / "main" / "hf" / "model.safetensors").read_bytes()


def test_what_is_exported_beside_training_is_what_was_there_when_it_began(task: Task, tmp_path: Path) -> None:
    """The same run that saves at once writes the same weights."""
    settings = {"every": 2, "export": "always"}
    found = []
    for asynchronous in (True, False):
        config = task.config(
            tmp_path,
            objective="sft",
            schedule={"total_steps": 4},
            checkpoint=settings | {"asynchronous": asynchronous},
        )
        run_here(config, tmp_path / str(asynchronous))
        exported = (tmp_path / str(asynchronous) / "checkpoints" / "main").glob("step-*/hf/model.safetensors")
        found.append({path.parts[-3]: path.read_bytes() for path in exported})
    assert found[0].keys() == {"step-000002", "step-000004"}
    assert found[0] == found[1]


def test_a_copy_that_fails_ends_the_run_and_what_is_here_stays(task: Task, tmp_path: Path) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("403: not yours")

    with (
        patch.object(remote, "_put", refuse),
        pytest.raises(RunError, match=r"memory://bucket/beside/run/main/step-000002 \(checkpoint.remote\).*not yours"),
    ):
        run_here(config_of(task, tmp_path), tmp_path / "run")
    assert verified(tmp_path / "run" / "checkpoints" / "main" / "step-000002") is not None


def test_an_export_that_fails_is_a_checkpoint_that_could_not_be_written(task: Task, tmp_path: Path) -> None:
    with (
        patch.object(export, "_write_files", lambda *_: "No space left on device"),
        pytest.raises(RunError, match=r"could not be exported to .*step-000002.partial/hf: No space left on device"),
    ):
        run_here(config_of(task, tmp_path), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints" / "main" / "step-000002").exists()


def test_a_run_that_is_asked_to_end_at_once_does_not_wait_for_a_copy(tmp_path: Path) -> None:
    """What is cut off is no copy: its manifest comes last."""
    (tmp_path / "step-000001").mkdir()
    for name in ("weights", "manifest.json"):
        (tmp_path / "step-000001" / name).write_text("{}")
    asked, held = threading.Event(), threading.Event()
    put = remote._put

    def slow(system: Any, file: Path, target: str) -> None:
        if file.name == "manifest.json":
            asked.set()
            held.wait(SECONDS)
        put(system, file, target)

    with patch.object(remote, "_put", slow):
        copies = RemoteCopies(PLACE, asked.is_set)
        copies.send(tmp_path / "step-000001", keep=["step-000001"])
        with pytest.raises(StopRequested):
            copies.wait()
        assert names_in(f"{PLACE}/step-000001", key="k") == ["weights"]
        held.set()
        copies.stopped = lambda: False
        copies.wait()
    assert names_in(f"{PLACE}/step-000001", key="k") == ["manifest.json", "weights"]
