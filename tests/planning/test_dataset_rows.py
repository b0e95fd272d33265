"""Rows of local data are those that pyarrow and datasets count."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from rlctl.config import config_from
from rlctl.config.sections.data import DataSource
from rlctl.planning.dataset_rows import count_rows, rows_of_source
from rlctl.planning.parquet_footer import parquet_fields, parquet_rows

NESTED = pyarrow.schema(
    [
        ("prompt", pyarrow.list_(pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())]))),
        ("score", pyarrow.float64()),
        ("flag", pyarrow.bool_()),
        ("extra", pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        ("when", pyarrow.timestamp("us", tz="UTC")),
        ("price", pyarrow.decimal128(10, 2)),
    ]
)


@pytest.mark.parametrize("rows", [0, 1, 7473, 100_000])
@pytest.mark.parametrize("options", [{}, {"version": "1.0"}, {"row_group_size": 1000, "compression": "gzip"}])
def test_a_parquet_footer_says_as_many_rows_as_pyarrow(rows: int, options: dict[str, Any], tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "x"}], "score": 1.0, "flag": True, "extra": [("a", 1)]}
    table = pyarrow.Table.from_pylist([row] * min(rows, 10), schema=NESTED)
    table = pyarrow.concat_tables([table] * (rows // 10) + [table.slice(0, rows % 10)]) if rows > 10 else table
    path = tmp_path / "train.parquet"
    parquet.write_table(table, path, **options)
    assert rows_of_source(DataSource(path=str(path))) == parquet.read_metadata(path).num_rows == rows


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": 2}\n\n{"a": 3}', 3),
        ("a.ndjson", '{"a": 1}\n', 1),
        ("a.json", '[{"a": 1}, {"a": 2}]', 2),
        ("b.json", '[\n  {"a": 1},\n  {"a": 2}\n]\n', 2),
        ("a.csv", 'prompt,answer\n"two\nlines",1\nx,2\n', 2),
        ("a.tsv", "prompt\tanswer\nx\t1\n", 1),
        ("empty.jsonl", "", 0),
        ("a.txt", "text\n", None),
        ("damaged.parquet", "PAR1 this is none PAR2", None),
        ("short.parquet", "x", None),
        ("broken.json", "[{", None),
    ],
)
def test_text_is_counted_by_rows(name: str, text: str, rows: int | None, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert rows_of_source(DataSource(path=str(tmp_path / name))) == rows


def test_what_counts_is_what_datasets_reads(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "a.json").write_text(json.dumps([{"a": 1}, {"a": 2}], indent=1))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    (tmp_path / "c.csv").write_text('a\n1\n"2\n3"\n')
    for name, reader in (("a.json", "json"), ("b.jsonl.gz", "json"), ("c.csv", "csv")):
        path = str(tmp_path / name)
        read = datasets.load_dataset(reader, data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
        assert rows_of_source(DataSource(path=path)) == read.num_rows


def test_sources_add_up_and_keep_to_their_limit(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 5)
    (tmp_path / "data").mkdir()
    for part in (1, 2):
        (tmp_path / "data" / f"part-{part}.jsonl").write_text('{"a": 1}\n' * 10)
    files = [{"path": str(tmp_path / "a.jsonl"), "max_samples": 3}, {"path": str(tmp_path / "data")}]
    assert count_rows(config_from({"data": {"train": files}})) == 23


@pytest.mark.parametrize(
    "source", [{"path": "org/dataset"}, {"path": "s3://bucket/a.parquet"}, {"path": "a.db", "format": "sql"}, {}]
)
def test_what_is_not_a_local_file_is_not_counted(source: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    assert count_rows(config_from({"data": {"train": [{"path": str(tmp_path / "a.jsonl")}, source]}})) is None


def test_a_folder_with_splits_is_not_counted(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text('{"a": 1}\n')
    assert rows_of_source(DataSource(path=str(tmp_path))) is None


def test_the_columns_of_a_footer_are_those_that_pyarrow_names(tmp_path: Path) -> None:
    answer = pyarrow.struct([("ground_truth", pyarrow.string()), ("style", pyarrow.struct([("问", pyarrow.bool_())]))])
    schema = pyarrow.schema([*NESTED, ("reward_model", answer), ("names", pyarrow.list_(pyarrow.string()))])
    parquet.write_table(schema.empty_table(), tmp_path / "a.parquet")

    def inside(fields: Any, above: tuple[str, ...]) -> Any:
        for field in fields:
            yield (*above, field.name)
            if pyarrow.types.is_struct(field.type):
                yield from inside(field.type.fields, (*above, field.name))

    assert parquet_fields(tmp_path / "a.parquet") == tuple(inside(schema, ()))


def test_a_damaged_footer_is_an_error_whatever_is_damaged(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"a": [1], "b": [{"c": "x"}]}), tmp_path / "a.parquet")
    good, random = (tmp_path / "a.parquet").read_bytes(), Random(7)
    file = tmp_path / "b.parquet"
    for _ in range(400):
        data = bytearray(good[: random.choice([len(good), random.randrange(1, len(good))])])
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        file.write_bytes(data)
        for reader in (parquet_fields, parquet_rows):
            with suppress(ValueError):
                reader(file)
