"""Data files that a config names have its columns, and rows for a step; they are not loaded."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import closest
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.data import DataSource
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic
from rlctl.planning.dataset_rows import count_rows, rows_of_source

LARGEST_JSON = 64 << 20
"""Bytes of a JSON list that is read whole for its first row; of other files the first row or the footer is read."""


class UnreadableError(ValueError):
    """A file is not what its ending says; the text says why."""


def columns_of(path: Path, form: str = "auto") -> tuple[str, ...] | None:
    """The columns of a file; None if it is empty, of a format that is not read here, or without the package that reads it.

    Raises:
        UnreadableError: the file is not what its ending, or ``form``, says.
    """
    ending = path.suffix.lower().removeprefix(".") if form == "auto" else form
    readers = {"parquet": _parquet, "jsonl": _json, "ndjson": _json, "json": _json, "csv": _csv, "tsv": _csv}
    reader = readers.get(ending)
    try:
        return reader(path) if reader is not None else None
    except (OSError, UnicodeDecodeError, RecursionError, csv.Error) as error:
        raise UnreadableError(str(error)) from error


def _parquet(path: Path) -> tuple[str, ...] | None:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema
    except ImportError:
        return None
    try:
        return tuple(read_schema(path).names)
    except ArrowException as error:
        raise UnreadableError(said("it is not a Parquet file: {reason}", reason=str(error).splitlines()[0])) from error


def _json(path: Path) -> tuple[str, ...] | None:
    with path.open("rb") as stream:
        first = next((line for line in stream if line.strip()), b"")
    if not first.lstrip().startswith(b"["):
        return _fields(_loaded(first)) if first else None
    if path.stat().st_size > LARGEST_JSON:
        return None
    rows = _loaded(path.read_bytes())
    return _fields(rows[0]) if rows else None


def _loaded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UnreadableError(said("it is not valid JSON: {error}", error=error)) from error


def _fields(row: Any) -> tuple[str, ...]:
    if not isinstance(row, dict):
        raise UnreadableError("its first row is not an object with a value per column")
    return tuple(row)


def _csv(path: Path) -> tuple[str, ...]:
    with path.open(encoding="utf-8", newline="") as stream:
        return tuple(next(csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ","), []))


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


def sources(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Local data files have the columns that the config names, and rows for a step."""
    readable = True
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            found = list(_source(config, source, ("data", name, index)))
            readable &= not found or name == "eval"
            yield from found
    if readable and arithmetic.trains(config) and config.data.custom is None:
        yield from _rows(config)


def _source(config: Config, source: DataSource, key: KeyPath) -> Iterator[Problem]:
    path = expanded(source.path.removeprefix("file://"))
    if not source.path or source.format in ("hub", "sql") or not path.is_file():
        return
    try:
        columns = columns_of(path, source.format)
    except UnreadableError as error:
        yield problem("data-unreadable", (*key, "path"), file=path, reason=error)
        return
    if rows_of_source(source) == 0:
        yield problem("data-empty", (*key, "path"), file=source.path)
    elif config.data.custom is None and columns is not None:
        objective = "rl" if key[1] == "eval" else config.algorithm.objective.choice
        default = DataSource()
        fields = [
            field for field in OPTIONAL[objective] if getattr(source, field) not in (None, getattr(default, field))
        ]
        fields += REQUIRED[objective] if source.messages_key is None or objective != "sft" else ()
        for field in fields:
            yield from _column(source, (*key, field), str(getattr(source, field)), columns)


def _column(source: DataSource, key: KeyPath, column: str, columns: Sequence[str]) -> Iterator[Problem]:
    if column.split(".", 1)[0] not in columns:
        yield problem(
            "data-column",
            key,
            file=source.path,
            column=column,
            known=", ".join(columns),
            near=closest(column, columns) or "none",
        )


def _rows(config: Config) -> Iterator[Problem]:
    """The training data has prompts for a step."""
    key = ("batch", "prompts_per_step")
    rows, step = count_rows(config), config.batch.prompts_per_step
    if rows is None or config.data.mixing != "concatenate":
        return
    epochs = 1 if config.data.last_batch == "drop" else config.schedule.total_epochs
    if epochs is not None and epochs * rows < step:
        yield problem("data-rows", key, [(key, epochs * rows)], rows=rows, step=step)


RULES = (sources,)
