"""Rows of data files, a batch at a time: Parquet, JSON Lines, JSON lists, CSV, and folders of them."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said
from rlctl.common.packages import install

ENDINGS = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".jsonl.gz", ".json.gz")
BATCH = 256
"""Rows of a Parquet file that are in memory at a time."""
SPLITS = {"train": "train", "training": "train", "test": "test", "val": "validation", "valid": "validation",
          "validation": "validation", "dev": "validation", "eval": "validation"}  # fmt: skip
"""Parts of a file's name, and the split that they stand for, as ``datasets`` reads a folder."""


class Placed(NamedTuple):
    """A row of a file, or the reason why a line is not one."""

    number: int
    """Rows count from 0; lines of JSON Lines and CSV from 1."""
    row: Mapping[str, Any] | None
    reason: str = ""
    """Why it is no row."""


class DataFile(NamedTuple):
    """A file of rows and the split that its name says."""

    path: Path
    split: str


def data_files(source: Path, split: str | None = None) -> list[DataFile]:
    """The files of rows of a path, in the order of their names.

    Args:
        source: a file, or a folder with files in it and below it.
        split: the split of all of them; by default what their names say, else ``train``.

    Raises:
        RunError: there is no such file, or the folder has none.
    """
    if source.is_file():
        if not source.name.lower().endswith(ENDINGS):
            raise RunError(
                said("{file} has no known suffix", file=source),
                hint=said("expected one of {names}", names=", ".join(ENDINGS)),
            )
        return [DataFile(source, split or split_of(Path(source.name)))]
    if not source.is_dir():
        raise RunError(said("there is no file or folder {path}", path=source), hint="check the path")
    found = [path for path in sorted(source.rglob("*")) if path.is_file() and path.name.lower().endswith(ENDINGS)]
    if not found:
        raise RunError(
            said("the folder {path} contains no file of rows", path=source),
            hint=said("expected one of {names}", names=", ".join(ENDINGS)),
        )
    return [DataFile(path, split or split_of(path.relative_to(source))) for path in found]


def split_of(path: Path) -> str:
    """The split that a file's name, or else a folder of its path, says: ``train`` where they say none."""
    for name in (path.name.lower().partition(".")[0], *map(str.lower, reversed(path.parent.parts))):
        for part in name.replace("-", "_").split("_"):
            if part in SPLITS:
                return SPLITS[part]
    return "train"


def rows_of(path: Path) -> Iterator[Placed]:
    """Every row of a file, or the reason for each line that is none.

    Raises:
        RunError: the file cannot be read as what its suffix says.
        MissingDependency: it is Parquet, and pyarrow is not installed.
    """
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            yield from _parquet(path)
        elif name.endswith((".csv", ".tsv")):
            yield from _csv(path)
        else:
            yield from _json(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(
            said("{file} cannot be read: {reason}", file=path, reason=str(error).partition("\n")[0]),
            hint="check that the file is whole and is what its suffix says",
        ) from error


def parquet_modules() -> tuple[Any, Any]:
    """``pyarrow`` and ``pyarrow.parquet``.

    Raises:
        MissingDependency: they are not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingDependency(
            "Parquet files need pyarrow, which is not installed", hint=install("runtime")
        ) from error
    return pa, parquet


def _parquet(path: Path) -> Iterator[Placed]:
    pa, parquet = parquet_modules()
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                for row in batch.to_pylist():
                    yield Placed(number, row)
                    number += 1
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _json(path: Path) -> Iterator[Placed]:
    with _opened(path) as stream:
        first = next((line for line in stream if line.strip()), b"")
        if not first.lstrip().startswith(b"[") and _is_whole(first):
            stream.seek(0)
            yield from (_line(number, line) for number, line in enumerate(stream, start=1) if line.strip())
            return
        stream.seek(0)
        yield from _list(path, stream.read())


def _is_whole(line: bytes) -> bool:
    """Whether a line is a JSON value alone, so that the file is JSON Lines; damaged ones are, too."""
    try:
        json.loads(line)
    except ValueError:
        return line.strip() not in (b"{", b"")
    return True


def _line(number: int, line: bytes) -> Placed:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return Placed(number, None, "the line is not JSON")
    return Placed(number, row) if isinstance(row, dict) else Placed(number, None, "the line is not a JSON object")


def _list(path: Path, data: bytes) -> Iterator[Placed]:
    """The rows of a JSON list, which is held in memory."""
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise OSError(str(error)) from error
    if not isinstance(rows, list):
        raise RunError(
            said("{file} is neither a JSON list of rows nor JSON Lines", file=path),
            hint="write one JSON object a line, or a list of objects",
        )
    for number, row in enumerate(rows):
        yield Placed(number, row) if isinstance(row, dict) else Placed(number, None, "the item is not a JSON object")


def _csv(path: Path) -> Iterator[Placed]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        for row in reader:
            whole = None not in row and None not in row.values()
            yield (
                Placed(reader.line_num, row)
                if whole
                else Placed(reader.line_num, None, "the line has another number of fields than the header")
            )
