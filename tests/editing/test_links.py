"""Values that are linked by ``${...}``: they follow, they are kept as links, and what cannot be resolved changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.errors import ConfigError
from rlctl.editing.session import Session

FILE = """\
rlctl: 1
run: {name: demo, project: maths}
model: {path: m}
batch: {prompts_per_step: 8, responses_per_prompt: 4, mini_batch_responses: "${batch.prompts_per_step}"}
checkpoint: {folder: "checkpoints/${run.project}/${run.name}"}
rewards:
- {name: judge, type: judge, api_key: "${oc.env:JUDGE_KEY}", model: m}
"""
MINI = ("batch", "mini_batch_responses")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("JUDGE_KEY", "not-to-be-told")
    path = tmp_path / "run.yaml"
    path.write_text(FILE)
    return Session.open(path)


def test_what_is_linked_follows_and_stays_linked(session: Session) -> None:
    session.set(("run", "name"), "other")
    assert session.config.checkpoint.folder == "checkpoints/maths/other"
    session.set(("batch", "prompts_per_step"), 16)
    assert session.config.batch.mini_batch_responses == 16
    assert session.loaded.expressions[MINI] == "${batch.prompts_per_step}"
    session.save()
    text = session.file.path.read_text()  # type: ignore[union-attr]
    assert '"${batch.prompts_per_step}"' in text
    assert "${oc.env:JUDGE_KEY}" in text
    session.undo()
    assert session.config.batch.mini_batch_responses == 8


def test_a_typed_value_cuts_the_link_and_a_typed_link_makes_one(session: Session) -> None:
    session.set(MINI, 4)
    session.set(("batch", "prompts_per_step"), 16)
    assert session.config.batch.mini_batch_responses == 4
    session.set(MINI, "${batch.responses_per_prompt}")
    assert session.config.batch.mini_batch_responses == 4
    session.set(("batch", "responses_per_prompt"), 2)
    assert session.config.batch.mini_batch_responses == 2


@pytest.mark.parametrize("text", ["${batch.no_such_key}", "${run.name}", "${"])
def test_a_link_that_leads_nowhere_changes_nothing(session: Session, text: str) -> None:
    before = session.config
    with pytest.raises(ConfigError):
        session.set(MINI, text)
    assert session.config is before


def test_sections_that_are_not_changed_stay_what_they_were(session: Session) -> None:
    before = session.config
    session.set(("train", "optimizer", "lr"), 3e-6)
    assert session.config.train is not before.train
    assert session.config.rollout is before.rollout


def test_a_link_to_a_default_is_read_back(session: Session) -> None:
    session.set(("checkpoint", "folder"), "checkpoints/${run.mode}")
    session.save()
    again = Session.open(session.file.path)  # type: ignore[union-attr]
    assert again.config.checkpoint.folder == "checkpoints/full"
