"""A class of the user's gives the rows, made as verl makes it; what is wrong with it is told with its own traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.data.open import DataSpec, open_evaluation, open_prompt_stream, open_sft_stream
from rlctl.runtime.specs.data import data_spec

VERLS = """
import json
from helper import shout

class Mine:
    def __init__(self, data_files, tokenizer, config, processor=None, max_samples=-1):
        self.rows = [json.loads(line) for file in data_files for line in open(file)]
        self.limit = config.get("max_prompt_length", 1024)
        self.seen = (config.prompt_key, type(tokenizer).__name__, processor, max_samples)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = dict(self.rows[index])
        if row.get("bad"):
            raise ValueError("this row is bad")
        row["raw_prompt"] = [{"role": "user", "content": shout(row.pop("question"))}]
        row["index"] = index
        return row
"""


def opened_with(folder: Path, code: str = VERLS, rows: int = 6, name: str = "Mine", **data: Any) -> DataSpec:
    (folder / "mine.py").write_text(code)
    (folder / "helper.py").write_text("def shout(text):\n    return text.upper()\n")
    lines = [
        {"question": f"q{i}", "reward_model": {"ground_truth": i}, "data_source": "own", "response": "yes"}
        for i in range(rows)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    source = {"path": str(folder / "rows.jsonl")}
    custom = {"path": str(folder / "mine.py"), "class_name": name}
    sections = {"train": [source], "eval": [source], "custom": custom, "max_prompt_tokens": 64, "loader_workers": 2}
    return data_spec(config_from({"data": {**sections, **data}, "batch": {"prompts_per_step": 4}}))


def test_its_rows_are_prompts_with_their_answers(tmp_path: Path, tokenizer: Any) -> None:
    stream, [report] = open_prompt_stream(opened_with(tmp_path), tokenizer)
    batch = stream.next_batch()
    assert {(p.source, p.text.count(f"Q{p.answer}<")) for p in batch} == {("own", 1)}
    assert report.rows == 6
    [held_out], _ = open_evaluation(opened_with(tmp_path), tokenizer)
    assert [prompt.answer for prompt in held_out.prompts] == list(range(6))


def test_the_order_is_resumed_where_it_was(tmp_path: Path, tokenizer: Any) -> None:
    made = opened_with(tmp_path, last_batch="carry")
    one, two = (open_prompt_stream(made, tokenizer)[0] for _ in range(2))
    first = [one.next_batch() for _ in range(3)]
    state = json.loads(json.dumps(one.state()))
    two.restore(state)
    assert two.next_batch() == one.next_batch()
    assert [p.index for p in first[0]] != [0, 1, 2, 3]


def test_supervised_sequences_and_a_limit_of_rows(tmp_path: Path, tokenizer: Any) -> None:
    made = opened_with(tmp_path, train=[{"path": str(tmp_path / "rows.jsonl"), "max_samples": 4}])
    stream, [report] = open_sft_stream(made, tokenizer)
    assert report.rows == 4
    assert all(tokenizer.decode(s.token_ids[s.mask]) == "yes<|im_end|>" for s in stream.next_batch())


def test_rows_are_written_with_the_columns_that_a_file_holds(tmp_path: Path, tokenizer: Any) -> None:
    code = VERLS.replace('row["index"] = index', 'row["object"] = object()')
    [held_out], _ = open_evaluation(opened_with(tmp_path, code), tokenizer)
    table = held_out.prompts.table(1, 3)  # type: ignore[attr-defined]
    assert table["data_source"].to_pylist() == ["own", "own"]
    assert "object" not in table.column_names


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        (VERLS, "Mein", r"mine\.py has no class 'Mein'; it has Mine"),
        ("import no_such_module", "Mine", r"importing .*mine\.py .*fails:(.|\n)*no_such_module"),
        ("class Mine:\n    def __init__(self, files): pass", "Mine", "has no __len__, __getitem__"),
        (
            VERLS.replace("processor=None, max_samples=-1", "vocabulary"),
            "Mine",
            "requires vocabulary; rlctl passes only data_files",
        ),
        (VERLS.replace("return len(self.rows)", "return 1 / 0"), "Mine", r"its length fails:(.|\n)*ZeroDivisionError"),
        (VERLS.replace("return row", "return [row]"), "Mine", "row 0 of Mine of .* is a list; expected a mapping"),
        (
            VERLS.replace('row.get("bad")', "index == 3"),
            "Mine",
            r"row 3 fails:(.|\n)*mine\.py(.|\n)*ValueError: this row is bad",
        ),
        (VERLS.replace("raw_prompt", "text"), "Mine", r"has no column 'prompt'; its columns are .*text"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, tokenizer: Any, code: str, name: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        open_prompt_stream(opened_with(tmp_path, code, name=name), tokenizer)
