"""A person edits a config of any dialect: nothing is lost, everything can be taken back, and the file keeps its look."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.common.errors import ConfigError, DocumentError, UsageError
from rlctl.config import Config, config_from
from rlctl.documents import dotted
from rlctl.editing.fields import fields
from rlctl.editing.planning import launch_words
from rlctl.editing.session import Change, FileChangedError, Session

VERL = """\
# Our first run.
data:
  train_files: train.parquet   # made by prepare.py
  val_files: test.parquet
  train_batch_size: 64
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-0.5B}
  actor:
    optim:
      lr: 1e-6          # higher diverged
    ppo_mini_batch_size: 32
  rollout:
    name: vllm
    n: 8
algorithm:
  adv_estimator: grpo
trainer:
  n_gpus_per_node: 8
  nnodes: 1
"""
RATE = ("train", "optimizer", "lr")
GROUP = ("batch", "responses_per_prompt")


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    return path


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_only_the_lines_of_what_was_changed_are_changed(verl: Path) -> None:
    session = Session.open(verl)
    assert not session.is_changed
    session.set(RATE, 3e-6)
    assert session.is_changed
    session.save()
    assert changed_lines(VERL, verl.read_text()) == [
        "-      lr: 1e-6          # higher diverged",
        "+      lr: 3.0e-06          # higher diverged",
    ]
    assert not session.is_changed
    assert Session.open(verl).config.train.optimizer.lr == 3e-6


def test_a_value_that_does_not_fit_changes_nothing(verl: Path) -> None:
    session = Session.open(verl)
    before = session.config
    with pytest.raises(ConfigError, match="responses_per_prompt"):
        session.set(GROUP, "many")
    with pytest.raises(ConfigError, match="learning_rat"):
        session.set(("train", "optimizer", "learning_rat"), 1.0)
    assert session.config is before
    assert not session.is_changed
    assert session.undo() == ()


def test_undo_and_redo(verl: Path) -> None:
    session = Session.open(verl)
    first = session.config
    session.set(GROUP, 4)
    session.set(RATE, 2e-6)
    second = session.config
    assert [change.path for change in session.changes] == [GROUP, RATE]
    assert [change.path for change in session.undo()] == [RATE]
    assert [change.path for change in session.undo()] == [GROUP]
    assert session.config == first
    assert not session.is_changed
    session.redo()
    session.redo()
    assert session.redo() == ()
    assert session.config == second
    session.undo()
    session.set(GROUP, 2)
    assert session.redo() == (), "what was undone is gone once something else is done"


def test_typing_in_a_field_is_one_change(verl: Path) -> None:
    session = Session.open(verl)
    for value in (1, 12, 128):
        session.set(GROUP, value, merge=True)
    session.set(RATE, 2e-6, merge=True)
    assert len(session.changes) == 2
    session.undo()
    session.undo()
    assert session.config.batch.responses_per_prompt == 8


values = st.sampled_from(
    [
        (GROUP, 2),
        (GROUP, 16),
        (RATE, 1e-5),
        (("run", "seed"), 3),
        (("rollout", "sampling", "temperature"), 0.5),
        "undo",
        "redo",
    ]
)


@settings(max_examples=25)
@given(st.lists(values, max_size=12))
def test_any_way_back_and_forth_ends_where_a_list_of_states_says(steps: list[Any]) -> None:
    session = Session.new()
    states, now = [session.config], 0
    for step in steps:
        if step == "undo":
            session.undo()
            now = max(0, now - 1)
        elif step == "redo":
            session.redo()
            now = min(len(states) - 1, now + 1)
        else:
            session.set(*step)
            if session.config != states[now]:
                states[now + 1 :] = [session.config]
                now += 1
        assert session.config == states[now]


def test_typing_goes_on_only_where_nothing_else_was_done(verl: Path) -> None:
    session = Session.open(verl)
    session.set(GROUP, 4, merge=True)
    session.apply([Change(RATE, 2e-6), Change(("run", "seed"), 3)])
    session.set(GROUP, 2, merge=True)
    session.undo()
    assert (session.config.batch.responses_per_prompt, session.config.train.optimizer.lr) == (4, 2e-6)
    assert len(session.undo()) == 2
    assert session.config.train.optimizer.lr == 1e-6


def test_saved_then_undone_is_changed_again(verl: Path) -> None:
    session = Session.open(verl)
    session.set(GROUP, 4)
    session.save()
    session.undo()
    assert session.is_changed
    assert session.config.batch.responses_per_prompt == 8
    session.save()
    assert verl.read_text() == VERL


def test_a_choice_brings_its_own_options() -> None:
    session = Session.new()
    session.choose(("algorithm", "advantage"), "rloo")
    assert session.config.algorithm.advantage.choice == "rloo"
    session.reset(("algorithm", "advantage"))
    assert session.config.algorithm.advantage == Config().algorithm.advantage


def test_a_reset_key_says_what_the_dialects_silence_means(verl: Path) -> None:
    session = Session.open(verl)
    session.set(("data", "max_prompt_tokens"), 99)
    session.reset(("data", "max_prompt_tokens"))
    assert session.config.data.max_prompt_tokens == Session.open(verl).config.data.max_prompt_tokens


def test_a_file_that_somebody_else_wrote_is_not_overwritten(verl: Path) -> None:
    session = Session.open(verl)
    session.set(GROUP, 4)
    verl.write_text(VERL.replace("nnodes: 1", "nnodes: 2"))
    assert session.changed_on_disk()
    with pytest.raises(FileChangedError, match="another program"):
        session.save()
    session.reopen()
    assert session.config.placement.nodes == 2
    assert session.config.batch.responses_per_prompt == 8
    session.undo()
    assert session.config.batch.responses_per_prompt == 4
    session.save(force=True)
    assert "n: 4" in verl.read_text()


def test_saving_as_another_dialect(verl: Path, tmp_path: Path) -> None:
    session = Session.open(verl)
    session.set(GROUP, 4)
    target = tmp_path / "trinity.yaml"
    session.save_as(target, "trinity")
    assert session.dialect.startswith("trinity@")
    assert not session.is_changed
    assert verl.read_text() == VERL
    session.set(GROUP, 6)
    before = target.read_text()
    session.save()
    assert any("repeat_times: 6" in line for line in changed_lines(before, target.read_text()))
    with pytest.raises(DocumentError, match="exists"):
        session.save_as(verl, "verl")


def test_a_config_without_a_file_has_to_be_named(tmp_path: Path) -> None:
    session = Session.new()
    session.set(("run", "name"), "first")
    with pytest.raises(UsageError, match="no file"):
        session.save()
    session.save_as(tmp_path / "run.yaml")
    assert "name: first" in (tmp_path / "run.yaml").read_text()
    session.set(("run", "name"), "second")
    session.save()
    assert Session.open(tmp_path / "run.yaml").config.run.name == "second"


SCRIPT = """\
#!/bin/bash
set -x
N=8
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=train.parquet \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B \\
    actor_rollout_ref.actor.optim.lr=1e-6 \\
    actor_rollout_ref.rollout.n=$N \\
    trainer.n_gpus_per_node=8 $@
