"""A fix is offered only if the file can say it; what only rlctl's runtime ignores has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.editing.session import Session

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    return path


def test_what_only_this_runtime_ignores_is_not_offered_to_be_turned_off(file: Path) -> None:
    ignored = [
        item for item in Session.open(file).findings() if item.code in ("not-used", "not-applied", "not-supported")
    ]
    assert "train.engine.offload" in [item.key for item in ignored]
    assert [item.fixes for item in ignored if item.fixes] == []


@pytest.mark.parametrize("mini", [None, 140, 300])
def test_what_is_offered_reads_back_from_the_saved_file(file: Path, mini: int | None) -> None:
    path = ("batch", "mini_batch_responses")
    session = Session.open(file)
    if mini is not None:
        session.set(path, mini)
    offered = [fix for item in session.findings() for fix in item.fixes if fix[0] == path]
    assert offered
    for key, value in offered:
        file.write_text(VERL)
        session = Session.open(file)
        session.set(key, value)
        assert Session.open(session.save()).written(key) == value
        assert session.lost == []
