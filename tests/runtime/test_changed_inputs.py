"""A run that is resumed is the same run, or says that it is not: changed data ends it, all else is reported."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from rlctl import runs
from rlctl.cli import app
from rlctl.config import Config
from rlctl.runtime.checkpoints import inputs
from rlctl.runtime.processes.calls import WorkerLost

from .conftest import Ran, Task
from .local import launch_here, without_ray

REFUSED = "the training data changed since the checkpoint of step 1:\n  data.train[0].path ("


@pytest.fixture
def own(task: Task, tmp_path: Path) -> Task:
    """The task in a folder of this test, which it may change."""
    shutil.copytree(task.folder, tmp_path / "task")
    return Task(tmp_path / "task")


def config_of(own: Task, **changes: Any) -> Config:
    """Two steps, of which a session takes one."""
    settings: dict[str, Any] = {
        "schedule": {"total_steps": 2, "evaluate_at_start": False},
        "run": {"max_steps_this_session": 1},
    }
    return own.config(own.folder.parent, **{**settings, **changes})


def rewritten(path: Path) -> None:
    """Other rows, as many as before: every prompt and every answer moved by one."""
    rows = Dataset.from_parquet(str(path), cache_dir=str(path.parent / "cache")).to_list()
    Dataset.from_list([*rows[1:], rows[0]]).to_parquet(path)


def told(ran: Ran) -> list[str]:
    return [event["message"] for event in ran.kinds("advisory") if "changed since" in event["message"]]


@pytest.fixture
def stopped(own: Task, run_without_ray: Callable[..., Ran]) -> Config:
    """A run that stopped after its first step."""
    config = config_of(own)
    ran = run_without_ray(config)
    assert ran.result.status == "stopped", ran.result.cause
    return config


def test_nothing_is_said_of_what_is_as_it_was(stopped: Config, run_without_ray: Callable[..., Ran]) -> None:
    ran = run_without_ray(stopped)
    assert (ran.result.status, told(ran)) == ("finished", [])
    assert not ran.kinds("changes_accepted")


def test_changed_data_is_refused_or_accepted_and_recorded(
    stopped: Config, own: Task, run_without_ray: Callable[..., Ran]
) -> None:
    rewritten(own.folder / "train.parquet")
    refused = run_without_ray(stopped)
    assert refused.result.status == "failed"
    assert refused.result.cause.startswith(REFUSED)
    assert "it has other content" in refused.result.cause or "bytes" in refused.result.cause
    assert "--accept-changes" in refused.failure["hint"]
    assert not refused.kinds("resumed"), "no worker was started for it"

    folder = runs.folder_of(stopped)
    with without_ray():
        shown = CliRunner().invoke(app, ["runs", "resume", str(folder), "--accept-changes", "--json"])
    assert shown.exit_code == 0, shown.output
    assert "continues from step 1 with changed training data" in shown.stderr
    described = CliRunner().invoke(app, ["runs", "show", str(folder)])
    assert "changed  data.train[0].path" in " ".join(described.stdout.split(" ")), described.stdout
    assert "(accepted at step 1 of main)" in "".join(described.stdout.splitlines())
    [accepted] = json.loads(CliRunner().invoke(app, ["runs", "show", str(folder), "--json"]).stdout)["accepted_changes"]
    assert (accepted["stage"], accepted["step"]) == ("main", 1)


def test_what_was_accepted_is_not_asked_again_and_another_change_is(
    own: Task, run_without_ray: Callable[..., Ran]
) -> None:
    """The run is killed before its next checkpoint, and is resumed as before."""
    config = config_of(own)
    run_without_ray(config)
    rewritten(own.folder / "train.parquet")

    def die(event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            raise KeyboardInterrupt

    assert launch_here(config, die, accept_changes=True).status == "stopped"
    rows = (own.folder / "train.parquet").read_bytes()
    rewritten(own.folder / "train.parquet")
    assert "training data changed" in run_without_ray(config).result.cause
    (own.folder / "train.parquet").write_bytes(rows)
    assert run_without_ray(config).result.status == "finished"


def test_a_restart_after_a_lost_worker_refuses_changed_data(own: Task) -> None:
    config = config_of(own, run={"max_restarts": 1})
    lost: list[str] = []

    def lose(event: dict[str, Any]) -> None:
        if event["kind"] == "step" and not lost:
            lost.append("once")
            rewritten(own.folder / "train.parquet")
            raise WorkerLost("policy 0 is gone", actor="policy 0")

    result = launch_here(config, lose)
    assert result.status == "failed"
    assert result.cause.startswith("the training data changed while the run was running:\n  data.train[0].path (")


def test_a_restart_after_a_lost_worker_with_the_same_data_goes_on(own: Task) -> None:
    lost: list[str] = []

    def lose(event: dict[str, Any]) -> None:
        if event["kind"] == "step" and event["step"] == 2 and not lost:
            lost.append("once")
            raise WorkerLost("policy 0 is gone", actor="policy 0")

    assert launch_here(config_of(own, run={"max_restarts": 1}), lose).status == "finished"


def test_changes_of_all_else_are_reported(
    stopped: Config, own: Task, run_without_ray: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(own.folder / "test.parquet")
    (own.folder / "reward.py").write_text("from helpers import right\n" + (own.folder / "reward.py").read_text())
    (own.folder / "helpers.py").write_text("right = 1\n")
    weights = load_file(own.folder / "model" / "model.safetensors")
    save_file(
        {n: t + 1 for n, t in weights.items()}, own.folder / "model" / "model.safetensors", metadata={"format": "pt"}
    )
    saved = runs.folder_of(stopped) / "config.yaml"
    saved.write_text(saved.read_text().replace("lr: 0.001", "lr: 0.002"))
    version = inputs.metadata.version
    monkeypatch.setattr(inputs.metadata, "version", lambda name: "0.0" if name == "ray" else version(name))
    events: list[dict[str, Any]] = []
    with without_ray():
        result = runs.resume(runs.inspect(runs.folder_of(stopped)), observer=events.append)
    assert result.status == "finished", result.cause
    lines = "\n".join(told(Ran(result, events)))
    folder = str(own.folder)
    for expected in (
        f"changed since the checkpoint of step 1: data.eval[0].path ({folder}/test.parquet): it ",
        f"rewards[0].path ({folder}/reward.py): helpers.py is new; reward.py changed: ",
        f"model.path ({folder}/model): model.safetensors has other content",
        "train.optimizer.lr: 0.001 -> 0.002",
        "ray: ",
    ):
        assert expected in lines, lines
    assert len(lines.splitlines()) == 5, lines


def test_another_run_is_compared_and_not_refused(
    stopped: Config, own: Task, run_without_ray: Callable[..., Ran]
) -> None:
    rewritten(own.folder / "train.parquet")
    [checkpoint] = (runs.folder_of(stopped) / "checkpoints" / "main").glob("step-*")
    settings = {"resume": "path", "resume_path": str(checkpoint)}
    second = replace(config_of(own, checkpoint=settings), run=replace(stopped.run, name="second"))
    ran = run_without_ray(second)
    assert ran.result.status == "finished", ran.result.cause
    [message] = [event["message"] for event in ran.kinds("advisory") if "another run's" in event["message"]]
    assert "\n  data.train[0].path (" in message


def test_a_copy_at_a_url_tells_too(own: Task, run_without_ray: Callable[..., Ran]) -> None:
    config = config_of(own, checkpoint={"every": 1, "remote": f"file://{own.folder.parent}/bucket"})
    run_without_ray(config)
    shutil.rmtree(runs.folder_of(config) / "checkpoints")
    rewritten(own.folder / "train.parquet")
    assert run_without_ray(config).result.cause.startswith(REFUSED)


def test_large_files_are_known_by_size_time_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "END", 8)
    path = tmp_path / "rows.parquet"
    path.write_bytes(bytes(100))
    os.utime(path, ns=(1, 1))
    first = inputs._file(path, 50)
    assert first.keys() == {"size", "modified", "ends"}
    assert inputs._file(path, 50, "state").keys() == {"size", "state", "ends"}
    assert inputs._file(path, 100).keys() == {"size", "sha256"}
    os.utime(path, ns=(2, 2))
    assert "written again" in inputs._differs(first, inputs._file(path, 50))
    path.write_bytes(bytes(99) + b"x")
    assert "other content" in inputs._differs(first, inputs._file(path, 50))
    path.write_bytes(bytes(101))
    assert inputs._differs(first, inputs._file(path, 50)) == "changed: 100 -> 101 bytes"


def test_a_folder_is_known_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a size all of each file is read, and beyond a number of files they are one entry."""
    for number in range(3):
        (tmp_path / "rows" / "part").mkdir(parents=True, exist_ok=True)
        (tmp_path / "rows" / "part" / f"{number}.jsonl").write_text("{}" * number)
    (tmp_path / "rows" / ".cache").write_text("x")

    def found(whole: int, each: int = 3) -> dict[str, Any]:
        monkeypatch.setattr(inputs, "WHOLE", {"dataset": (whole, each)})
        return dict(inputs._files(str(tmp_path / "rows"), "key", "dataset"))

    assert list(found(6)) == ["part/0.jsonl", "part/1.jsonl", "part/2.jsonl"]
    assert [set(part) for part in found(6).values()] == [{"size", "sha256"}] * 3
    assert [set(part) for part in found(5).values()] == [{"size", "sha256"}] * 2 + [{"size", "modified", "ends"}]
    monkeypatch.setattr(inputs, "MOST_FILES", 2)
    before = found(6)
    assert (before[""]["files"], before[""]["size"]) == (3, 6)
    os.utime(tmp_path / "rows" / "part" / "1.jsonl", ns=(1, 1))
    assert inputs._differs(before[""], found(6)[""]) == "has other content"