"""


def test_a_launch_script_keeps_everything_but_its_override(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    session = Session.open(path)
    session.set(RATE, 2e-6)
    session.save()
    assert changed_lines(SCRIPT, path.read_text()) == [
        "-    actor_rollout_ref.actor.optim.lr=1e-6 \\",
        "+    actor_rollout_ref.actor.optim.lr=2e-6 \\",
    ]
    session.set(("rollout", "sampling", "temperature"), 0.5)
    session.save()
    assert "    actor_rollout_ref.rollout.temperature=0.5 \\\n" in path.read_text()
    assert path.read_text().endswith("$@\n")
    assert Session.open(path).config.rollout.sampling.temperature == 0.5


def test_findings_follow_the_changes(verl: Path) -> None:
    session = Session.open(verl)
    session.set(("batch", "mini_batch_responses"), 100)
    found = [finding for finding in session.findings() if finding.key == "batch.mini_batch_responses"]
    assert found
    session.undo()
    assert not [finding for finding in session.findings() if finding.key == "batch.mini_batch_responses"]


def test_the_preview_accounts_for_what_was_changed(verl: Path) -> None:
    session = Session.open(verl)
    session.set(RATE, 5e-6)
    preview = session.preview("trinity")
    assert preview.text is not None
    assert "lr: 5.0e-06" in preview.text
    entries = [entry for entry in preview.report.accounting if entry.key == "train.optimizer.lr"]
    assert [entry.value for entry in entries] == [5e-6]


def test_what_differs_from_the_file(verl: Path) -> None:
    session = Session.open(verl)
    session.set(RATE, 5e-6)
    [difference] = session.differences()
    assert (difference.key, difference.first.value, difference.second.value) == (
        "train.optimizer.lr",
        1e-6,
        5e-6,
    )


def test_a_text_that_is_no_config_is_refused_with_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("rlctl: 1\nbatch: {responses_per_prompt: many, promts_per_step: 3}\n")
    with pytest.raises(UsageError) as caught:
        Session.open(path)
    assert "responses_per_prompt" in caught.value.message
    assert "promts_per_step" in caught.value.message


def test_a_config_can_hold_what_a_preset_says() -> None:
    session = Session.of_text("rlctl: 1\nrun: {name: preset}\n", "preset.yaml")
    assert session.is_changed
    assert session.config == config_from({"run": {"name": "preset"}})


def test_a_script_that_says_the_time_is_changed_only_where_a_person_changed_it(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\nNAME=run_$(date +%s)\npython3 -m verl.trainer.main_ppo \\\n"
        "    trainer.experiment_name=$NAME \\\n    trainer.total_epochs=1\n"
    )
    path = tmp_path / "train.sh"
    path.write_text(text)
    session = Session.open(path)
    opened = session.config.run.name
    assert opened is not None
    while Session.open(path).config.run.name == opened:
        time.sleep(0.1)
    session.set(("schedule", "total_epochs"), 3)
    session.save()
    assert path.read_text() == text.replace("total_epochs=1", "total_epochs=3")
    assert session.lost == []
    assert session.differences() == [], "nobody changed the name"
    session.set(("run", "name"), "mine")
    session.save()
    assert "trainer.experiment_name=mine" in path.read_text()


def test_a_variable_of_a_script_that_says_the_time_is_edited_and_nothing_else_moves(tmp_path: Path) -> None:
    text = (
        "LR=1e-6\npython3 -m verl.trainer.main_ppo \\\n    actor_rollout_ref.actor.optim.lr=$LR \\\n"
        "    trainer.experiment_name=run_$(date +%s) \\\n    trainer.total_epochs=1\n"
    )
    path = tmp_path / "train.sh"
    path.write_text(text)
    session = Session.open(path)
    session.set(RATE, 2e-6)
    while Session.open(path).config.run.name == session.config.run.name:
        time.sleep(0.1)
    draft = session.draft()
    assert draft.also == ()
    assert draft.disconnected == ()
    session.save(draft)
    assert path.read_text() == text.replace("LR=1e-6", "LR=2e-6")
    assert [dotted(view.path) for view in fields(session) if view.edited] == []


def test_a_name_with_the_time_in_it_is_not_edited_where_another_value_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(
        "NAME=run_$(date +%s)\npython3 -m verl.trainer.main_ppo \\\n    data.train_batch_size=96 \\\n"
        "    actor_rollout_ref.rollout.n=7 \\\n    trainer.experiment_name=$NAME \\\n    trainer.total_epochs=1\n"
    )
    session = Session.open(path)
    opened = session.config.run.name
    while Session.open(path).config.run.name == opened:
        time.sleep(0.1)
    session.set(("batch", "mini_batch_responses"), 50)
    session.save()
    assert [key for key, _, _ in session.lost] == ["batch.mini_batch_responses"]
    assert [dotted(view.path) for view in fields(session) if view.edited] == ["batch.mini_batch_responses"]
    session.keep_mine()
    assert [dotted(view.path) for view in fields(session) if view.edited] == ["batch.mini_batch_responses"]


def test_a_config_that_is_opened_to_read_refuses_every_change(verl: Path) -> None:
    session = Session.open(verl)
    session.readonly = True
    changes: list[Callable[[], None]] = [
        lambda: session.set(RATE, 1.0),
        lambda: session.reset(GROUP),
        lambda: session.choose(("algorithm", "advantage"), "rloo"),
        lambda: session.apply([Change(GROUP, 4)]),
        lambda: session.take_text(VERL.replace("n: 8", "n: 4")),
    ]
    for change in changes:
        with pytest.raises(ConfigError, match="opened read-only"):
            change()
    assert not session.is_changed


ARRAYS = """\
#!/bin/bash
set -eu
ROLLOUT=(
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=8
)
TRAINER=(
    trainer.logger='["console"]'
    trainer.nnodes=${NNODES:-2}
)
LAUNCH=(python3)
if [ "${BACKEND:-vllm}" = sglang ]; then
    TRAINER+=(
        actor_rollout_ref.rollout.n=4
        trainer.balance_batch=False
    )
