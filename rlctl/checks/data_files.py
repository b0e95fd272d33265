"""Data files that a config names: their columns and rows, without loading them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlctl import arithmetic
from rlctl.checks.problem import Problem, Surroundings
from rlctl.config import Config
from rlctl.config.sections.data import DataSource
from rlctl.documents.paths import KeyPath, dotted
from rlctl.errors import nearest
from rlctl.filenames import expanded

LARGEST_JSON = 64 << 20
"""Bytes of a JSON list that is read whole to count its rows; JSONL, CSV and Parquet are never read whole."""
BLOCK = 1 << 20


class UnreadableError(ValueError):
    """A file is not what its ending says; the text says why."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is known of a data file."""

    columns: tuple[str, ...]
    rows: int | None
    """None where counting them would take too long."""


def contents(path: Path, form: str = "auto") -> Contents | None:
    """The columns and rows of a file; None for a format that is not read here, or without the package that reads it.

    Raises:
        UnreadableError: the file is not what its ending, or ``form``, says.
    """
    ending = path.suffix.lower().removeprefix(".") if form == "auto" else form
    readers = {
        "parquet": _parquet,
        "jsonl": _json_lines,
        "ndjson": _json_lines,
        "json": _json,
        "csv": _csv,
        "tsv": _csv,
    }
    reader = readers.get(ending)
    try:
        return reader(path) if reader is not None else None
    except (OSError, UnicodeDecodeError, RecursionError, csv.Error) as error:
        raise UnreadableError(str(error)) from error


def _parquet(path: Path) -> Contents | None:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        return None
    try:
        with ParquetFile(path) as file:
            return Contents(tuple(file.schema_arrow.names), file.metadata.num_rows)
    except ArrowException as error:
        raise UnreadableError(f"it is no Parquet file: {str(error).splitlines()[0]}") from error


def _json_lines(path: Path) -> Contents:
    with path.open("rb") as stream:
        first = next((line for line in stream if line.strip()), b"")
        rows, last = bool(first) * 1, first
        while block := stream.read(BLOCK):
            rows += block.count(b"\n")
            last = block
        rows += bool(last and not last.endswith(b"\n") and last is not first)
    return Contents(_columns(_loaded(first)), rows) if first else Contents((), 0)


def _json(path: Path) -> Contents | None:
    with path.open("rb") as stream:
        start = stream.read(BLOCK).lstrip()
    if start[:1] == b"{":
        return _json_lines(path)
    if path.stat().st_size > LARGEST_JSON:
        return None
    rows = _loaded(path.read_bytes())
    if not isinstance(rows, list):
        raise UnreadableError("it holds neither a list nor a row a line")
    return Contents(_columns(rows[0]) if rows else (), len(rows))


def _loaded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UnreadableError(f"it is no JSON: {error}") from error


def _columns(row: Any) -> tuple[str, ...]:
    if not isinstance(row, dict):
        raise UnreadableError("its first row is no object with a value for each column")
    return tuple(row)


def _csv(path: Path) -> Contents:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        header = next(rows, [])
        return Contents(tuple(header), sum(1 for _ in rows))


TASK = ("answer_key", "source_key", "tag_key", "extra_key", "system_prompt_key", "tools_key")
OPTIONAL = {"rl": TASK, "mix": TASK, "sft": (*TASK, "messages_key", "response_key"), "dpo": ()}
"""By objective, the fields of a source that name a column which must exist unless the field has its default."""
REQUIRED = {
    "rl": ("prompt_key",),
    "mix": ("prompt_key",),
    "sft": ("prompt_key",),
    "dpo": ("chosen_key", "rejected_key"),
}
"""By objective, the fields that name a column which must exist; with ``messages_key`` no prompts are read."""


def sources(config: Config, surroundings: Surroundings) -> Iterator[Problem]:
    """Local data files have the columns that the config names, and rows for a step."""
    counts: list[int | None] = []
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            key: KeyPath = ("data", name, index)
            try:
                found = _contents(source)
            except UnreadableError as error:
                yield Problem("data-unreadable", (*key, "path"), str(error), "correct the file, or its format")
                return
            if name == "train":
                counts.append((found.rows if found is not None else None) or None)
            if found is not None:
                yield from _source(config, source, key, found)
    if arithmetic.trains(config) and counts and None not in counts and config.data.custom is None:
        yield from _rows(config, [count for count in counts if count is not None])


def _contents(source: DataSource) -> Contents | None:
    path = expanded(source.path.removeprefix("file://"))
    if not source.path or source.format in ("hub", "sql") or not path.is_file():
        return None
    try:
        return contents(path, source.format)
    except UnreadableError as error:
        raise UnreadableError(f"{path}: {error}") from error


def _source(config: Config, source: DataSource, key: KeyPath, found: Contents) -> Iterator[Problem]:
    if found.rows == 0:
        yield Problem("data-empty", (*key, "path"), f"{source.path} has no rows", "name a file that has rows")
    elif config.data.custom is None:
        objective = "rl" if key[1] == "eval" else config.algorithm.objective.choice
        default = DataSource()
        fields = [
            field for field in OPTIONAL[objective] if getattr(source, field) not in (None, getattr(default, field))
        ]
        fields += REQUIRED[objective] if source.messages_key is None or objective != "sft" else ()
        for field in fields:
            yield from _column(source, (*key, field), str(getattr(source, field)), found)


def _column(source: DataSource, key: KeyPath, column: str, found: Contents) -> Iterator[Problem]:
    if column.split(".", 1)[0] not in found.columns:
        message = f"{source.path} has no column '{column}'; its columns are {', '.join(found.columns)}"
        yield Problem(
            "data-column", key, message, nearest(column, found.columns) or f"set {dotted(key)} to one of them"
        )


def _rows(config: Config, counts: list[int]) -> Iterator[Problem]:
    """The training data has prompts for a step."""
    limits = [source.max_samples for source in config.data.train]
    rows = sum(count if limit is None else min(count, limit) for count, limit in zip(counts, limits, strict=True))
    step = config.batch.prompts_per_step
    if rows < step and config.data.last_batch == "drop" and config.data.mixing == "concatenate":
        yield Problem(
            "data-rows",
            ("batch", "prompts_per_step"),
            f"the training data has {rows} rows, and a step takes {step}: there is not one step",
            "{first} or less",
            ((("batch", "prompts_per_step"), rows),),
        )


RULES = (sources,)
