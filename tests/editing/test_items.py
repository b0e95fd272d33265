"""Lists and mappings: items are added, taken away and put elsewhere, links stay links, and any value is a text and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.errors import ConfigError
from rlctl.editing import items
from rlctl.editing.naming import all_names, names_of
from rlctl.editing.session import Session

FILE = """\
rlctl: 1
model: {path: m}
data: {train: [{path: a.parquet}, {path: b.parquet}]}
rewards:
- {name: judge, type: judge, api_key: "${oc.env:JUDGE_KEY}", model: m}
stages:
- {name: first, schedule: {total_steps: 3}}
"""
TRAIN, REWARDS = ("data", "train"), ("rewards",)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("JUDGE_KEY", "not-to-be-told")
    path = tmp_path / "run.yaml"
    path.write_text(FILE)
    return Session.open(path)


def paths(session: Session) -> list[str]:
    return [source.path for source in session.config.data.train]


def test_items_of_a_list_of_sections(session: Session) -> None:
    assert items.add(session, TRAIN, {"path": "c.parquet"}) == (*TRAIN, 2)
    assert items.move(session, TRAIN, 2, -2) == 0
    assert paths(session) == ["c.parquet", "a.parquet", "b.parquet"]
    assert items.move(session, TRAIN, 0, -1) == 0
    items.remove(session, TRAIN, 1)
    assert paths(session) == ["c.parquet", "b.parquet"]
    for _ in range(3):
        session.undo()
    assert paths(session) == ["a.parquet", "b.parquet"]
    assert not session.is_changed


def test_a_secret_of_another_item_stays_a_link(session: Session) -> None:
    assert "rule" in items.options(session, REWARDS)
    assert [info.name for info in items.required(session, REWARDS, "function") or []]
    given = {info.name: "x" for info in items.required(session, REWARDS, "function") or []}
    items.add(session, REWARDS, items.item_of(session, REWARDS, given, "function"))
    items.move(session, REWARDS, 1, -1)
    assert [reward.choice for reward in session.config.rewards] == ["function", "judge"]
    assert all("not-to-be-told" not in item.text for item in items.items(session, REWARDS))
    assert "not-to-be-told" not in session.text()
    assert "${oc.env:JUDGE_KEY}" in session.text()
    assert session.config.rewards[1].api_key == "${oc.env:JUDGE_KEY}"  # type: ignore[attr-defined]


def test_keys_of_a_mapping(session: Session) -> None:
    where = ("runtime", "env_vars")
    assert items.required(session, where) is None
    items.add(session, where, "1", "NCCL_DEBUG")
    items.add(session, where, "2", "OMP_NUM_THREADS")
    with pytest.raises(ConfigError, match="NCCL_DEBUG"):
        items.add(session, where, "1", "NCCL_DEBUG")
    with pytest.raises(ConfigError, match="name"):
        items.add(session, where, "1")
    with pytest.raises(ConfigError, match="no order"):
        items.move(session, where, 1, -1)
    items.remove(session, where, "NCCL_DEBUG")
    assert [item.name for item in items.items(session, where)] == ["OMP_NUM_THREADS"]


def test_what_has_no_items_is_told(session: Session) -> None:
    with pytest.raises(ConfigError, match="neither a list"):
        items.items(session, ("run", "seed"))


def test_stages_are_items_too(session: Session) -> None:
    items.add(session, ("stages",), {"name": "second", "schedule": {"total_steps": 5}})
    assert [stage["name"] for stage in session.config.stages] == ["first", "second"]
    with pytest.raises(ConfigError):
        items.remove(session, ("stages",), 7)


@pytest.mark.parametrize(
    "path", [TRAIN, (*TRAIN, 0), REWARDS, ("stages",), ("run", "seed"), ("critic",), ("train", "optimizer", "betas")]
)
def test_any_value_is_a_text_and_back(session: Session, path: tuple[str | int, ...]) -> None:
    before = session.config
    session.set(path, items.from_yaml(items.yaml_of(session, path), path))
    assert session.config == before
    assert not session.is_changed


@pytest.mark.parametrize(
    ("text", "told"), [("train: [", "train"), ("other: 1", "other"), ("", "nothing"), ("train: 1\nmore: 2", "more")]
)
def test_a_text_that_is_not_the_value_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        items.from_yaml(text, TRAIN)


def test_what_the_dialects_call_a_key() -> None:
    assert "actor_rollout_ref.actor.optim.lr" in names_of("train.optimizer.lr")["verl"]
    assert "actor_rollout_ref.actor.optim.lr" in all_names("train.optimizer.lr")
    assert set(names_of("train.optimizer.lr")) == {"verl", "trinity", "roll"}