else
    RAY=(ray_kwargs.ray_init.num_cpus=8)
    WORKERS=4
fi
"${LAUNCH[@]}" -m verl.trainer.main_ppo data.train_files=x "${ROLLOUT[@]}" "${TRAINER[@]}" "${RAY[@]}" "$@"
"""


def test_a_script_of_arrays_takes_keys_that_it_does_not_have_yet_and_none_of_a_branch_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(ARRAYS)
    session = Session.open(path)
    session.set(("rollout", "sampling", "temperature"), 0.7)
    session.set(("batch", "responses_per_prompt"), 16)
    session.set(("schedule", "total_steps"), 77)
    session.save()
    assert session.lost == []
    lines = changed_lines(ARRAYS, path.read_text())
    assert [line for line in lines if ".n=" in line] == [
        "-    actor_rollout_ref.rollout.n=8",
        "+    actor_rollout_ref.rollout.n=16",
    ]
    added = [line for line in lines if line[0] == "+"]
    assert "+    actor_rollout_ref.rollout.temperature=0.7" in added
    assert "+    trainer.total_training_steps=77" in added
    assert not any(line.endswith("\\") for line in added)
    assert Session.open(path).config == session.config


def test_a_script_is_given_its_arguments_each_time_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT.replace("set -x\nN=8\n", "set -u\nN=$1\nshift\n"))
    with pytest.raises(DocumentError, match=r"argument \$1"):
        Session.open(path)
    session = Session.open(path, given={"1": "7"})
    assert session.config.batch.responses_per_prompt == 7
    session.set(RATE, 2e-6)
    session.save()
    assert "rollout.n=$N" in path.read_text()
    again = Session.open(path, given={"1": "9"})
    assert again.config.batch.responses_per_prompt == 9
    assert again.written(RATE) == 2e-6
    assert launch_words(session, path)[-1] == "--env=1=7"
    session.save_as(tmp_path / "run.yaml")
    assert Session.open(tmp_path / "run.yaml").config.batch.responses_per_prompt == 7
    with pytest.raises(UsageError, match="is not one"):
        Session.open(tmp_path / "run.yaml", given={"1": "7"})
