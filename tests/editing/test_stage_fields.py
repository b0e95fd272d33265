"""The fields of stages: what a stage says itself, what it has of the run, and changes that reach the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.errors import ConfigError
from rlctl.editing import items
from rlctl.editing.fields import FieldView
from rlctl.editing.session import Session
from rlctl.editing.stage_fields import StageForm

FILE = """\
rlctl: 1
run: {name: two}
model: {path: m}
data: {train: [{path: t.parquet}]}
stages:
  - {name: warm, algorithm: {objective: sft}, schedule: {total_epochs: 2}}   # first
  - name: learn
    batch: {prompts_per_step: 8}
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "run.yaml"
    path.write_text(FILE)
    return Session.open(path)


def field(form: StageForm, stage: int, key: str) -> FieldView:
    [found] = [view for view in form.views() if view.path == ("stages", stage, *key.split("."))]
    return found


def test_a_stage_shows_its_own_values_and_the_runs(session: Session) -> None:
    form = StageForm(session)
    own, other = field(form, 1, "batch.prompts_per_step"), field(form, 0, "batch.prompts_per_step")
    assert (own.text, own.changed) == ("8", True)
    assert own.origin.endswith("run.yaml:8 (stages[1].batch.prompts_per_step)")
    assert (other.text, other.changed, other.origin) == (own.default, False, "as in the run: default")
    assert field(form, 0, "name").text == "warm"
    assert not field(form, 0, "rollout.max_response_tokens").applies
    assert field(form, 1, "rollout.max_response_tokens").applies
    session.set(("batch", "prompts_per_step"), 96)
    assert field(form, 0, "batch.prompts_per_step").text == "96"
    assert field(form, 1, "batch.prompts_per_step").text == "8"


def test_a_change_is_said_by_the_stage_and_keeps_the_files_look(session: Session) -> None:
    form = StageForm(session)
    session.set(("stages", 1, "batch", "prompts_per_step"), 16)
    session.set(("stages", 1, "batch", "responses_per_prompt"), 4)
    assert field(form, 1, "batch.prompts_per_step").edited
    assert field(form, 1, "name").origin.endswith("run.yaml:7 (stages[1].name)")  # of the others it is still known
    assert not field(form, 0, "batch.prompts_per_step").edited
    session.save()
    assert session.file is not None
    assert session.file.text.startswith(FILE.partition("    batch")[0])
    assert session.config.stages[1] == {"name": "learn", "batch": {"prompts_per_step": 16, "responses_per_prompt": 4}}
    assert not field(form, 1, "batch.prompts_per_step").edited
    session.undo()
    assert field(form, 1, "batch.responses_per_prompt").text == "1"


def test_the_option_of_a_choice_stays_where_one_of_its_fields_is_set(session: Session) -> None:
    session.set(("stages", 0, "algorithm", "objective"), "sft")
    session.choose(("stages", 1, "algorithm", "advantage"), "grpo")
    session.set(("stages", 1, "algorithm", "advantage", "normalize_by_std"), False)
    assert session.config.stages[1]["algorithm"]["advantage"] == {"type": "grpo", "normalize_by_std": False}


def test_what_does_not_fit_changes_nothing(session: Session) -> None:
    before = session.config
    with pytest.raises(ConfigError, match=r"stages\[0\].*must be an integer"):
        session.set(("stages", 0, "batch", "prompts_per_step"), "many")
    with pytest.raises(ConfigError, match="unknown key"):
        session.set(("stages", 0, "batch", "prompts"), 3)
    assert session.config is before


def test_reset_gives_a_key_back_to_the_run(session: Session) -> None:
    session.reset(("stages", 1, "batch", "prompts_per_step"))
    assert session.config.stages[1] == {"name": "learn"}
    session.reset(("stages", 1, "batch", "prompts_per_step"))
    assert session.config.stages[1] == {"name": "learn"}


def test_a_stage_is_added_by_its_name(session: Session) -> None:
    needed = items.required(session, items.STAGES)
    assert needed is not None
    assert [info.name for info in needed] == ["name"]
    path = items.add(session, items.STAGES, items.item_of(session, items.STAGES, {"name": "third"}))
    assert path == ("stages", 2)
    assert field(StageForm(session), 2, "name").text == "third"
