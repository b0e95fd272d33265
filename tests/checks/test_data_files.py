"""Data files that a config names have its columns and enough rows; they are not loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from rlctl.checks import LEVELS, RULES_OF_FILES, check
from rlctl.checks.data_files import fields_of
from rlctl.common.report import Finding
from rlctl.config import config_from

ROWS = [{"prompt": f"{number}+1=", "answer": str(number + 1)} for number in range(5)]


def written(folder: Path, ending: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"rows.{ending}"
    if ending == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif ending == "json":
        path.write_text(json.dumps(rows))
    elif ending == "csv":
        path.write_text("prompt,answer\n" + "".join(f"{row['prompt']},{row['answer']}\n" for row in rows))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "json", "csv"])
def test_columns_of_each_format(tmp_path: Path, ending: str) -> None:
    assert fields_of(written(tmp_path, ending, ROWS)) == (("prompt",), ("answer",))


def found(source: dict[str, Any], **config: Any) -> list[Finding]:
    values = {"data": {"train": [source]}, "batch": {"prompts_per_step": 2}, **config}
    return [item for item in check(config_from(values), more=RULES_OF_FILES) if item.code.startswith("data-")]


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "json"])
def test_an_answer_inside_another_column_is_named(tmp_path: Path, ending: str) -> None:
    """In a file, and in a folder of files, as Trinity-RFT reads."""
    rows = [{"prompt": "1 + 1", "reward_model": {"style": "rule", "ground_truth": "2"}}] * 4
    file = written(tmp_path, ending, rows)
    assert found({"path": str(file), "answer_key": "reward_model.ground_truth"}) == []
    for path in (file, tmp_path):
        [finding] = found({"path": str(path), "answer_key": "ground_truth"})
        assert finding.code == "data-column"
        assert "but 'reward_model.ground_truth' inside another column" in finding.message
        assert "set data.train[0].answer_key to 'reward_model.ground_truth'" in finding.hint


def test_good_data_has_no_findings(tmp_path: Path) -> None:
    assert found({"path": str(written(tmp_path, "parquet", ROWS)), "answer_key": "answer"}) == []


BAD = [
    ("data-column", {"prompt_key": "promt"}, {}, "prompt_key", "has no column 'promt'; its columns are prompt, answer"),
    ("data-column", {"answer_key": "truth.value"}, {}, "answer_key", "has no column 'truth.value'"),
    ("data-column", {"tools_key": "functions"}, {}, "tools_key", "has no column 'functions'"),
    ("data-column", {"messages_key": "chat"}, {"algorithm": {"objective": "sft"}}, "messages_key", "no column 'chat'"),
    ("data-column", {}, {"algorithm": {"objective": "dpo"}}, "chosen_key", "has no column 'chosen'"),
    ("data-rows", {}, {"batch": {"prompts_per_step": 6}}, "prompts_per_step", "has 5 rows, but each step takes 6"),
]


@pytest.mark.parametrize(("code", "source", "config", "key", "said"), BAD)
def test_what_is_wrong_is_named(
    tmp_path: Path, code: str, source: dict[str, Any], config: dict[str, Any], key: str, said: str
) -> None:
    finding = found({"path": str(written(tmp_path, "jsonl", ROWS)), **source}, **config)[0]
    assert (finding.code, finding.level) == (code, LEVELS[code])
    assert finding.key.endswith(key)
    assert said in finding.message
    assert finding.hint


@pytest.mark.parametrize(("step", "expected"), [(11, ["data-rows"]), (10, [])])
def test_rows_that_carry_over_epochs_are_counted_over_all_epochs(
    tmp_path: Path, step: int, expected: list[str]
) -> None:
    data = {"train": [{"path": str(written(tmp_path, "jsonl", ROWS))}], "last_batch": "carry"}
    problems = found({}, data=data, batch={"prompts_per_step": step}, schedule={"total_epochs": 2})
    assert [finding.code for finding in problems] == expected


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("rows.parquet", "no parquet", "data-unreadable"),
        ("rows.jsonl", "{not json}", "data-unreadable"),
        ("rows.jsonl", "[1, 2]\n", "data-unreadable"),
        ("rows.jsonl", "", "data-empty"),
        ("rows.json", "[]", "data-empty"),
        ("rows.csv", "prompt\n", "data-empty"),
    ],
)
def test_a_file_that_is_not_what_its_ending_says(tmp_path: Path, name: str, text: str, code: str) -> None:
    (tmp_path / name).write_text(text)
    [finding] = found({"path": str(tmp_path / name)})
    assert finding.code == code
    assert name in finding.message


def test_a_class_of_the_users_decides_its_columns(tmp_path: Path) -> None:
    source = {"path": str(written(tmp_path, "jsonl", ROWS)), "prompt_key": "promt"}
    custom = {"path": "gone.py", "class_name": "Rows"}
    values = {"data": {"train": [source], "custom": custom}, "batch": {"prompts_per_step": 2}}
    assert [item for item in check(config_from(values), more=RULES_OF_FILES) if item.code.startswith("data-")] == []


def test_rows_without_an_answer_are_counted_by_the_footer(tmp_path: Path) -> None:
    rows = [*ROWS, {"prompt": "9+9=", "answer": None}]
    [finding] = found({"path": str(written(tmp_path, "parquet", rows)), "answer_key": "answer"})
    assert (finding.code, finding.message[:11]) == ("data-unanswered", "1 of 6 rows")


@pytest.mark.parametrize(("evaluated", "overlaps"), [({}, True), ({"split": "test"}, False)])
def test_evaluation_on_training_data_is_named(tmp_path: Path, evaluated: dict[str, Any], overlaps: bool) -> None:
    source = {"path": str(written(tmp_path, "jsonl", ROWS)), "answer_key": "answer"}
    data = {"train": [source], "eval": [{**source, **evaluated}]}
    codes = [item.code for item in found(source, data=data)]
    assert ("data-overlap" in codes) is overlaps


def test_a_column_of_images_that_a_file_sets_is_there(tmp_path: Path) -> None:
    source = {"path": str(written(tmp_path, "jsonl", ROWS)), "image_key": "images"}
    values = {"data": {"train": [source]}, "batch": {"prompts_per_step": 2}}
    for runner, is_named in (("trinity", True), ("verl", False)):
        keys = [item.key for item in check(config_from(values), more=RULES_OF_FILES, runner=runner)]
        assert ("data.train[0].image_key" in keys) is is_named


IMAGED = {"prompt": [{"role": "user", "content": "<image> What is it?"}], "images": [{"path": "a.png"}]}


@pytest.mark.parametrize(
    ("row", "modality", "code"),
    [
        (IMAGED, "text", "data-images"),
        (IMAGED, "vision", ""),
        ({**IMAGED, "images": [{"path": "a.png"}] * 2}, "vision", "data-images"),
        ({**IMAGED, "prompt": "What are they?", "images": [{"path": "a.png"}] * 2}, "vision", ""),
    ],
)
def test_images_have_places_and_a_model_that_sees_them(
    tmp_path: Path, row: dict[str, Any], modality: str, code: str
) -> None:
    path = written(tmp_path, "parquet", [row] * 4)
    told = [item.code for item in found({"path": str(path), "image_key": "images"}, model={"modality": modality})]
    assert told == [code] * bool(code)


def test_a_folder_has_the_split_that_is_asked_of_it(tmp_path: Path) -> None:
    written(tmp_path, "jsonl", ROWS).rename(tmp_path / "test.jsonl")
    for split, codes in (("test", []), ("validation", ["data-split"])):
        assert [item.code for item in found({"path": str(tmp_path), "split": split})] == codes
