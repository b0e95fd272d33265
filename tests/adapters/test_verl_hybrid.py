"""verl's ``separate_async`` starts engines on the GPUs that train too, unless ``hybrid_engine`` is false (0.9.1)."""

from __future__ import annotations

import pytest

from rlctl.common.report import Bucket, Report
from rlctl.documents import read_yaml
from rlctl.translation.translate import Translation, convert, read_document

SEPARATE = """\
data: {train_files: /d/a.parquet, train_batch_size: 8}
actor_rollout_ref:
  HYBRID
  model: {path: org/m}
  actor: {ppo_mini_batch_size: 8}
  rollout: {n: 4, nnodes: 1, n_gpus_per_node: 4, checkpoint_engine: {backend: nccl}}
trainer: {total_training_steps: 2, n_gpus_per_node: 4, v1: {trainer_mode: MODE, separate_async: {parameter_sync_step: 1}}}
"""
KEY = "actor_rollout_ref.hybrid_engine"


def _text(value: str, mode: str = "separate_async") -> str:
    return SEPARATE.replace("HYBRID", f"hybrid_engine: {value}" if value else "").replace("MODE", mode)


def _hybrid(made: Translation) -> object:
    assert made.text is not None, made.report.errors
    return read_yaml(made.text, "out").values["actor_rollout_ref"].get("hybrid_engine")


@pytest.mark.parametrize(("value", "written"), [("false", False), ("", None)])
def test_it_stays_what_it_is_in_verl(value: str, written: bool | None) -> None:
    assert _hybrid(convert(_text(value), "verl@0.9", dialect="verl@0.9")) is written


def test_a_split_of_another_framework_starts_none() -> None:
    canonical = convert(_text("false"), "rlctl", dialect="verl@0.9")
    assert canonical.text is not None
    plain = "\n".join(line for line in canonical.text.splitlines() if not line.startswith("#"))
    plain = plain[: plain.index("extensions:")]
    made = convert(plain, "verl@0.9", dialect="rlctl")
    assert _hybrid(made) is False
    assert KEY in {origin.key for origin in made.report.origins}


@pytest.mark.parametrize(
    ("value", "mode", "told"),
    [
        ("", "separate_async", True),
        ("true", "separate_async", True),
        ("false", "separate_async", False),
        ("", "sync", False),
    ],
)
def test_the_engines_that_the_plan_does_not_draw_are_told(value: str, mode: str, told: bool) -> None:
    report: Report
    _, report = read_document(read_yaml(_text(value, mode), "run.yaml"), dialect="verl@0.9", environment={})
    assert bool([item for item in report.findings if item.code == "hybrid-replicas"]) is told


def test_older_trainers_take_one_value() -> None:
    _, report = read_document(
        read_yaml("actor_rollout_ref: {hybrid_engine: true, model: {path: m}}\n", "run.yaml"),
        dialect="verl@0.8",
        environment={},
    )
    assert {entry.key: entry.bucket for entry in report.accounting}[KEY] is Bucket.DEAD
