"""A data source is read whatever its format, and one that cannot be read says why, where, and which key to set."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from rlctl.common.errors import RunError
from rlctl.config.sections.data import DataSource
from rlctl.runtime.data import sources
from rlctl.runtime.data.sources import load_source, require_column, source_name

ROWS = [{"prompt": f"p{i}", "answer": i} for i in range(5)]


def write(folder: Path, name: str) -> str:
    file = folder / name
    table = Dataset.from_list(ROWS)
    if ".parquet" in name:
        table.to_parquet(str(file))
    elif ".csv" in name:
        table.to_csv(str(file))
    elif ".tsv" in name:
        table.to_csv(str(file), sep="\t")
    elif name.endswith(".json"):
        file.write_text(json.dumps(ROWS))
    elif name.endswith(".gz"):
        file.write_bytes(gzip.compress("\n".join(map(json.dumps, ROWS)).encode()))
    else:
        file.write_text("\n".join(map(json.dumps, ROWS)))
    return str(file)


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv"])
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = load_source(DataSource(path=write(tmp_path, name)), key="data.train[0]")
    assert rows.to_list() == ROWS


def test_format_overrides_the_ending(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.txt")
    with pytest.raises(RunError, match=r"no known file suffix.*\n.*data\.train\[0\]\.format"):
        load_source(DataSource(path=path), key="data.train[0]")
    assert load_source(DataSource(path=path, format="json"), key="data.train[0]").num_rows == 5


def test_max_samples_takes_the_first(tmp_path: Path) -> None:
    source = DataSource(path=write(tmp_path, "a.jsonl"), max_samples=2)
    assert load_source(source, key="k")["prompt"][:] == ["p0", "p1"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl")
    load_source(DataSource(path=path), key="k")
    time.sleep(0.02)
    Path(path).write_text(json.dumps({"prompt": "new", "answer": 9}))
    assert load_source(DataSource(path=path), key="k").to_list() == [{"prompt": "new", "answer": 9}]


def test_folder_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder, "b.parquet")
    write(folder, "a.parquet")
    assert load_source(DataSource(path=str(folder), format="parquet"), key="k").num_rows == 10


def test_folder_with_splits_takes_train_unless_told(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder, "train.jsonl")
    (folder / "test.jsonl").write_text(json.dumps({"prompt": "t", "answer": 0}))
    assert load_source(DataSource(path=str(folder)), key="k").num_rows == 5
    assert load_source(DataSource(path=str(folder), split="test"), key="k").num_rows == 1
    with pytest.raises(
        RunError, match=r"no split 'tset'; its splits are (train, test|test, train)\n.*did you mean 'test'"
    ):
        load_source(DataSource(path=str(folder), split="tset"), key="k")


def test_saved_data_set(tmp_path: Path) -> None:
    DatasetDict({"a": Dataset.from_list(ROWS), "b": Dataset.from_list(ROWS[:1])}).save_to_disk(tmp_path / "saved")
    path = str(tmp_path / "saved")
    assert load_source(DataSource(path=path, split="b"), key="k").num_rows == 1
    with pytest.raises(RunError, match="several splits; its splits are a, b"):
        load_source(DataSource(path=path), key="k")


def test_url_through_fsspec(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl")
    assert load_source(DataSource(path=f"file://{path}"), key="k").num_rows == 5


def test_missing_file_names_a_similar_one(tmp_path: Path) -> None:
    write(tmp_path, "train.parquet")
    with pytest.raises(
        RunError, match=r"there is no file .*trian\.parquet: did you mean 'train\.parquet'\?\n.*data\.train\[1\]\.path"
    ):
        load_source(DataSource(path=str(tmp_path / "trian.parquet")), key="data.train[1]")


@pytest.mark.parametrize("content", ["", "\n", "[]"])
def test_empty_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(content)
    with pytest.raises(RunError, match=r"a\.json"):
        load_source(DataSource(path=str(file)), key="k")


def test_wrong_format_shows_the_cause(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_text("no parquet")
    with pytest.raises(RunError, match=r"cannot read .*a\.parquet as parquet: .*[Pp]arquet"):
        load_source(DataSource(path=str(file)), key="k")


def test_missing_column_names_those_there_are(tmp_path: Path) -> None:
    source = DataSource(path=write(tmp_path, "a.jsonl"))
    rows = load_source(source, key="k")
    with pytest.raises(RunError) as caught:
        require_column(rows, "promt", source=source, key="data.train[0].prompt_key")
    assert "no column 'promt'; its columns are prompt, answer" in str(caught.value)
    assert "did you mean 'prompt'? set data.train[0].prompt_key" in str(caught.value)


@pytest.mark.parametrize("offline", [True, False])
def test_hub_name_that_is_not_there_fails_in_seconds(monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    from huggingface_hub import constants

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(RunError, match=r"no data nobody/nothing .*offline or cannot be reached"):
        load_source(DataSource(path="nobody/nothing"), key="data.train[0]")
    assert time.monotonic() - start < 5
    assert constants.HF_HUB_OFFLINE is offline


def test_sql_is_refused() -> None:
    with pytest.raises(RunError, match="sql"):
        load_source(DataSource(path="a.db", format="sql"), key="k")


def test_names() -> None:
    assert source_name(DataSource(path="/x/gsm8k.train.parquet")) == "gsm8k"
    assert source_name(DataSource(path="/x/folder/")) == "folder"
    assert source_name(DataSource(path="x", name="mine")) == "mine"


def test_a_line_that_is_not_json_is_named_however_far_down(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = json.dumps({"prompt": "x" * 1000})
    path.write_text("\n".join([good] * 20_000 + ['{"prompt": oops}']))
    with pytest.raises(RunError, match=rf"line 20001 of {path} is not JSON"):
        load_source(DataSource(path=str(path)), key="data.train[0]")


def test_text_that_is_not_utf_8_is_named_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"prompt": "e"}\n{"prompt": "é"}\n'.encode("latin1"))
    for size in (1 << 20, 7, 3):  # of a block: its end may be inside a character
        monkeypatch.setattr(sources, "BLOCK_BYTES", size)
        sources._check_text([__file__])
        with pytest.raises(RunError, match=rf"line 2 of {path} is not UTF-8: .*xe9"):
            load_source(DataSource(path=str(path)), key="data.train[0]")
    path.write_bytes('{"prompt": "é'.encode()[:-1])
    with pytest.raises(RunError, match=rf"line 1 of {path} is not UTF-8: .*xc3"):
        load_source(DataSource(path=str(path)), key="data.train[0]")


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    Dataset.from_list(ROWS).select([]).to_parquet(str(path))
    with pytest.raises(RunError, match=rf"^{path} has no rows"):
        load_source(DataSource(path=str(path)), key="data.train[0]")


MEASURE = """
import os, sys, threading, time
import pyarrow as pa, pyarrow.parquet as pq
import datasets
from rlctl.config.sections.data import DataSource
from rlctl.runtime.data.sources import load_source

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024

