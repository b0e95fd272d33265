"""Operators on training data; what the common filters measure is what py-data-juicer 1.6.1 measures of the same texts."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.runtime.data.operators import (
    Prepared,
    alphanumeric_share,
    diversities,
    prepare,
    repeated_share,
    script_share,
    special_share,
    with_operators,
)
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.juicer import server
from rlctl.runtime.juicer.client import Service
from rlctl.runtime.specs.data import operator_spec
from rlctl.runtime.specs.experience import check_service

TEXTS = (
    "abcabcabcabcabcabc xyz",
    "the cat sat on the mat. the cat sat on the mat.",
    "完全不同的句子没有重复",
    "a b c 1 2 3 !!!",
    "",
    "hello hello hello hello hello",
)


def test_repetition_is_that_of_data_juicer() -> None:
    assert [repeated_share(text, 5) for text in TEXTS] == pytest.approx([10 / 18, 9 / 43, 0, 0, 0, 0.36])
    assert [repeated_share(text, 10) for text in TEXTS] == pytest.approx([6 / 13, 8 / 38, 0, 0, 0, 0.4])


def test_the_share_of_letters_and_digits_is_that_of_data_juicer() -> None:
    assert [alphanumeric_share(text) for text in TEXTS] == pytest.approx([21 / 22, 34 / 47, 1.0, 0.4, 0.0, 25 / 29])


def test_special_characters_are_all_but_letters_and_their_marks() -> None:
    assert [special_share(text) for text in ("ab1 !", "नमस्ते", "", "😀a")] == [0.6, 0.0, 0.0, 0.5]


def test_languages_are_told_by_writing_system() -> None:
    text = "ab 句子 дом!"
    assert script_share(text, frozenset({"LATIN"})) == pytest.approx(2 / 7)
    assert script_share(text, frozenset({"CJK", "CYRILLIC"})) == pytest.approx(5 / 7)
    assert script_share("123", frozenset({"LATIN"})) == 0.0


def test_a_rare_text_is_more_diverse() -> None:
    """'abcdef' has abcde and bcdef; the other two share all five-grams with each other."""
    assert diversities(["abcdef", "xyxyxyx", "xyxyxyx"]) == [1.0, 0.5, 0.5]
    assert diversities(["ab", "ab"]) == [0.5, 0.5]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "cache"))


ROWS = [
    {"prompt": "What is one and one?", "answer": "2", "rate": 0.5},
    {"prompt": "what is one and one? ", "answer": "2", "rate": 0.5},
    {"prompt": "short", "answer": "-", "rate": 1.0},
    {"prompt": "这是一个完全不同的中文问题吗", "answer": "是", "rate": 0.0},
    {"prompt": "hello hello hello hello hello", "answer": "h", "rate": 0.25},
]


def made(tmp_path: Path, *operators: dict[str, Any], rows: list[dict[str, Any]] = ROWS, **data: Any) -> Config:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return config_from({"data": {"train": [{"path": str(file)}], "operators": list(operators), **data}})


def result(config: Config) -> tuple[list[str], Prepared]:
    after, [done] = prepare(operator_spec(config), lambda text: len(text.split()))
    return list(load_source(after.train[0], key="data.train[0]")["prompt"]), done


@pytest.mark.parametrize(
    ("operator", "kept"),
    [
        ({"type": "length"}, [0, 1, 3, 4]),
        ({"type": "length", "min": 0, "max": 20}, [0, 2, 3]),
        ({"type": "length", "min": 2, "unit": "tokens"}, [0, 1, 4]),
        ({"type": "length", "column": "answer", "min": 1}, [0, 1, 2, 3, 4]),
        ({"type": "language", "scripts": ["latin"]}, [0, 1, 2, 4]),
        ({"type": "language", "scripts": ["cjk"], "min_share": 1.0}, [3]),
        ({"type": "duplicates"}, [0, 1, 2, 3, 4]),
        ({"type": "duplicates", "lowercase": True}, [0, 2, 3, 4]),
        ({"type": "duplicates", "column": "answer", "ignore_non_character": True}, [0, 3, 4]),
        ({"type": "alphanumeric", "min_ratio": 0.9}, [2, 3]),
        ({"type": "alphanumeric", "max_ratio": 0.9}, [0, 1, 4]),
        ({"type": "special_characters", "max_ratio": 0.2}, [2, 3, 4]),
        ({"type": "special_characters", "min_ratio": 0.2}, [0]),
        ({"type": "repetition", "max_ratio": 0.3}, [0, 1, 2, 3]),
        ({"type": "repetition", "rep_len": 5, "min_ratio": 0.3, "max_ratio": 1.0}, [4]),
        ({"type": "pass_rate", "column": "rate", "min": 0.1, "max": 0.9}, [0, 1, 4]),
    ],
)
def test_filters_of_rows(tmp_path: Path, operator: dict[str, Any], kept: list[int]) -> None:
    texts, done = result(made(tmp_path, operator))
    assert texts == [ROWS[row]["prompt"] for row in kept]
    [count] = done.counts
    assert (count.name, count.before, count.after) == (operator["type"], 5, len(kept))
    assert len(count.dropped) == min(3, 5 - len(kept))


OWN = """
def add(rows, word):
    return [{**row, "prompt": row["prompt"] + word} for row in rows if row["stats"]["text_len"] > 10]