def test_code_is_what_is_imported_from_beside(tmp_path: Path) -> None:
    for name, text in {
        "reward.py": "import json\nfrom near import a\nimport package.inner\n",
        "near.py": "from . import other\nimport torch\n",
        "other.py": "",
        "unrelated.py": "",
        "package/__init__.py": "from .deep import x\n",
        "package/inner.py": "def f(:",
        "package/deep.py": "x = 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = dict(inputs._code(str(tmp_path / "reward.py")))
    beside = {"near.py", "other.py", "package/__init__.py", "package/inner.py", "package/deep.py"}
    assert set(found) == {"reward.py", *beside}
    assert set(dict(inputs._code("rlctl.runtime.rewards.function"))) >= {"function.py"}
    assert dict(inputs._code("no.such.module")) == {}


def test_episodes_have_no_files_and_an_agents_code_is_noted(
    own: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that a run is started in holds its own checkpoints, so it changes with each step."""
    (tmp_path / "world.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    world = {"type": "python", "path": "world.py", "name": "World"}
    config = own.config(
        tmp_path,
        data={"train": [{"format": "episodes", "name": "worlds", "max_samples": 4}], "eval": []},
        rollout={"default_agent": "p", "agents": [{"type": "environment", "name": "p", "environment": world}]},
    )
    found = inputs.inputs_of(config)
    assert found["data"] == {"data.train[0].path": {}}
    assert [*found["code"]["rollout.agents[0].environment.path"]] == ["world.py"]


def test_a_hub_name_is_known_by_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--org--name" / "refs").mkdir(parents=True)
    (tmp_path / "models--org--name" / "refs" / "main").write_text("abc")
    assert dict(inputs._model("org/name", "model.path")) == {"": {"revision": "abc"}}
    assert inputs._differs({"revision": "abc"}, {"revision": "def"}) == "revision abc -> def"


def test_nothing_secret_is_kept(own: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = {"type": "judge", "name": "j", "model": "m", "base_url": "http://x", "api_key": "not-to-be-told-1"}
    config = own.config(own.folder, rewards=[own.reward(), judge], rollout={"engine": "transformers"})
    assert "not-to-be-told" not in json.dumps(inputs.inputs_of(config), default=str)


def test_a_template_written_into_the_config_is_no_file(own: Task, tmp_path: Path) -> None:
    """A name of a file may have 255 characters, and a template is usually longer."""
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}" * 5
    config = config_of(
        own, run={"name": "templates", "folder": str(tmp_path / "runs")}, model={"chat_template": template}
    )
    assert inputs.inputs_of(config)["code"]["model.chat_template"] == {}
