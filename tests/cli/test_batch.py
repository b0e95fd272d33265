"""``batch``: one table, with the keys of the file's own dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VERL = """data: {train_files: a.parquet, train_batch_size: 1024}
actor_rollout_ref:
  model: {path: org/model}
  actor: {ppo_mini_batch_size: 100}
  rollout: {n: 8}
trainer: {n_gpus_per_node: 8}
"""


def test_it_shows_formula_key_and_place(rlctl: Any, tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    shown = rlctl("batch", str(path))
    assert shown.code == 0
    lines = {line.split("  ")[0]: line for line in shown.out.splitlines()}
    assert f"{path}:4" in lines["mini-batch"]
    assert "actor_rollout_ref.actor.ppo_mini_batch_size" in lines["mini-batch"]
    assert "800" in lines["mini-batch"]
    assert "ceil(8192 / 800)" in lines["mini-batches of a pass"]
    assert "ROLL refuses such a step" in shown.out


def test_json_has_the_same_rows(rlctl: Any, tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text(VERL)
    found = json.loads(rlctl("batch", str(path), "trainer.nnodes=2", "--json").out)
    (stage,) = found["stages"]
    rows = {row["name"]: row for row in stage["rows"]}
    assert rows["training devices"]["value"] == 16
    assert rows["mini-batch"]["line"] == 4


def test_every_stage_has_its_own_table(rlctl: Any, config_file: Path) -> None:
    text = config_file.read_text() + "stages: [{name: one}, {name: two, batch: {prompts_per_step: 4}}]\n"
    config_file.write_text(text)
    shown = rlctl("batch", str(config_file))
    assert "stage one" in shown.out
    assert "stage two" in shown.out
