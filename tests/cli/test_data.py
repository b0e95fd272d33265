"""``rlctl data inspect``: rows in and out of each operator, and samples before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.runtime.data import tokenizer
from tests.runtime.agents import made

CONFIG = """rlctl: 1
model: {path: absent}
data:
  train: [{path: rows.jsonl, prompt_key: question}]
  operators: [{type: length, min: 3}, duplicates]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "cache"))
    Path("rows.jsonl").write_text("".join(json.dumps({"question": text}) + "\n" for text in ("aaaa", "bb", "aaaa")))
    Path("run.yaml").write_text(CONFIG)
    return "run.yaml"


def test_what_operators_keep_and_drop_is_shown(rlctl: Any, config: str) -> None:
    shown = rlctl("data", "inspect", config)
    assert shown.code == 0
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["1", "length", "3", "2"] in lines
    assert ["2", "duplicates", "2", "1"] in lines
    assert "dropped by 1 length: bb" in shown.out
    assert "kept: aaaa" in shown.out
    [told] = json.loads(rlctl("data", "inspect", config, "--json").out)
    assert (told["made"], told["first"]) == (False, ["aaaa"])
    assert [(one["name"], one["before"], one["after"]) for one in told["counts"]] == [
        ("length", 3, 2),
        ("duplicates", 2, 1),
    ]


def test_the_tokenizer_is_loaded_once(rlctl: Any, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made.tokenizer().save_pretrained("model")
    text = CONFIG.replace("path: absent", "path: model").replace("min: 3}", "min: 1, unit: tokens}")
    Path(config).write_text(text)
    loaded: list[str] = []
    load = tokenizer.load_tokenizer
    monkeypatch.setattr(
        tokenizer, "load_tokenizer", lambda model, **how: loaded.append(model.path) or load(model, **how)
    )
    assert rlctl("data", "inspect", config).code == 0
    assert loaded == ["model"]


def test_lengths_are_counted_and_a_plan_reads_them(rlctl: Any, config: str) -> None:
    made.tokenizer().save_pretrained("model")
    Path("model/config.json").write_text(json.dumps({
        "model_type": "qwen2", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True,
    }))  # fmt: skip
    operators = "  operators: [{type: length, min: 3}, duplicates]\n"
    Path(config).write_text(CONFIG.replace("path: absent", "path: model").replace(operators, ""))
    shown = rlctl("data", "inspect", config, "--lengths", "lengths.json")
    assert shown.code == 0, shown.err
    counted = json.loads(Path("lengths.json").read_text())
    assert counted["prompt_characters"] == {"2": 1, "4": 2}
    assert sum(counted["prompt_tokens"].values()) == 3
    assert "characters of a prompt" in shown.out
    planned = rlctl("plan", config, "--cluster", "1x8:H100", "--lengths", "lengths.json")
    assert planned.code == 0, planned.err
    again = rlctl("data", "inspect", config, "--lengths", "lengths.json")
    assert (again.code, "already exists" in again.err) == (2, True)
    Path("lengths.json").unlink()
    Path(config).write_text(CONFIG.replace("path: absent", "path: model"))
    assert rlctl("data", "inspect", config, "--lengths", "lengths.json").code == 0
    assert json.loads(Path("lengths.json").read_text())["prompt_characters"] == {"4": 1}


def test_files_and_configs_without_operators_are_inspected(rlctl: Any, config: str) -> None:
    Path(config).write_text(CONFIG.replace("[{type: length, min: 3}, duplicates]", "[]"))
    shown = rlctl("data", "inspect", config)
    assert shown.code == 0
    assert "prompts that their split has already: 1, with another answer: 0" in shown.out
    assert "3 rows have no answer" in shown.out
    assert rlctl("data", "inspect", "rows.jsonl").out == shown.out
    told = json.loads(rlctl("data", "inspect", "rows.jsonl", "--limit", "3", "--json").out)
    assert (told["rows"], told["too_long"], told["columns"][0]["types"]) == (3, 2, {"string": 3})
    made.tokenizer().save_pretrained("model")
    in_tokens = rlctl("data", "inspect", "rows.jsonl", "--tokenizer", str(Path("model").absolute())).out
    assert "prompts, in tokens: half are up to" in in_tokens


def test_rows_are_mixed(rlctl: Any, config: str) -> None:
    Path("more.jsonl").write_text('{"question": "cc"}\n')
    done = rlctl("data", "mix", "rows.jsonl", "more.jsonl", "--weights", "2,1", "-o", "mixed.parquet")
    assert (done.code, done.err.splitlines()) == (
        0,
        ["rows.jsonl: 2 of 3 rows", "more.jsonl: 1 of 1 rows", "3 rows written to mixed.parquet"],
    )
    assert rlctl("data", "mix", "rows.jsonl", "-o", "m.jsonl").code == 2
    assert "expected 2 positive numbers" in rlctl("data", "mix", "a", "b", "--weights", "1", "-o", "m.jsonl").err


def test_rows_are_converted_and_sampled_without_a_config(rlctl: Any, config: str) -> None:
    done = rlctl("data", "convert", "rows.jsonl", "--to", "verl", "-o", "verl", "--data-source", "sums")
    assert (done.code, done.err.splitlines()) == (
        0,
        [
            "rows.jsonl: 3 rows, 3 written to verl/train.parquet, 0 skipped",
            "3 rows have no answer; their answer is empty",
        ],
    )
    again = rlctl("data", "convert", "rows.jsonl", "--to", "verl", "-o", "verl")
    assert (again.code, "is not empty" in again.err) == (2, True)
    missing = rlctl("data", "convert", "rows.jsonl", "--to", "verl", "-o", "x", "--answer-key", "answer")
    assert (missing.code, "no column 'answer'" in missing.err, Path("x").exists()) == (2, True, False)
    Path("rows.jsonl").write_text('{"question": "a"}\n{broken\n')
    skipped = rlctl("data", "convert", "rows.jsonl", "--to", "roll", "-o", "roll", "--json")
    assert (skipped.code, json.loads(skipped.out)["reasons"]) == (3, {"the line is not JSON": 1})
    assert rlctl("data", "sample", "verl/train.parquet", "-n", "2", "-o", "two.parquet").code == 0
    assert len(rlctl("data", "sample", "two.parquet", "-n", "9").out.splitlines()) == 2
