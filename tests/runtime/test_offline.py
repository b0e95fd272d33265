"""Generation writes the data set with its responses, and evaluation of that file scores them without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.data.recorded import open_recorded

ROWS = [
    {"data_source": "a", "answer": "4", "responses": ["4", "5"]},
    {"data_source": "b", "answer": "6", "responses": ["6", "6"]},
]


def test_a_data_set_is_answered_and_then_scored(task: Any, run_without_ray: Callable[..., Any], tmp_path: Path) -> None:
    written = tmp_path / "out" / "answers.parquet"
    done = run_without_ray(
        task.config(
            tmp_path,
            run={"name": "generate", "folder": str(tmp_path), "mode": "rollout_only"},
            rollout={"responses_folder": str(written)},
            batch={"prompts_per_step": 24, "responses_per_prompt": 2},
            rewards=[],
        )
    )
    assert done.result.status == "finished", done.result.cause
    rows, asked = (
        Dataset.from_parquet(str(path), cache_dir=str(tmp_path)) for path in (written, task.folder / "train.parquet")
    )
    assert list(rows["prompt"]) == list(asked["prompt"])
    assert {len(texts) for texts in rows["responses"]} == {2}
    assert len({text for texts in rows["responses"] for text in texts}) > 8
    assert not (done.result.folder / "logs" / "reward-0.log").exists(), "nothing scores"

    kept = tmp_path / "kept"
    scored = run_without_ray(
        config_from(
            {
                "run": {"name": "score", "folder": str(tmp_path), "mode": "evaluate_only"},
                "data": {"eval": [{"path": str(written), "response_key": "responses", "name": "file"}]},
                "rewards": [task.reward()],
                "rollout": {"evaluation_folder": str(kept)},
                "placement": {"device": "cpu", "devices_per_node": 1},
            }
        )
    )
    assert scored.result.status == "finished", scored.result.cause
    [evaluation] = scored.kinds("evaluation")
    right = [text[:1] == "1" for texts in rows["responses"] for text in texts]
    assert evaluation["metrics"]["evaluation/file/accuracy"] == pytest.approx(sum(right) / len(right))
    lines = [json.loads(line) for line in (kept / "0.jsonl").read_text().splitlines()]
    assert [line["output"] for line in lines] == [text for texts in rows["responses"] for text in texts]
    assert not (scored.result.folder / "logs" / "rollout-0.log").exists(), "no model is loaded"


def recorded(rows: list[dict[str, Any]], folder: Path, **source: Any) -> list[Any]:
    Dataset.from_list(rows).to_parquet(str(folder / "rows.parquet"))
    held = config_from({"data": {"eval": [{"path": str(folder / "rows.parquet"), **source}]}}).data.eval
    [found] = open_recorded(held)
    return list(found)


def test_what_is_read_of_a_recorded_row(tmp_path: Path) -> None:
    first, second = recorded(ROWS, tmp_path, response_key="responses")
    assert (first.source, first.answer, first.extra["responses"]) == ("a", "4", ["4", "5"])
    assert (second.index, second.token_ids) == (1, ())


def test_rows_without_responses_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"row 1 of .*rows\.parquet, responses is \[\]; expected a list of responses"):
        recorded([ROWS[0], {**ROWS[1], "responses": []}], tmp_path, response_key="responses")
    with pytest.raises(RunError, match=r"has no column 'answers'; its columns are data_source, answer, responses"):
        recorded(ROWS, tmp_path, response_key="answers")
