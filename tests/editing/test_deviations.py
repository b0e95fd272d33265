"""What another dialect would say otherwise is listed whole, what changes training first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlctl.common.errors import RlctlError
from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.editing.deviations import EVALUATION, changes_training, outlook
from rlctl.editing.session import Session
from rlctl.translation.translate import read

VERL = """\
data: {train_files: train.parquet, train_batch_size: 64, filter_overlong_prompts: false, truncation: left}
actor_rollout_ref:
  model: {path: m}
  actor: {ppo_mini_batch_size: 32, use_kl_loss: false}
  rollout: {name: vllm, n: 8, gpu_memory_utilization: 0.7}
algorithm: {adv_estimator: grpo}
reward_model: {reward_manager: dapo}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 2}
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    return Session.open(path)


def test_every_prefix_is_of_a_key() -> None:
    patterns = [re.sub("<[^>]*>", "", key.pattern) for key in walk(Config)]
    assert [prefix for prefix in EVALUATION if not any(pattern.startswith(prefix) for pattern in patterns)] == []


def test_what_changes_training_stands_first_with_its_reason(session: Session, tmp_path: Path) -> None:
    session.assume({"dataset_rows": "6400"})
    found = outlook(session, tmp_path / "x.yaml", "roll", script=False)
    order = [one.changes_training for one in found.deviations]
    assert order == sorted(order, reverse=True)
    assert set(order) == {True, False}
    told = {one.key: one for one in found.deviations}
    assert (told["data.last_batch"].wanted, told["data.last_batch"].said) == ("drop", "carry")
    assert told["data.truncation"].reason == "ROLL drops overlong prompts"
    assert not told["rollout.parallel.replicas"].changes_training


def test_the_list_is_everything_that_the_file_says_otherwise(session: Session, tmp_path: Path) -> None:
    session.assume({"dataset_rows": "6400"})
    file = tmp_path / "x.yaml"
    found = outlook(session, file, "trinity", script=False)
    assert found.draft is not None
    session.export(file, "trinity")
    loaded, _ = read(file)
    assert loaded is not None
    assert loaded.config.data.train_on_truncated_prompts != session.config.data.train_on_truncated_prompts
    told = {one.key for one in found.deviations}
    assert {"data.train_on_truncated_prompts", "algorithm.old_log_probs"} <= told
    assert {item.key for item in found.draft.lost} <= told


def test_a_dialect_that_cannot_hold_it_is_refused_with_why(session: Session, tmp_path: Path) -> None:
    session.set(("algorithm", "advantage"), {"type": "gae"})
    session.set(("critic",), {})
    session.set(("stages",), [{"name": "one"}, {"name": "two"}])
    found = outlook(session, tmp_path / "x.yaml", "roll", script=False)
    assert found.draft is None
    assert found.refusal
    with pytest.raises(RlctlError):
        session.draft_for(tmp_path / "x.yaml", "roll")


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("batch.mini_batch_responses", True),
        ("batch.micro_batch.size", False),
        ("train.optimizer.lr", True),
        ("run.project", False),
        ("model.stage_in_shared_memory", False),
        ("stages[0].train.optimizer.lr", True),
        ("a.key.of.nobody", True),
    ],
)
def test_what_changes_training(session: Session, key: str, changes: bool) -> None:
    assert changes_training(session, key) is changes