"""


def test_an_operator_of_the_users_changes_rows(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = {"type": "function", "path": str(tmp_path / "own.py"), "function": "add", "args": {"word": "!"}}
    texts, done = result(made(tmp_path, {"type": "length", "min": 0}, own))
    assert texts == [row["prompt"] + "!" for row in ROWS if len(row["prompt"]) > 10]
    assert [(one.before, one.after) for one in done.counts] == [(5, 5), (5, 4)]
    with pytest.raises(RunError, match="has no 'remove'"):
        result(made(tmp_path, {**own, "function": "remove"}))


@pytest.mark.parametrize(
    ("service", "message", "hint"),
    [
        (None, r"data.operators\[0\] is an operator of Data-Juicer", "service.data_juicer.url"),
        ({"url": "http://127.0.0.1:9"}, "does not answer: .*refused", "auto_start"),
        ({"auto_start": True, "python": "/no/python"}, "/no/python, which cannot be started", "py-data-juicer"),
        ({"auto_start": True}, "py-data-juicer is not installed for", "separate environment"),
    ],
)
def test_without_a_service_what_to_do_is_said(tmp_path: Path, service: Any, message: str, hint: str) -> None:
    """Before anything else of the run starts; rlctl's own Python has no Data-Juicer."""
    config = made(tmp_path, {"type": "external", "kind": "text_length_filter"})
    config = replace(config, service=config_from({"service": {"data_juicer": service}}).service)
    with pytest.raises(RunError, match=message) as refused:
        check_service(config)
    assert hint in (refused.value.hint or "")
    check_service(made(tmp_path, {"type": "length"}))


def test_the_python_of_a_service_is_relative_to_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to that of the service."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    section = {"auto_start": True, "python": "env/python"}
    config = made(tmp_path, {"type": "external", "kind": "text_length_filter"})
    config = replace(config, service=config_from({"service": {"data_juicer": section}}).service)
    with pytest.raises(RunError, match=f"py-data-juicer is not installed for {tmp_path / 'env' / 'python'}"):
        check_service(config)


