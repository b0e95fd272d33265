"""A file that another program writes while it is edited; and what is kept of changes: neither touches a key that nobody changed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rlctl.editing import recovery
from rlctl.editing.session import Session
from rlctl.runs import symbolic

SCRIPT = """\
#!/bin/bash
LR=${LR:-1e-6}
max_response_length=${MAX_RESPONSE:-1024}
exp_name=demo-$(date +%Y%m%d-%H%M%S)
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=train.parquet \\
    data.train_batch_size=64 \\
    data.max_response_length=${max_response_length} \\
    actor_rollout_ref.model.path=model \\
    actor_rollout_ref.actor.optim.lr=$LR \\
    actor_rollout_ref.rollout.n=8 \\
    trainer.experiment_name=${exp_name} \\
    trainer.total_epochs=1
"""
YAML = """\
# mine
data: {train_files: train.parquet, train_batch_size: 64}
actor_rollout_ref:
  model: {path: m}
  actor: {optim: {lr: 1e-6}}   # slow
  rollout: {n: 8}
algorithm: {adv_estimator: grpo}
trainer: {total_epochs: 1}
"""
LR, EPOCHS, LENGTH = ("train", "optimizer", "lr"), ("schedule", "total_epochs"), ("rollout", "max_response_tokens")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=["train.sh", "run.yaml"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / request.param
    path.write_text(SCRIPT if path.suffix == ".sh" else YAML)
    return path


def rewrite(file: Path, *pairs: tuple[str, str]) -> str:
    """Let another program replace texts of the file; what it then holds."""
    text = file.read_text()
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    file.write_text(text)
    return text


def test_changes_of_other_lines_are_joined_and_undo_takes_back_ones_own(file: Path) -> None:
    sign = "=" if file.suffix == ".sh" else ": "
    session = Session.open(file)
    session.set(LR, 2e-6)
    theirs = rewrite(file, (f"total_epochs{sign}1", f"total_epochs{sign}3"))
    found = session.on_disk()
    assert [change.path for change in found.theirs] == [EPOCHS]
    assert found.both == ()
    assert session.merge(found)
    assert (session.config.schedule.total_epochs, session.config.train.optimizer.lr) == (3, 2e-6)
    assert [change.label for change in session.unsaved] == ["train.optimizer.lr = 2e-06"]
    assert session.text().replace("2.0e-06", "2e-6") == theirs.replace("1e-6", "2e-6")
    session.undo()
    assert session.config.schedule.total_epochs == 3, "what the other program wrote is not undone"
    assert not session.is_changed
    assert session.text() == theirs
    session.redo()
    session.save()
    assert file.read_text().replace("2.0e-06", "2e-6") == theirs.replace("1e-6", "2e-6")


@pytest.mark.parametrize(("keeps_mine", "rate"), [(True, 2e-6), (False, 7e-6)])
def test_a_key_that_both_changed_is_the_users_choice(file: Path, keeps_mine: bool, rate: float) -> None:
    sign = "=" if file.suffix == ".sh" else ": "
    session = Session.open(file)
    session.set(LR, 2e-6)
    rewrite(file, ("1e-6", "7e-6"), (f"total_epochs{sign}1", f"total_epochs{sign}3"))
    found = session.on_disk()
    assert found.both == ("train.optimizer.lr",)
    assert session.merge(found, keeps_mine=keeps_mine)
    assert (session.config.schedule.total_epochs, session.config.train.optimizer.lr) == (3, rate)
    assert session.is_changed is keeps_mine


def test_the_same_change_on_both_sides_is_no_conflict(file: Path) -> None:
    session = Session.open(file)
    session.set(LR, 2e-6)
    rewrite(file, ("1e-6", "2e-6"))
    found = session.on_disk()
    assert found.both == ()
    assert session.merge(found)
    assert not session.is_changed


def test_what_was_looked_at_before_a_change_is_not_joined(file: Path) -> None:
    session = Session.open(file)
    rewrite(file, ("1e-6", "2e-6"))
    found = session.on_disk()
    session.set(EPOCHS, 2)
    assert not session.merge(found)
    assert session.config.train.optimizer.lr == 1e-6


def test_a_whole_text_that_was_written_is_not_joined_unasked(file: Path) -> None:
    session = Session.open(file)
    session.take_text(file.read_text().replace("1e-6", "3e-6"))
    rewrite(file, ("1e-6", "2e-6"))
    assert not session.on_disk().is_possible
    assert not session.merge(session.on_disk())


def killed(session: Session) -> recovery.Kept:
    """What an editor leaves that is killed now."""
    recovery.keep(session)
    place = recovery.place_of(session)
    place.write_text(json.dumps(json.loads(place.read_text()) | {"pid": 999999999}))
    assert session.file is not None
    return next(recovery.kept(session.file.path))


def ways(session: Session) -> list[tuple[str, Any]]:
    """Ways to a state that is not the one on disk: what is done, and the value of the learning rate after it."""

    def across_a_save() -> None:
        session.set(LR, 2e-6)
        session.save()
        session.undo()

    def across_a_reload() -> None:
        session.set(LR, 2e-6)
        session.save()
        session.reopen()
        session.undo()
        session.undo()

    def and_another_change() -> None:
        across_a_save()
        session.set(LENGTH, 512)

    return [("save", across_a_save), ("reload", across_a_reload), ("change", and_another_change)]


@pytest.mark.parametrize("way", range(3))
def test_what_is_recovered_after_an_undo_across_a_save_freezes_no_variable(
    tmp_path: Path, way: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT)
    session = Session.open(script)
    name, go = ways(session)[way]
    go()
    wanted = session.text()
    assert "LR:-1e-6" in wanted
    left = killed(session)
    now = time.time()
    monkeypatch.setattr("rlctl.editing.session.time.time", lambda: now + 4000)
    again = Session.open(script)
    recovery.recover(again, left)
    draft = again.draft()
    assert draft.disconnected == (), name
    assert draft.lost == (), "the time in the name is no change"
    assert draft.text == wanted


def test_a_recovery_file_of_before_with_a_whole_config_changes_only_what_differs(tmp_path: Path) -> None:
    """rlctl 0.1 kept the whole config after an undo across a save."""
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.replace("1e-6", "2e-6"))
    old = tmp_path / "old.sh"
    old.write_text(SCRIPT.replace("$(date +%Y%m%d-%H%M%S)", "20260101-000000"))
    session = Session.open(script)
    left = killed_with(session, symbolic(Session.open(old).loaded))
    assert recovery.recover(session, left)
    draft = session.draft()
    assert draft.disconnected == ()
    assert draft.lost == ()
    assert draft.text == SCRIPT


def killed_with(session: Session, whole: dict[str, Any]) -> recovery.Kept:
    session.set(LR, 9e-6)
    recovery.keep(session)
    session.undo()
    place = recovery.place_of(session)
    data = json.loads(place.read_text()) | {"pid": 999999999, "changes": [[[], whole]]}
    place.write_text(json.dumps(data))
    assert session.file is not None
    return next(recovery.kept(session.file.path))


def test_a_value_that_is_set_back_by_hand_is_no_change(file: Path) -> None:
    session = Session.open(file)
    session.set(LR, 2e-6)
    assert session.is_changed
    session.set(LR, 1e-6)
    assert not session.is_changed
