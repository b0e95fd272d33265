"""Data files that a config names have its columns, and rows for a step; they are not loaded."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlctl.checks.model_files import is_pointer
from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import closest
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.data import DataSource
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic
from rlctl.planning.dataset_rows import count_rows, rows_of_source
from rlctl.planning.dataset_splits import splits_in
from rlctl.planning.parquet_footer import parquet_fields, parquet_nulls
from rlctl.planning.support import RLCTL

LARGEST_JSON = 64 << 20
"""Bytes of a JSON list that is read whole for its first row; of other files the first row or the footer is read."""


Field = tuple[str, ...]
"""The name of a column; for a nested field, the names of the columns around it first."""


class UnreadableError(ValueError):
    """A file is not what its ending says; the text says why."""


def fields_of(path: Path, form: str = "auto") -> tuple[Field, ...] | None:
    """The columns of a file, and the fields inside them; None if it is empty, or of a format that is not read here.

    Raises:
        UnreadableError: the file is not what its ending, or ``form``, says.
    """
    ending = path.suffix.lower().removeprefix(".") if form == "auto" else form
    reader = READERS.get(ending)
    try:
        if reader is not None and is_pointer(path):
            raise UnreadableError(said("{file} is a Git LFS pointer, not the file itself", file=path.name))
        return reader(path) if reader is not None else None
    except (OSError, UnicodeDecodeError, RecursionError, csv.Error) as error:
        raise UnreadableError(str(error)) from error


def _parquet(path: Path) -> tuple[Field, ...]:
    try:
        return parquet_fields(path)
    except ValueError as error:
        raise UnreadableError(said("it is not a Parquet file: {reason}", reason=error)) from error


def _json(path: Path) -> tuple[Field, ...] | None:
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


def _fields(row: Any) -> tuple[Field, ...]:
    if not isinstance(row, dict):
        raise UnreadableError("its first row is not an object with a value per column")

    def inside(values: dict[str, Any]) -> Iterator[Field]:
        for name, value in values.items():
            yield (name,)
            if isinstance(value, dict):
                yield from ((name, *names) for names in inside(value))

    return tuple(inside(row))


def _csv(path: Path) -> tuple[Field, ...]:
    with path.open(encoding="utf-8", newline="") as stream:
        return tuple(
            (name,) for name in next(csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ","), [])
        )


READERS = {"parquet": _parquet, "jsonl": _json, "ndjson": _json, "json": _json, "csv": _csv, "tsv": _csv}
ENDINGS = frozenset(READERS)
TASK = ("answer_key", "source_key", "tag_key", "extra_key", "system_prompt_key", "tools_key")
OPTIONAL = {"rl": TASK, "mix": TASK, "sft": (*TASK, "messages_key", "response_key"), "dpo": ()}
"""By objective, the fields of a source that name a column which must exist unless the field has its default."""
MEDIA = ("image_key", "video_key", "audio_key")
"""Fields that name a column of images and the like. Those of Trinity-RFT have no default, so a file that sets one has it."""
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
            own = surroundings.runner == RLCTL and config.model.modality != "text"
            media = MEDIA if surroundings.runner == "trinity" or own else ()
            found = list(_source(config, source, ("data", name, index), media))
            readable &= not found or name == "eval"
            yield from found
    if readable and arithmetic.trains(config) and config.data.custom is None:
        yield from _rows(config)


def _source(config: Config, source: DataSource, key: KeyPath, media: Sequence[str]) -> Iterator[Problem]:
    path = expanded(source.path.removeprefix("file://"))
    if not source.path or source.format in ("hub", "sql"):
        return
    path = _file_in(path) if path.is_dir() else path
    if not path.is_file():
        return
    try:
        columns = fields_of(path, source.format)
    except UnreadableError as error:
        yield problem("data-unreadable", (*key, "path"), file=path, reason=error)
        return
    if rows_of_source(source) == 0:
        yield problem("data-empty", (*key, "path"), file=source.path)
    elif config.data.custom is None and columns is not None:
        trained = config.algorithm.objective.choice
        objective = "rl" if key[1] == "eval" and trained == "mix" else trained
        default = DataSource()
        fields = [
            field
            for field in (*OPTIONAL[objective], *media)
            if getattr(source, field) not in (None, getattr(default, field))
        ]
        fields += REQUIRED[objective] if source.messages_key is None or objective != "sft" else ()
        for field in fields:
            yield from _column(source, (*key, field), str(getattr(source, field)), columns)


def _file_in(folder: Path) -> Path:
    """A data file of a folder, whose files have the same columns; the folder itself if it has none that is read here."""
    files = (file for file in sorted(folder.rglob("*")) if file.suffix.lower().removeprefix(".") in ENDINGS)
    return next((file for file in files if file.is_file()), folder)


def _column(source: DataSource, key: KeyPath, column: str, fields: Sequence[Field]) -> Iterator[Problem]:
    columns = tuple(dict.fromkeys(names[0] for names in fields))
    if column.split(".", 1)[0] in columns:
        return
    nested = next((".".join(names) for names in fields if len(names) > 1 and names[-1] == column), None)
    if nested is not None:
        yield problem("data-column_nested", key, file=source.path, column=column, nested=nested)
    else:
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
    if rows is None or config.data.mixing != "concatenate" or config.data.domain_weights:
        return
    epochs = 1 if config.data.last_batch == "drop" else config.schedule.total_epochs
    if epochs is not None and epochs * rows < step:
        yield problem("data-rows", key, [(key, epochs * rows)], rows=rows, step=step)


def overlap(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Evaluation data is not training data."""
    trained = {(source.path, source.subset, source.split) for source in config.data.train if source.path}
    if not arithmetic.trains(config):
        return
    for index, source in enumerate(config.data.eval):
        if source.path and (source.path, source.subset, source.split) in trained:
            yield problem("data-overlap", ("data", "eval", index, "path"), path=source.path)


def answers(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Rows of Parquet files have answers; the footer counts those without."""
    objective = config.algorithm.objective.choice
    for index, source in enumerate(config.data.train if objective == "rl" and config.data.custom is None else ()):
        path = expanded(source.path.removeprefix("file://"))
        if source.answer_key and path.suffix == ".parquet" and path.is_file():
            try:
                missing = parquet_nulls(path, source.answer_key.split("."))
            except ValueError:
                continue  # which is another finding
            if missing:
                rows = rows_of_source(source) or missing
                key = ("data", "train", index, "answer_key")
                yield problem("data-unanswered_footer", key, missing=missing, rows=rows, file=source.path)


def splits(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Folders have the splits that are asked of them."""
    if surroundings.runner != RLCTL:
        return
    for name in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, name)):
            folder = Path(expanded(source.path.removeprefix("file://")))
            wanted = source.split
            if not source.path or not wanted or source.subset or source.format != "auto" or not folder.is_dir():
                continue
            known = splits_in(folder)
            if known and re.fullmatch(r"\w+", wanted) and wanted not in known:
                key: KeyPath = ("data", name, index, "split")
                fixes = [(key, each) for each in sorted(known)]
                yield problem(
                    "data-split", key, fixes, folder=source.path, split=wanted, known=", ".join(sorted(known))
                )


RULES = (sources, overlap, answers, splits)
