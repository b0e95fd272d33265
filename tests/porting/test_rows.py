"""Rows in another framework's columns: what each framework reads, and every row that is not written."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlctl.common.errors import RunError, UsageError
from rlctl.porting.folder import whole_folder
from rlctl.porting.inspecting import inspected
from rlctl.porting.reading import data_files, rows_of
from rlctl.porting.rows import Names, Row, guessed, row_of
from rlctl.porting.sampling import mixed, sampled, shares, write_file
from rlctl.porting.writing import write_rows

VERL: list[dict[str, Any]] = [
    {
        "data_source": "my/sums",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is 20 + {number}?"}],
        "reward_model": {"style": "rule", "ground_truth": "007"},
        "extra_info": {"when": "2024-01-01", "index": number},
    }
    for number in range(3)
]


def _moved(folder: Path, rows: list[Any], target: str, names: Names) -> tuple[Any, list[dict[str, Any]]]:
    file = folder / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / target).mkdir()
    done = write_rows([(each, names) for each in data_files(file)], target, folder / target)
    return done, pq.read_table(folder / target / "train.parquet").to_pylist()


@pytest.mark.parametrize("target", ["verl", "trinity", "roll", "rlctl"])
def test_a_row_of_verl_keeps_its_messages_answer_source_and_itself(tmp_path: Path, target: str) -> None:
    names = guessed(list(VERL[0]), prompt=None, answer=None, source=None)
    assert names is not None
    done, rows = _moved(tmp_path, VERL, target, names)
    assert (done.rows, done.written, done.skipped) == (3, 3, 0)
    first = rows[0]
    raw = first["extra_info"]["source_row"] if "extra_info" in first else first["source_row"]
    assert json.loads(raw) == VERL[0]
    messages = {"verl": "prompt", "rlctl": "prompt"}.get(target, "messages")
    assert first[messages] == VERL[0]["prompt"]
    assert first.get("ground_truth", first.get("reward_model", {}).get("ground_truth")) == "007"
    assert first.get("tag", first.get("data_source")) == "my/sums"
    assert target != "trinity" or first["prompt"] == "What is 20 + 0?"


REFUSED = {
    "is empty": None,
    "is neither text nor a list of messages": 7,
    "is not a list of messages with a role": [{"text": "a"}],
    "has a message whose content is not text": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    "has a message with tool_calls, which only its chat template reads": [
        {"role": "user", "content": "a", "tool_calls": []}
    ],
    "ends with a message of the assistant": [{"role": "assistant", "content": "a"}],
}


def test_every_row_is_written_or_listed_with_its_reason(tmp_path: Path) -> None:
    rows: list[Any] = [{"question": prompt, "answer": 1} for prompt in REFUSED.values()]
    done, written = _moved(tmp_path, [*rows, [], {"question": "q"}], "roll", Names("question", "answer"))
    assert (done.rows, done.written, done.skipped, done.without_answer) == (8, 1, 7, 1)
    assert (written[0]["tag"], written[0]["ground_truth"]) == ("train", "")
    listed = [json.loads(line) for line in (tmp_path / "roll" / "skipped.jsonl").read_text().splitlines()]
    assert [each["row"] for each in listed] == [1, 2, 3, 4, 5, 6, 7]
    assert [each["reason"] for each in listed] == [
        *(f"the column question {reason}" for reason in REFUSED),
        "the line is not a JSON object",
    ]


def test_a_system_prompt_is_put_first_unless_the_row_has_one() -> None:
    made = row_of({"q": "a"}, Names("q", system_prompt="S"))
    assert isinstance(made, Row)
    assert [each["role"] for each in made.messages] == ["system", "user"]
    assert isinstance(row_of(VERL[0], Names("prompt", system_prompt="S")), str)


def test_messages_as_json_text_are_messages() -> None:
    made = row_of({"messages": json.dumps(VERL[0]["prompt"])}, Names("messages"))
    assert isinstance(made, Row)
    assert list(made.messages) == VERL[0]["prompt"]


def test_images_go_along_where_the_target_has_them(tmp_path: Path) -> None:
    rows = [{**VERL[0], "images": [{"bytes": b"png", "path": None}], "features": b"x"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    names = guessed(list(rows[0]), prompt=None, answer=None, source=None)
    assert names is not None
    (file,) = data_files(tmp_path / "train.parquet")
    (tmp_path / "made").mkdir()
    done = write_rows([(file, names)], "verl", tmp_path / "made")
    (row,) = pq.read_table(tmp_path / "made" / "train.parquet").to_pylist()
    assert row["images"] == rows[0]["images"]
    assert done.binary == {"features"}
    with pytest.raises(RunError, match="images"):
        write_rows([(file, names)], "roll", tmp_path / "made")


def test_files_of_all_kinds_hold_the_same_rows(tmp_path: Path) -> None:
    rows = [{"q": "a", "n": "1"}, {"q": "b", "n": "2"}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(text)
    (tmp_path / "b.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "c.csv").write_text("q,n\na,1\nb,2\n")
    (tmp_path / "d.tsv").write_text("q\tn\na\t1\nb\t2\n")
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "f.parquet")
    files = data_files(tmp_path)
    assert [[placed.row for placed in rows_of(file.path)] for file in files] == [rows] * 6


def test_splits_are_what_names_say(tmp_path: Path) -> None:
    for name in ("train-00000-of-00002.parquet", "math_test.jsonl", "dev.json", "rows.csv", "validation/a.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    splits = {file.path.name: file.split for file in data_files(tmp_path)}
    assert list(splits.values()) == ["validation", "test", "train", "train", "validation"]


def test_a_sample_is_the_same_for_a_seed_and_in_order(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(100)))
    files = data_files(tmp_path / "rows.jsonl")
    first, total = sampled(files, 10, 3)
    assert (first, total) == sampled(files, 10, 3)
    numbers = [row["n"] for row in first]
    assert len(set(numbers)) == 10
    assert numbers == sorted(numbers)
    assert sampled(files, 10, 4)[0] != first
    assert len(sampled(files, 1000, 0)[0]) == total == 100


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def broken() -> None:
        with whole_folder(target, force=False) as made:
            (made / "half").write_text("x")
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert list(tmp_path.iterdir()) == []
    with whole_folder(target, force=False) as made:
        (made / "a").write_text("1")
    with pytest.raises(UsageError, match="not empty"), whole_folder(target, force=False):
        pass
    (target / "mine").write_text("stays")
    with whole_folder(target, force=True) as made:
        (made / "a").write_text("2")
    assert {path.name: path.read_text() for path in target.iterdir()} == {"a": "2", "mine": "stays"}


def test_a_folder_that_a_killed_process_replaced_in_part_does_not_look_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, replace = tmp_path / "out", Path.replace
    with whole_folder(target, force=False) as made:
        (made / "run.sh").write_text("1")
        (made / "z").write_text("1")

    def killed(path: Path, place: Path) -> Path:
        if path.name == "z":
            raise KeyboardInterrupt
        return replace(path, place)

    monkeypatch.setattr(Path, "replace", killed)

    def again() -> None:
        with whole_folder(target, force=True, last=("run.sh",)) as made:
            for name in ("a", "run.sh", "z"):
                (made / name).write_text("2")

    with pytest.raises(KeyboardInterrupt):
        again()
    assert {path.name for path in target.iterdir()} == {"a", "z"}


def test_what_killed_processes_left_is_removed_and_what_others_make_stays(tmp_path: Path) -> None:
    left, fresh = tmp_path / ".out.abc.partial", tmp_path / ".out.def.partial"
    for folder in (left, fresh):
        folder.mkdir()
    os.utime(left, (0, 0))
    with whole_folder(tmp_path / "out", force=False) as first:
        os.utime(first, (0, 0))
        with whole_folder(tmp_path / "out", force=False) as second:
            (second / "a").write_text("1")
        assert first.exists()
        (first / "a").write_text("2")
        assert not left.exists()
        assert fresh.exists()
        shutil.rmtree(tmp_path / "out")


def test_an_inspection_tells_types_lengths_duplicates_and_what_no_run_can_use(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "20 + 1?", "answer": "21", "data_source": "sums", "more": {"a": 1, "b": None}},
        {"prompt": "20 + 1?", "answer": "22", "data_source": "sums", "more": {"a": "x"}},
        {"prompt": [{"role": "user", "content": "a" * 40}], "answer": "", "data_source": "texts"},
        {"prompt": "", "answer": "1"},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "broken\n")
    (tmp_path / "test.jsonl").write_text(json.dumps(rows[0]) + "\n")
    names = Names("prompt", "answer", "data_source")
    files = [(file, names) for file in data_files(tmp_path)]
    found = inspected(files, tokens=lambda messages: len(messages), limit=1)
    assert (found.rows, dict(found.sources)) == (6, {"sums": 3, "texts": 1})
    assert dict(found.columns["prompt"].types) == {"string": 3, "messages": 1}
    assert found.columns["prompt"].empty == 2, "one is empty, and one line is no row"
    assert dict(found.columns["more.a"].types) == {"integer": 2, "string": 1}
    assert found.columns["more.b"].empty == 6
    assert (found.repeated, found.contradicting, found.shared, found.without_answer) == (0, 0, 2, 1)
    assert dict(found.reasons) == {"the column prompt is empty": 1, "the line is not JSON": 1}
    assert found.too_long == 0
    assert found.lengths["prompt_characters"].bins() == [
        (5, 9, 3), *((low, low + 4, 0) for low in range(10, 40, 5)), (40, 44, 1),
    ]  # fmt: skip
    assert [found.lengths["prompt_characters"].at(share) for share in (50, 75, 99)] == [7, 7, 40]
    train = inspected([files[1]])
    assert (train.repeated, train.contradicting, train.shared, train.too_long) == (1, 1, 0, None)


def test_a_mix_keeps_its_shares_and_takes_no_row_twice(tmp_path: Path) -> None:
    for name, count in (("a", 30), ("b", 12)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({name: number}) + "\n" for number in range(count)))
    sources = [data_files(tmp_path / f"{name}.jsonl") for name in ("a", "b")]
    rows, taken, have = mixed(sources, [2, 1], None, seed=3)
    made = list(rows)
    assert (taken, have) == ([24, 12], [30, 12])
    assert sorted(row["b"] for row in made if "b" in row) == list(range(12))
    of_a = [row["a"] for row in made if "a" in row]
    assert of_a == sorted(set(of_a))
    assert made == list(mixed(sources, [2, 1], None, seed=3)[0]) != list(mixed(sources, [2, 1], None, seed=4)[0])
    assert shares(10, [1, 1, 1]) == [4, 3, 3]
    with pytest.raises(UsageError, match=r"b\.jsonl has 12 rows, and its share is 20"):
        mixed(sources, [1, 1], 40, seed=0)
    files = [file for each in sources for file in each]
    write_file(iter(made), tmp_path / "m.parquet", files)
    assert pq.read_table(tmp_path / "m.parquet").to_pylist() == [{"a": None, "b": None, **row} for row in made]
    (tmp_path / "b.jsonl").write_text('{"a": "text"}\n')
    with pytest.raises(RunError, match="different types"):
        write_file(iter(made), tmp_path / "n.parquet", files)