def test_a_service_with_a_token_refuses_requests_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it reads operators: with the token it fails later, as this Python has no Data-Juicer."""
    monkeypatch.setattr(server, "TOKEN", "secret")
    with ThreadingHTTPServer(("127.0.0.1", 0), server.Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{serving.server_port}"
        for token, status, hint in (
            ("", 401, "RLCTL_JUICER_TOKEN"),
            ("other", 401, "RLCTL_JUICER_TOKEN"),
            ("secret", 500, "name and args"),
        ):
            with pytest.raises(RunError, match=f"answered /create with {status}") as refused:
                Service(url, token).process({"operators": [{"text_length_filter": {}}]}, [{"text": "Hi"}], where="a")
            assert hint in (refused.value.hint or "")
        serving.shutdown()


def test_priority_sorts_and_cuts(tmp_path: Path) -> None:
    """By difficulty alone: pass rates 0.5, 0.5, 1, 0, 0.25 are difficulties 0.5, 0.5, 0, 1, 0.75; equal ones keep their order."""
    rate = {"type": "pass_rate", "column": "rate"}
    alone = {"difficulty": 1.0, "diversity": 0.0, "usage_frequency": 0.0, "quality": 0.0}
    texts, done = result(made(tmp_path, rate, priority={"weights": alone, "keep": 4}))
    assert texts == [ROWS[row]["prompt"] for row in (3, 4, 0, 1)]
    assert [(one.name, one.before, one.after) for one in done.counts][1] == ("priority", 5, 4)
    by_quality = {**dict.fromkeys(alone, 0.0), "quality": 1.0}
    texts, _ = result(made(tmp_path, {"type": "alphanumeric", "min_ratio": 0.0}, priority={"weights": by_quality}))
    assert texts[:2] == [ROWS[2]["prompt"], ROWS[3]["prompt"]], "all their characters are letters"
    used = [{**row, "consumed_cnt": number} for number, row in enumerate(ROWS)]
    by_use = {**dict.fromkeys(alone, 0.0), "usage_frequency": 1.0}
    texts, _ = result(made(tmp_path, rows=used, priority={"weights": by_use, "keep": 1}))
    assert texts == [ROWS[4]["prompt"]]
    by_diversity = {**dict.fromkeys(alone, 0.0), "diversity": -1.0}
    texts, _ = result(made(tmp_path, priority={"weights": by_diversity, "keep": 2}))
    assert set(texts) == {ROWS[0]["prompt"], ROWS[1]["prompt"]}


def test_a_result_is_found_until_rows_operators_or_code_change(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def operate(rows):\n    return rows\n")
    own = {"type": "function", "path": str(tmp_path / "own.py")}
    _, first = result(made(tmp_path, {"type": "length"}, own))
    _, again = result(made(tmp_path, {"type": "length"}, own))
    assert (first.made, again.made, again.digest, again.counts) == (True, False, first.digest, first.counts)
    _, other = result(made(tmp_path, {"type": "length", "min": 11}, own))
    (tmp_path / "own.py").write_text("def operate(rows):\n    return rows[:1]\n")
    _, changed = result(made(tmp_path, {"type": "length"}, own))
    _, rows = result(made(tmp_path, {"type": "length"}, own, rows=ROWS[:4]))
    assert len({each.digest for each in (first, other, changed, rows)}) == 4
    assert all(each.made for each in (other, changed, rows))


def test_a_changed_operator_is_a_change_of_the_training_data(tmp_path: Path) -> None:
    from rlctl.runtime.checkpoints.inputs import changes, inputs_of

    before = made(tmp_path, {"type": "length"})
    after = made(tmp_path, {"type": "length", "min": 11})
    kept = with_operators(inputs_of(before), [result(before)[1]])
    now = with_operators(inputs_of(after), [result(after)[1]])
    assert [each.kind for each in changes(kept, now, after) if "data.operators of" in each.key] == ["data"]
    assert changes(kept, with_operators(inputs_of(before), [result(before)[1]]), before) == []


def test_files_stand_for_the_first_data_set_and_a_copy_is_written(tmp_path: Path) -> None:
    config = made(tmp_path, {"type": "length"})
    (tmp_path / "more.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    data = {
        "train": [{"path": str(tmp_path / "absent")}],
        "operators": ["length"],
        "operators_input": [config.data.train[0].path, str(tmp_path / "more.jsonl")],
        "operators_output": str(tmp_path / "out"),
    }
    texts, done = result(config_from({"data": data}))
    assert (len(texts), done.counts[0].before) == (5, 6)
    written = [json.loads(line)["prompt"] for line in (tmp_path / "out" / "output.jsonl").read_text().splitlines()]
    assert written == texts
    assert result(config_from({"data": data}))[0] == texts, "the same copy may be there"
    shorter = {**data, "operators": [{"type": "length", "min": 0, "max": 20}]}
    with pytest.raises(RunError, match=r"output\.jsonl already exists, and its rows differ"):
        result(config_from({"data": shorter}))


def test_messages_are_their_contents(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": "x" * size}], "answer": "1"} for size in (5, 15)]
    config = made(tmp_path, {"type": "length"}, rows=rows)
    after, _ = prepare(operator_spec(config), len)
    kept = load_source(after.train[0], key="k")
    assert [row["prompt"][0]["content"] for row in kept] == ["x" * 15]


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no row of data.train\[0\] is left after data.operators\[0\] \(length\)"):
        result(made(tmp_path, {"type": "length", "min": 1000}))
    with pytest.raises(RunError, match="has no column 'pass_rate'"):
        result(made(tmp_path, {"type": "pass_rate"}))
    with pytest.raises(RunError, match="expects a pass rate from 0 to 1"):
        result(made(tmp_path, {"type": "pass_rate", "column": "answer"}))
    config = made(tmp_path)
    assert prepare(operator_spec(config), len) == (config.data, [])
