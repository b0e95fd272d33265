"""What verl refuses of images in rows, and of the format of data files, by release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.verl.requirement_values import MODEL, ROLLOUT, serves
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.planning.column_types import LIST, NULL, TEXT, ColumnType, column_types

DATASET = "verl/utils/dataset/rl_dataset.py, RLHFDataset"
LOADED = f"{DATASET}._read_files_and_tokenize"
MARK, TOKENS = "<image>", "<|"
"""The place of an image in a prompt, and how tokens of a model's own begin that may stand for one."""
ROWS_READ = 32
"""Rows whose images are counted."""
OTHER_FORMATS = (".json", ".jsonl", ".csv", ".tsv")
"""Endings of files that are no Parquet."""


def _column(values: Values) -> str:
    return str(values["data.image_key"] or "images")


def _files(values: Values, key: str = "data.train_files") -> Iterator[tuple[str, Path]]:
    """The local files of a key."""
    if values["data.custom_cls.path"]:
        return
    for name in files_of(values[key]):
        path = expanded(str(name).removeprefix("file://"))
        if path.is_file():
            yield str(name), path


def _type(values: Values, name: str) -> ColumnType | None:
    return column_types(expanded(name.removeprefix("file://"))).get(_column(values))


def _wrong_type(is_wrong: Callable[[ColumnType], bool]) -> Callable[[Values], str]:
    def found(values: Values) -> str:
        for name, path in _files(values):
            known = column_types(path).get(_column(values))
            if known is not None and known.kind != NULL and is_wrong(known):
                return name
        return ""

    return found


def _is_no_list(known: ColumnType) -> bool:
    return known.kind != LIST


def _holds_names(known: ColumnType) -> bool:
    return known.kind == LIST and known.item is not None and known.item.kind == TEXT


def _typed(is_wrong: Callable[[ColumnType], bool], message: str, hint: str, since: str, until: str) -> Requirement:
    found = _wrong_type(is_wrong)
    return Requirement(
        "data.image_key",
        found,
        message,
        f"{DATASET}.__getitem__" if until < "0.7" and until else f"{DATASET}._build_messages",
        hint,
        numbers={"file": found, "column": _column, "type": lambda v: str(_type(v, found(v)))},
        since=since,
        until=until,
    )


@lru_cache(maxsize=8)
def _first_rows(path: Path, columns: tuple[str, str], state: int) -> tuple[Mapping[str, Any], ...]:
    """The prompts and images of the first rows of a Parquet file; empty where pyarrow is not installed."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        return ()
    try:
        with ParquetFile(path) as file:
            batch = next(file.iter_batches(batch_size=ROWS_READ, columns=list(columns)), None)
            return tuple(batch.to_pylist()) if batch is not None else ()
    except (OSError, ValueError, ArrowException):
        return ()


def _marks(prompt: Any) -> int | None:
    """Places for images in a prompt; None if it holds them in another form than text."""
    contents = [each.get("content") for each in prompt or () if isinstance(each, Mapping)]
    if not contents or not all(isinstance(each, str) and TOKENS not in each for each in contents):
        return None
    return sum(str(each).count(MARK) for each in contents)


def _unplaced(values: Values) -> tuple[str, int, int] | None:
    """A training file with a row whose prompt has another number of places than the row has images: both numbers."""
    prompt, column = str(values["data.prompt_key"] or "prompt"), _column(values)
    for name, path in _files(values):
        types = column_types(path) if path.suffix == ".parquet" else {}
        if not {prompt, column} <= set(types) or types[column].kind != LIST:
            continue
        for row in _first_rows(path, (prompt, column), path.stat().st_mtime_ns):
            places = _marks(row.get(prompt))
            if places is not None and places != len(row.get(column) or ()):
                return name, places, len(row.get(column) or ())
    return None


def _of_unplaced(index: int) -> Callable[[Values], Any]:
    def number(values: Values) -> Any:
        found = _unplaced(values)
        return found[index] if found is not None else ""

    return number


def _placed(since: str, until: str, when: str, source: str) -> Requirement:
    return Requirement(
        "data.image_key",
        _unplaced,
        said(
            "a row of {{file}} has {mark} {{places}} times in its prompt, and {{images}} images: verl needs one {mark} for each "
            "image",
            mark=MARK,
        ),
        source,
        said("write {mark} into the prompt where each image belongs", mark=MARK),
        numbers={name: _of_unplaced(index) for index, name in enumerate(("file", "places", "images"))},
        since=since,
        until=until,
        when=when,
    )


def _no_parquet(values: Values, key: str) -> str:
    return next((name for name, path in _files(values, key) if path.suffix in OTHER_FORMATS), "")


def _formats() -> Iterator[Requirement]:
    for key in ("data.train_files", "data.val_files"):
        found: Callable[[Values], str] = lambda v, key=key: _no_parquet(v, key)  # type: ignore[misc]  # noqa: E731
        yield Requirement(
            key,
            found,
            said("{key} names {{file}}, and verl reads Parquet alone: it stops when it loads the data", key=key),
            LOADED,
            "convert it to Parquet, or use verl 0.7 or newer",
            numbers={"file": found},
            since="0.3",
            until="0.6",
        )


ROWS: tuple[Requirement, ...] = (
    *_formats(),
    _typed(
        _is_no_list,
        "the column '{column}' of {file} is {type}, and verl takes a list of images for each row: it stops at the first of them",
        """write it as [{"bytes": BYTES}] or [{"image": PATH}]""",
        "0.3",
        "",
    ),
    _typed(
        _holds_names,
        "the column '{column}' of {file} is {type}, and verl takes no plain paths: it stops at the first row with an image",
        """write each image as {"image": PATH} or {"bytes": BYTES}""",
        "0.3",
        "0.8",
    ),
    _placed("0.3", "0.6", "generation", f"{DATASET}.__getitem__"),
    _placed("0.7", "", "start", f"{DATASET}._build_messages"),
    Requirement(
        "data.image_key",
        lambda v: serves(v) and bool(v[f"{MODEL}.path"]) and any(column_types(p).get(_column(v)) for _, p in _files(v)),
        said(
            "the rows have images, and {rollout}.mode is async, where this release sends the engine text alone: verl stops when "
            "it "
            "computes log-probs",
            rollout=ROLLOUT,
        ),
        "verl/experimental/agent_loop/agent_loop.py, AgentLoopWorker",
        said("set {rollout}.mode to sync, or use verl 0.6", rollout=ROLLOUT),
        since="0.5",
        until="0.5",
        when="rollout",
    ),
)
