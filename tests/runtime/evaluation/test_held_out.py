"""What is answered beside training, opened from real files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rlctl.planning.plan import make_plan
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.evaluation.held_out import distinct, open_held_out
from rlctl.runtime.specs.stage import held_out_spec


def test_files_of_one_name_have_metrics_of_their_own(task: Any, tmp_path: Path) -> None:
    paths = [tmp_path / folder / "test.parquet" for folder in ("gsm8k", "math")]
    for path in paths:
        path.parent.mkdir()
        shutil.copy(task.folder / "test.parquet", path)
    sources = [{"path": str(path)} for path in (*paths, task.folder / "train.parquet")]
    config = task.config(tmp_path / "runs", data={"eval": sources})
    plan = make_plan(config).stages[0]
    held_out, _ = open_held_out(held_out_spec(config, plan), load_tokenizer(config.model), ())
    assert [each.name for each in held_out] == ["gsm8k/test", "math/test", "train"]


@pytest.mark.parametrize(
    ("names", "paths", "told"),
    [
        (["a", "b"], ["x/a.parquet", "y/b.parquet"], ["a", "b"]),
        (["a", "a"], ["a.parquet", "y/a.parquet"], ["a", "y/a"]),
        (["gsm8k", "gsm8k"], ["openai/gsm8k", "openai/gsm8k"], ["openai/gsm8k", "openai/gsm8k-2"]),
        (["a", "a", "a-2"], ["a", "a", "a-2"], ["a", "a-3", "a-2"]),
        (["mine", "mine"], ["s3://b/x/1.json", "s3://b/x/2.json"], ["x/mine", "x/mine-2"]),
    ],
)
def test_names_of_sources_are_told_apart(names: list[str], paths: list[str], told: list[str]) -> None:
    assert distinct(names, paths) == told
