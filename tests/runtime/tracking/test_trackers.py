"""Every tracker leaves the metrics where its own tools find them, without a network, a login or a secret."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import Config, config_from
from rlctl.runtime.tracking.interface import RunInfo, ShownResponse
from rlctl.runtime.tracking.make import make_trackers, run_info
from rlctl.runtime.tracking.mlflow import tracking_uri

SECRET = "sk-do-not-show-0123456789"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections to other machines fail; to this one they are left alone."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"this test allows no connection to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


def config(tracker: dict[str, Any]) -> Config:
    return config_from(
        {
            "rlctl": 1,
            "run": {"project": "demo", "name": "first", "group": "mine"},
            "runtime": {"env_vars": {"HF_TOKEN": SECRET, "LEVEL": "3"}},
            "rewards": [{"type": "judge", "name": "j", "api_key": SECRET}],
            "tracking": [{"type": "console"}, tracker],
        }
    )


def log_run(folder: Path, tracker: dict[str, Any], *, steps: tuple[int, ...] = (1, 2), stage: str = "") -> None:
    problems: list[str] = []
    (made,) = make_trackers(config(tracker), folder, problems.append, stage=stage)
    for step in steps:
        made.log({"reward/mean": step / 4, "policy/loss": -1.5}, step=step)
        made.log_responses("evaluation/responses", [ShownResponse("1+1=", f"answer | of\nstep {step}", 0.5)], step=step)
    made.close()
    assert problems == []


def assert_no_secret(folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


def test_a_tracker_of_one_framework_is_not_made(tmp_path: Path) -> None:
    assert make_trackers(config({"type": "ml_tracker"}), tmp_path, print) == []


def test_tensorboard_is_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_run(tmp_path, {"type": "tensorboard"})
    log_run(tmp_path, {"type": "tensorboard"}, steps=(3,))
    events = EventAccumulator(str(tmp_path / "tracking" / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/mean")] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert "config/text_summary" in events.Tags()["tensors"]
    (last,) = events.Tensors("evaluation/responses/text_summary")[-1].tensor_proto.string_val
    assert last.decode().splitlines()[2] == r"| 3 | 1+1= | answer \| of<br>step 3 | 0.5 |"
    assert_no_secret(tmp_path)


def test_each_of_several_stages_is_a_run_of_its_own_whose_steps_rise(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for stage, steps in (("sft", (1, 2, 3)), ("grpo", (1, 2))):
        log_run(tmp_path, {"type": "tensorboard"}, steps=steps, stage=stage)
        events = EventAccumulator(str(tmp_path / "tracking" / "tensorboard" / stage)).Reload()
        assert [event.step for event in events.Scalars("reward/mean")] == list(steps)


def test_services_know_a_stage_by_its_name_and_the_run_as_its_group(tmp_path: Path) -> None:
    made = config({"type": "wandb"})
    (_, settings), group = made.tracking, replace(made, run=replace(made.run, group=None))
    place = tmp_path / "tracking" / "wandb"
    assert run_info(made, settings, tmp_path, "") == RunInfo("demo", "first", "mine", place)
    assert run_info(made, settings, tmp_path, "sft") == RunInfo("demo", "first-sft", "mine", place / "sft")
    assert run_info(group, settings, tmp_path, "sft").group == "first"


def test_tensorboard_folder_of_the_config(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log_run(tmp_path / "run", {"type": "tensorboard", "folder": str(tmp_path / "tb")})
    assert list((tmp_path / "tb").glob("events.*"))
    assert not (tmp_path / "run").exists()


def test_swanlab_offline_keeps_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("swanlab")
    log_run(tmp_path, {"type": "swanlab", "mode": "offline", "api_key": SECRET})
    (kept,) = (tmp_path / "tracking" / "swanlab").glob("run-*/*.swanlab")
    assert b"reward/mean" in kept.read_bytes()
    (settings,) = (tmp_path / "tracking" / "swanlab").glob("run-*/files/config.yaml")
    assert "total_epochs" in settings.read_text()
    (_, table) = sorted((tmp_path / "tracking" / "swanlab").glob("run-*/media/**/*.json"))
    assert "step 2" in table.read_text()
    assert capfd.readouterr().out == ""
    assert_no_secret(tmp_path)


def test_swanlab_disabled_keeps_nothing(tmp_path: Path) -> None:
    pytest.importorskip("swanlab")
    log_run(tmp_path, {"type": "swanlab", "mode": "disabled"})
    assert not list(tmp_path.rglob("*.swanlab"))


def test_wandb_offline_keeps_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb")
    log_run(tmp_path, {"type": "wandb", "mode": "offline", "api_key": SECRET, "args": {"tags": ["t"]}})
    (kept,) = (tmp_path / "tracking" / "wandb").glob("wandb/offline-run-*/run-*.wandb")
    assert b"reward/mean" in kept.read_bytes()
    run_id = (tmp_path / "tracking" / "wandb" / "run_id").read_text()
    assert kept.name == f"run-{run_id}.wandb"
    tables = list((tmp_path / "tracking" / "wandb").rglob("*.table.json"))
    assert sorted(json.loads(table.read_text())["data"] for table in tables) == [
        [[step, "1+1=", f"answer | of\nstep {step}", 0.5]] for step in (1, 2)
    ]
    assert capfd.readouterr().out == ""
    assert_no_secret(tmp_path)


def test_mlflow_is_queried_back_and_a_second_launch_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    log_run(tmp_path, {"type": "mlflow", "username": "me", "password": SECRET})
    log_run(tmp_path, {"type": "mlflow"}, steps=(3,))
    client = MlflowClient(tracking_uri(None, tmp_path / "tracking" / "mlflow"))
    experiment = client.get_experiment_by_name("demo")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "reward/mean")
    assert [(m.step, m.value) for m in history] == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert (run.info.run_name, run.info.status, run.data.tags["group"]) == ("first", "FINISHED", "mine")
    assert run.data.params["runtime.env_vars.LEVEL"] == "3"
    (artifact,) = (tmp_path / "tracking" / "mlflow" / "artifacts").rglob("evaluation/responses/step-3.json")
    assert json.loads(artifact.read_text()) == [
        {"step": 3, "prompt": "1+1=", "response": "answer | of\nstep 3", "score": 0.5}
    ]
    assert_no_secret(tmp_path)
    del os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]


def test_mlflow_gets_the_metrics_whose_names_it_would_refuse(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    problems: list[str] = []
    tracker = {"type": "mlflow"}
    (made,) = make_trackers(config(tracker), tmp_path, problems.append)
    made.log({"evaluation/gsm8k/mean@8": 0.5, "staleness/share/16+": 0.25, "reward/a//(b)": 1.0}, step=1)
    made.close()
    assert problems == []
    client = MlflowClient(tracking_uri(None, tmp_path / "tracking" / "mlflow"))
    (run,) = client.search_runs([client.get_experiment_by_name("demo").experiment_id])
    assert run.data.metrics == {
        "evaluation/gsm8k/mean_at_8": 0.5,
        "staleness/share/16_": 0.25,
        "reward/a/_b_": 1.0,
    }


def test_mlflow_addresses(tmp_path: Path) -> None:
    assert tracking_uri("http://host:5000", tmp_path) == "http://host:5000"
    assert tracking_uri(str(tmp_path / "x"), tmp_path) == f"sqlite:///{tmp_path}/x/mlflow.db"
