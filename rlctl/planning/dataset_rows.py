"""How many rows the local training data has, without loading it: a Parquet footer, lines of JSON, records of CSV.

What is not a local file of these formats (a hub name, a URL, a database) is not counted.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import orjson

from rlctl.common.filenames import expanded
from rlctl.config import Config
from rlctl.config.sections.data import DataSource
from rlctl.planning.parquet_footer import parquet_rows

PARQUET, LINES, CSV = ("parquet",), ("json", "jsonl", "ndjson"), ("csv", "tsv")
ENDINGS = (*PARQUET, *LINES, *CSV)
OPENERS: dict[str, Callable[..., Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""Words of file and folder names that put a file into a split, as the library ``datasets`` sees it."""
_WORDS = re.compile(r"[a-z]+")
MOST_BYTES = 2**28
"""Size up to which a JSON file that is one array is read."""


def count_rows(config: Config) -> int | None:
    """Rows of all training sources, before prompts are filtered; None if one cannot be counted, or operators drop some."""
    total = 0
    if config.data.operators or config.data.priority is not None:
        return None  # what operators leave is known when they have run
    for source in config.data.train:
        found = rows_of_source(source)
        if found is None:
            return None
        total += found
    return total or None


def rows_of_source(source: DataSource) -> int | None:
    """Rows of one source, at most ``max_samples``; None if they cannot be counted."""
    if source.format == "episodes":
        return source.max_samples
    if not source.path or source.format in ("hub", "sql"):
        return None
    path = expanded(source.path.removeprefix("file://"))
    try:
        found = _of_folder(path, source) if path.is_dir() else _of_file(path, source.format)
    except (OSError, ValueError, EOFError, IndexError, csv.Error, lzma.LZMAError):
        return None
    return found if found is None or source.max_samples is None else min(found, source.max_samples)


def _of_folder(folder: Path, source: DataSource) -> int | None:
    """Rows of the files of one split of a folder: of the one that is asked for, or of all files if there is only one."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and _ending(file) in ENDINGS]
    splits = {file: _split_of(file.relative_to(folder)) for file in files}
    if not any(splits.values()):
        splits = dict.fromkeys(files, "train")
    wanted = source.split or ("train" if set(splits.values()) == {"train"} else "")
    counts = [_of_file(file, "auto") for file in files if splits[file] == wanted]
    return None if not counts or None in counts else sum(count for count in counts if count is not None)


def _split_of(path: Path) -> str:
    """The split that a file's name, or a folder around it, says; empty if none does."""
    names = [path.name, *(part for part in reversed(path.parts[:-1]))]
    words = (word for name in names for word in _WORDS.findall(name.lower()))
    return next((SPLITS[word] for word in words if word in SPLITS), "")


def _ending(path: Path) -> str:
    parts = path.name.lower().split(".")
    if parts[-1] in OPENERS:
        parts.pop()
    return parts[-1] if len(parts) > 1 else ""


def _of_file(path: Path, format: str) -> int | None:
    if not path.is_file():
        return None
    ending = _ending(path) if format == "auto" else format
    if ending in PARQUET:
        return parquet_rows(path)
    opener = OPENERS.get(path.name.lower().rpartition(".")[2], Path.open)
    if ending in LINES:
        with opener(path, "rb") as file:
            return _json_rows(file, path)
    if ending in CSV:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            return max(0, sum(1 for row in csv.reader(file, delimiter="\t" if ending == "tsv" else ",") if row) - 1)
    return None


def _json_rows(file: IO[bytes], path: Path) -> int | None:
    """Lines of JSON, or the length of an array."""
    first = next((line for line in file if line.strip()), b"")
    if not first.lstrip().startswith(b"["):
        return sum(1 for line in file if line.strip()) + bool(first)
    if path.stat().st_size > MOST_BYTES:
        return None
    found = orjson.loads(first + file.read())
    return len(found) if isinstance(found, list) else None
