"""Epochs become steps by the rows of local files, which are counted, as ``rlctl plan`` does; only others are asked for."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from rlctl.documents import read_yaml
from rlctl.translation.translate import Translation, translate

CONFIG = """\
data: {{train_files: {files}, train_batch_size: 8}}
actor_rollout_ref: {{model: {{path: org/m}}, actor: {{ppo_mini_batch_size: 8}}, rollout: {{n: 4}}}}
trainer: {{total_epochs: 3, n_gpus_per_node: 4}}
"""


def _parquet(path: Path, rows: int) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist([{"a": index} for index in range(rows)]), path)


def _lines(path: Path, rows: int) -> None:
    text = "".join(json.dumps({"a": index}) + "\n" for index in range(rows))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def _converted(folder: Path, *files: Path, target: str = "roll", **facts: str) -> Translation:
    run = folder / "run.yaml"
    run.write_text(CONFIG.format(files=json.dumps([str(file) for file in files])))
    return translate(run, target, dialect="verl@0.9", options=facts, environment={})


def test_parquet_and_json_lines_are_counted_together_without_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _parquet(tmp_path / "a.parquet", 60)
    _lines(tmp_path / "b.jsonl", 30)
    _lines(tmp_path / "c.jsonl.gz", 10)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    made = _converted(tmp_path, *(tmp_path / name for name in ("a.parquet", "b.jsonl", "c.jsonl.gz")))
    assert made.text is not None, made.report.errors
    assert read_yaml(made.text, "out").values["max_steps"] == 100 // 8 * 3
    (told,) = [item for item in made.report.findings if item.code == "rows-counted"]
    assert told.params["count"] == 100


def test_what_is_stated_goes_before_what_is_counted(tmp_path: Path) -> None:
    _lines(tmp_path / "a.jsonl", 80)
    made = _converted(tmp_path, tmp_path / "a.jsonl", dataset_rows="160")
    assert made.text is not None
    assert read_yaml(made.text, "out").values["max_steps"] == 60
    assert not [item for item in made.report.findings if item.code == "rows-counted"]


def test_what_cannot_be_counted_is_asked_for(tmp_path: Path) -> None:
    made = _converted(tmp_path, tmp_path / "missing.parquet")
    assert any(item.option == "--assume dataset_rows=N" for item in made.report.findings)
    assert not [item for item in made.report.findings if item.code == "rows-counted"]


def test_a_schedule_in_steps_counts_nothing(tmp_path: Path) -> None:
    _lines(tmp_path / "a.jsonl", 80)
    run = tmp_path / "run.yaml"
    run.write_text(CONFIG.format(files=tmp_path / "a.jsonl").replace("total_epochs: 3", "total_training_steps: 5"))
    made = translate(run, "roll", dialect="verl@0.9", environment={})
    assert made.text is not None
    assert read_yaml(made.text, "out").values["max_steps"] == 5