path, groups, rows = sys.argv[1], 36, 1500
pq.write_table(pa.table({"prompt": ["x"]}), path + ".small.parquet")
load_source(DataSource(path=path + ".small.parquet"), key="k")  # what the libraries load the first time is not counted
with pq.ParquetWriter(path, pa.schema([("prompt", pa.string())])) as writer:
    for _ in range(groups):
        writer.write_table(pa.table({"prompt": [os.urandom(2000).hex() for _ in range(rows)]}), row_group_size=rows)
whole = groups * rows * 4000 / 2**20
pa.default_memory_pool().release_unused()
before, peak, done = anonymous(), 0.0, False

def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.005)

watcher = threading.Thread(target=watch)
watcher.start()
opened = load_source(DataSource(path=path), key="k")
assert sum(len(opened[row]["prompt"]) for row in range(0, opened.num_rows, 7)) > 0
done = True
watcher.join()
print(whole, peak - before)
"""


def test_a_parquet_file_is_not_read_whole(tmp_path: Path) -> None:
    """36 row groups, 206 MiB as text: what the process holds of its own grows by a part of that."""
    environment = {**os.environ, "HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "rows.parquet")]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    whole, grown = map(float, told.split()[-2:])
    assert whole > 200
    assert grown < 0.75 * whole, f"{grown:.0f} of {whole:.0f} MiB"


@pytest.mark.parametrize("cache", ["/dev/null/cache", "/proc/cache"])
def test_a_cache_that_cannot_be_written_is_named_and_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    path = write(tmp_path, "a.jsonl")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", cache)
    with pytest.raises(RunError, match=f"the cache of data sets {cache} cannot be written: ") as refused:
        load_source(DataSource(path=path), key="data.train[0]")
    assert "HF_HOME" in refused.value.hint
    assert "a.jsonl" not in str(refused.value)


def test_a_full_cache_is_named_and_not_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a.jsonl")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.builder.has_sufficient_disk_space", lambda *_, **__: False)
    with pytest.raises(RunError, match=r"cache cannot be written: No space left on device"):
        load_source(DataSource(path=path), key="data.train[0]")
