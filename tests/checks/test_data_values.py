"""Values of the data: prompts that are empty or repeat, answers that are missing, evaluation prompts that are trained on."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from rlctl.checks import RULES_OF_FILES, check
from rlctl.config import config_from
from rlctl.planning.row_sample import row_sample, value_at

ROWS = [{"prompt": f"{number}+1=", "answer": str(number + 1), "id": number} for number in range(40)]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("\n".join(map(json.dumps, rows)) if path.suffix == ".jsonl" else json.dumps(rows))
    return str(path)


def codes(train: str, evaluation: str = "") -> list[str]:
    data: dict[str, Any] = {"train": [{"path": train, "answer_key": "answer"}]}
    data |= {"eval": [{"path": evaluation, "answer_key": "answer"}]} if evaluation else {}
    found = check(config_from({"data": data, "batch": {"prompts_per_step": 2}}), more=RULES_OF_FILES)
    return [item.id for item in found if item.code.startswith("data-")]


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "csv"])
def test_good_rows_have_no_findings(tmp_path: Path, ending: str) -> None:
    assert codes(written(tmp_path / f"rows.{ending}", ROWS)) == []


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_rows_without_an_answer_are_counted(tmp_path: Path, ending: str) -> None:
    [code] = codes(written(tmp_path / f"rows.{ending}", [*ROWS, {**ROWS[0], "prompt": "?", "answer": None}]))
    assert code == ("data-unanswered_footer" if ending == "parquet" else "data-unanswered")


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
def test_empty_prompts_are_counted(tmp_path: Path, ending: str) -> None:
    assert codes(written(tmp_path / f"rows.{ending}", [*ROWS, {**ROWS[0], "prompt": "  "}])) == ["data-blank"]


def test_rows_that_repeat_are_named_unless_they_differ_in_more_than_a_number(tmp_path: Path) -> None:
    repeated = [{**row, "id": index} for index, row in enumerate(ROWS[:20] * 2)]
    assert codes(written(tmp_path / "rows.jsonl", repeated)) == ["data-repeated"]
    assert codes(written(tmp_path / "few.jsonl", [*ROWS, ROWS[0]])) == []
    seeds = [{"prompt": "Play.", "answer": "win", "seed": number} for number in range(40)]
    assert codes(written(tmp_path / "seeds.jsonl", seeds)) == []


def test_evaluation_rows_that_are_trained_on_are_named(tmp_path: Path) -> None:
    train = written(tmp_path / "train.jsonl", ROWS)
    assert codes(train, written(tmp_path / "shared.jsonl", ROWS[:5])) == ["data-overlap_rows"]
    other = [{**row, "prompt": f"{row['prompt']}?"} for row in ROWS]
    assert codes(train, written(tmp_path / "other.jsonl", other)) == []


def test_a_sample_says_whether_it_is_whole(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "rows.jsonl", ROWS))
    sample = row_sample(path, most=10)
    assert sample is not None
    assert (len(sample.rows), sample.whole) == (10, False)
    path.write_text(json.dumps(ROWS[0]))  # read again, because it changed
    again = row_sample(path, most=10)
    assert again is not None
    assert (len(again.rows), again.whole) == (1, True)
    assert row_sample(tmp_path / "none.jsonl") is None
    (tmp_path / "bad.jsonl").write_text("{")
    assert row_sample(tmp_path / "bad.jsonl") is None


def test_values_inside_columns() -> None:
    row = {"a": {"b": 1}, "c.d": 2}
    assert [value_at(row, key) for key in ("a.b", "c.d", "a.x", "x.y")] == [1, 2, None, None]


def test_a_list_that_is_too_large_is_left_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"prompt": "a", "answer": ""}] * 3))
    assert row_sample(path) is not None
    monkeypatch.setattr("rlctl.planning.row_sample.LARGEST_JSON", 10)
    path.write_text(json.dumps([{"prompt": "a", "answer": ""}] * 4))
    assert row_sample(path) is None, "and not as a file without rows"


def test_prompts_with_more_words_than_tokens_fit_are_counted_without_a_tokenizer(tmp_path: Path) -> None:
    long = {**ROWS[0], "prompt": "word " * 600}
    assert codes(written(tmp_path / "long.jsonl", [*ROWS, long])) == ["data-overlong_words"]
    assert codes(written(tmp_path / "long_word.jsonl", [*ROWS, {**long, "prompt": "x" * 5000}])) == []


def test_a_pointer_of_git_lfs_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    config = config_from({"data": {"train": [{"path": str(tmp_path / "rows.parquet")}]}})
    assert any("Git LFS pointer" in item.message for item in check(config, more=RULES_OF_FILES))
