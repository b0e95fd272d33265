"""A fix is offered only if the file can say it; what only rlctl's runtime ignores has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.editing.offers import Offers
from rlctl.editing.session import Session
from rlctl.report import Finding, Fix, Level

VERL = """\
data: {train_files: train.parquet, train_batch_size: 96}
actor_rollout_ref:
  model: {path: m}
  actor:
    strategy: megatron
    ppo_mini_batch_size: 200
    megatron: {param_offload: true, optimizer_offload: true, grad_offload: true, use_mbridge: true}
  rollout: {name: vllm, n: 7}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 2}
"""
MINI = ("batch", "mini_batch_responses")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    return Session.open(path)


def test_what_only_this_runtime_ignores_is_not_offered_to_be_turned_off(session: Session) -> None:
    ignored = [item for item in session.findings() if item.code in ("not-used", "not-applied", "not-supported")]
    assert "train.engine.offload" in [item.key for item in ignored]
    assert [item.fixes for item in ignored if item.fixes] == []


def test_a_value_that_would_be_written_as_another_is_not_offered(session: Session) -> None:
    def finding(*fixes: Fix) -> Finding:
        return Finding("code", Level.WARNING, "message", fixes=fixes)

    offers = Offers(session)
    assert offers.offered(finding((MINI, 672), (MINI, 1024), (MINI, 0), (("data", "seed"), 3))) == (
        (MINI, 672),  # 96 prompts x 7
        (("data", "seed"), 3),
    )
    session.set(("batch", "responses_per_prompt"), 8)
    assert offers.offered(finding((MINI, 1024))) == ((MINI, 1024),), "the config is another one by now"
    assert Offers(Session.new()).offered(finding((MINI, 1023))) == ((MINI, 1023),)


def test_what_is_offered_reads_back_from_the_saved_file(session: Session) -> None:
    offers, found = Offers(session), [item for item in session.findings() if item.code == "mini-batch-too-large"]
    (path, value), *_ = offers.offered(found[0])
    session.set(path, value)
    saved = Session.open(session.save())
    assert saved.written(path) == value
    assert session.lost == []
