"""What is shown before a launch: devices with who is on them, what is in the way, and the file and command that start it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rlctl.editing.planning import before, file_to_launch, launch_words, nodes, planned
from rlctl.editing.session import Session
from rlctl.planning.machines import named_cluster
from rlctl.runs import launching
from rlctl.runs.folder import make_folder, write_folder
from rlctl.runs.record import Record, write_record

FILE = """\
rlctl: 1
run: {name: demo}
model: {path: m}
data: {train: [{path: t.parquet}]}
batch: {prompts_per_step: 8, responses_per_prompt: 4, mini_batch_responses: 16}
schedule: {total_steps: 3}
placement: {layout: split, nodes: 3, devices_per_node: 4, rollout_devices: 4}
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(FILE)
    return Session.open(tmp_path / "run.yaml")


def test_devices_node_by_node(session: Session) -> None:
    found = planned(session)
    assert found.plan is not None, found.refusal
    drawn = nodes(found.plan, found.plan.stages[0])
    letters = {device.number: device.letters for node in drawn for device in node.devices}
    rollout = found.plan.stages[0].role("rollout")
    assert rollout is not None
    assert {number for number, held in letters.items() if "R" in held} == set(rollout.devices)
    assert sum(node.last - node.first + 1 for node in drawn) == 3
    values = {row.name: row.value for row in found.rows[0][1]}
    assert values["optimizer steps of a step"] == 2


def test_the_memory_is_that_of_the_framework_of_the_file(session: Session, tmp_path: Path) -> None:
    keys = (
        "actor_rollout_ref: {model: {path: Qwen/Qwen3-8B}, rollout: {name: vllm}}\nalgorithm: {adv_estimator: grpo}\n"
    )
    (tmp_path / "verl.yaml").write_text(keys + "data: {train_files: train.parquet, val_files: test.parquet}\n")
    theirs = planned(Session.open(tmp_path / "verl.yaml"), named_cluster("1x8:H100"))
    assert theirs.plan is not None, theirs.refusal
    assert (theirs.plan.runner, planned(session).plan.runner) == ("verl", "rlctl")  # type: ignore[union-attr]
    assert any("verl" in note for note in theirs.plan.stages[0].notes)


def test_what_does_not_divide_is_said_and_the_numbers_stay(session: Session) -> None:
    session.set(("train", "engine"), {"type": "megatron", "tensor_parallel_size": 3})
    found = planned(session)
    assert found.plan is None
    assert "8" in found.refusal
    assert "3" in found.refusal
    assert found.rows


def record(session: Session, status: str) -> Path:
    folder = Path("runs/demo")
    make_folder(folder)
    found = planned(session)
    assert found.plan is not None
    write_folder(folder, session.loaded, found.plan)
    write_record(folder, Record("demo", status, os.getpid(), "elsewhere", time.time() - 10))
    return folder


def test_what_is_there_under_the_name(session: Session) -> None:
    assert not before(session.config).is_in_the_way
    record(session, "failed")
    assert before(session.config).is_resumed
    session.set(("batch", "prompts_per_step"), 16)
    found = before(session.config)
    assert found.is_in_the_way
    assert "prompts_per_step" in found.changed[0]
    record(session, "finished")
    assert before(session.config).is_in_the_way


def test_what_is_not_saved_is_launched_from_a_file_of_its_own(session: Session, tmp_path: Path) -> None:
    file = file_to_launch(session)
    assert file == tmp_path / "run.yaml"
    assert launch_words(session, file) == ["launch", str(file), "--from", "rlctl@1"]
    session.set(("batch", "prompts_per_step"), 16)
    other = file_to_launch(session)
    assert other != file
    assert Session.open(other).config == session.config
    assert other.stat().st_mode & 0o77 == 0
    assert file.read_text() == FILE
    session.given = {"1": "4"}
    assert "--env" not in str(launch_words(session, file)), "the file is no script"
    words = launch_words(session, other, address="http://head:8265", new=True, detach=True)
    assert words == ["launch", str(other), "--new", "--address=http://head:8265", "--detach"]


def test_a_command_outlives_its_starter_and_its_output_is_kept(session: Session) -> None:
    begun = launching.begin(["presets", "list", "--json"], launching.place("demo", ".log"))
    assert os.getsid(begun.process.pid) == begun.process.pid
    assert begun.process.wait(60) == 0
    assert begun.exit_code == 0
    assert "grpo-1node" in json.dumps(json.loads(begun.text()))
    assert begun.folder(Path("runs")) is None


def test_the_folder_of_what_was_launched_is_found(session: Session) -> None:
    begun = launching.begin(["version"], launching.place("demo", ".log"))
    begun.process.wait(60)
    folder = record(session, "running")
    assert begun.folder(Path("runs")) is None
    write_record(folder, Record("demo", "running", begun.process.pid, "here", time.time()))
    assert begun.folder(Path("runs")) == folder
