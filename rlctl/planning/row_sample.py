"""Rows of a data file, up to a limit: JSON and CSV are read here, Parquet by pyarrow if that is installed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

ROWS = 20_000
"""Rows that are read."""
LARGEST_JSON = 64 << 20
"""Bytes of a JSON list that is read; a larger one is left unread."""


@dataclass(frozen=True, slots=True)
class RowSample:
    """The first rows of a file."""

    rows: tuple[Mapping[str, Any], ...]
    whole: bool
    """Whether the file has no others."""


def row_sample(path: Path, form: str = "auto", without: tuple[str, ...] = (), most: int = ROWS) -> RowSample | None:
    """The first rows of a file; None if its format is not read here, or it is damaged.

    Args:
        path: of the file.
        form: its format, as ``data.train[].format`` says it.
        without: columns of a Parquet file that are left unread, such as those of images; ``*.bytes`` leaves out what has this
            name inside of columns.
        most: rows to read.
    """
    try:
        state = path.stat()
    except OSError:
        return None
    return _read(path.absolute(), form, without, most, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=4)
def _read(path: Path, form: str, without: tuple[str, ...], most: int, state: tuple[int, int]) -> RowSample | None:
    """The rows of a file that was last changed at a time, in nanoseconds, and has some bytes."""
    ending = path.suffix.lower().removeprefix(".") if form == "auto" else form
    reader = READERS.get(ending)
    if reader is None or not path.is_file():
        return None
    try:
        rows = list(islice(reader(path, without, most), most + 1))
    except (OSError, ValueError, RecursionError, csv.Error, ImportError):
        return None
    return RowSample(tuple(rows[:most]), whole=len(rows) <= most)


def _json(path: Path, without: Sequence[str], most: int) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as stream:
        first = next((line for line in stream if line.strip()), b"")
        if first.lstrip().startswith(b"["):
            if path.stat().st_size > LARGEST_JSON:
                raise ValueError(f"{path} is too large to be read whole")
            yield from (row for row in json.loads(path.read_bytes()) if isinstance(row, Mapping))
            return
        stream.seek(0)
        yield from (row for line in stream if line.strip() and isinstance(row := json.loads(line), Mapping))


def _csv(path: Path, without: Sequence[str], most: int) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")


def _parquet(path: Path, without: Sequence[str], most: int) -> Iterator[Mapping[str, Any]]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        ends = tuple(name[1:] for name in without if name.startswith("*."))
        paths = (file.schema.column(index).path for index in range(len(file.schema)))
        names = [path for path in paths if path.partition(".")[0] not in without and not path.endswith(ends)]
        for batch in file.iter_batches(batch_size=min(most + 1, 4096), columns=names):
            yield from batch.to_pylist()


READERS = {"parquet": _parquet, "jsonl": _json, "ndjson": _json, "json": _json, "csv": _csv, "tsv": _csv}


def value_at(row: Mapping[str, Any], key: str) -> Any:
    """The value of a column, or of a field inside one, as ``reward_model.ground_truth``; None if the row lacks it."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value
