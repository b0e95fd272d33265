"""One data source of the config to an Arrow-backed table: files, folders, URLs, hub names, and tables of a database."""

from __future__ import annotations

import codecs
import errno
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlctl.common import quoting
from rlctl.common.errors import RunError, nearest, nearest_and
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import DataSource
from rlctl.runtime.data.database import load_table
from rlctl.runtime.data.hub import hub_access
from rlctl.runtime.remote.files import bring, is_remote

if TYPE_CHECKING:
    from datasets import Dataset

ENDINGS = {
    "parquet": "parquet",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "tsv": "csv",
}
"""File ending to the reader of ``datasets`` that reads it."""
COMPRESSIONS = ("gz", "bz2", "xz", "zst")
BLOCK_BYTES = 1 << 20
_PROBED_BYTES = 1 << 16


class Rows(Protocol):
    """What is asked of a table of rows; ``datasets.Dataset`` is one."""

    num_rows: int
    column_names: list[str]
    features: Mapping[str, Any]

    def __getitem__(self, key: Any) -> Any:
        """A row as a mapping by its number, or a column by its name."""
        ...

    def __getitems__(self, keys: list[int]) -> list[Any]:
        """Rows by their numbers."""
        ...

    def select(self, indices: Any) -> Any:
        """Some of the rows, as a table of rows that can be iterated."""
        ...


def load_source(source: DataSource, *, key: str) -> Dataset:
    """Read the rows of a source, the first ``max_samples`` of them.

    Args:
        source: the section of the config.
        key: where it stands there (``data.train[0]``), for messages.

    Raises:
        RunError: there is no such file, it is empty, or it is not what its format says.
    """
    if source.format == "episodes":
        return _episodes(source, key)
    if not source.path:
        raise RunError(said("{key}.path is empty", key=key), hint="set it to a file, a folder, a URL or a hub name")
    if source.format == "sql":
        dataset = load_table(source, key=key)
    else:
        here = _here(source, key)
        dataset = _load(here, _reader(here, key), key)
    if dataset.num_rows == 0:
        raise RunError(
            said("{path} has no rows", path=source.path), hint=said("{key}.path must contain at least one row", key=key)
        )
    if source.max_samples is not None:
        dataset = dataset.select(range(min(source.max_samples, dataset.num_rows)))
    return dataset


def _episodes(source: DataSource, key: str) -> Dataset:
    """Rows whose only message is empty: their environment says what the task is."""
    from datasets import Dataset

    if source.max_samples is None or source.prompt_type not in ("auto", "messages"):
        unset = source.max_samples is None
        what = said("max_samples is not set") if unset else said("prompt_type is {type}", type=source.prompt_type)
        raise RunError(
            said("{key}.format is episodes, and {what}", key=key, what=what),
            hint=said("set {key}.max_samples to the number of rows, and leave prompt_type at auto", key=key),
        )
    empty = [{"role": "user", "content": ""}]
    return Dataset.from_dict({source.prompt_key: [empty] * source.max_samples})


def _here(source: DataSource, key: str) -> DataSource:
    """The source with a path on this machine; a URL's files are brought here."""
    if is_remote(source.path):
        return replace(source, path=str(bring(source.path, key=f"{key}.path")))
    return replace(source, path=source.path.removeprefix("file://"))


def source_name(source: DataSource) -> str:
    """The source's name in metrics: its own, else its path's last part without endings."""
    return (
        source.name
        or source.path.rstrip("/").rsplit("/", 1)[-1].split(".", 1)[0]
        or ("episodes" if source.format == "episodes" else "data")
    )


def require_column(dataset: Rows, column: str, *, source: DataSource, key: str) -> None:
    """Check that a column exists.

    Args:
        dataset: the rows.
        column: its name; of a dotted name, the first part.
        source: where the rows come from.
        key: the key that names the column, ``data.train[0].prompt_key``.

    Raises:
        RunError: it does not.
    """
    name = column.split(".", 1)[0]
    if name not in dataset.column_names:
        raise missing_column(name, dataset.column_names, path=source.path, key=key)


def missing_column(name: str, columns: Iterable[str], *, path: str, key: str) -> RunError:
    """The error that says which column is not there, which are, and which key to set."""
    columns = list(columns)
    return RunError(
        said("{path} has no column {name!r}; its columns are {names}", path=path, name=name, names=", ".join(columns)),
        hint=nearest_and(name, columns, said("set {key} to one of them", key=key)),
    )


def _reader(source: DataSource, key: str) -> str | None:
    """The ``datasets`` reader of a file; None for a folder or a hub name, which say it themselves."""
    if source.format == "hub":
        return None
    if source.format != "auto":
        return source.format
    parts = source.path.rstrip("/").rsplit("/", 1)[-1].lower().split(".")
    if parts[-1] in COMPRESSIONS:
        parts.pop()
    reader = ENDINGS.get(parts[-1]) if len(parts) > 1 else None
    if reader is None and Path(source.path).expanduser().is_file():
        raise RunError(
            said(
                "{path} has no known file suffix ({names})",
                path=source.path,
                names=", ".join("." + ending for ending in ENDINGS),
            ),
            hint=said("set {key}.format to parquet, json or csv", key=key),
        )
    return reader


def _load(source: DataSource, reader: str | None, key: str) -> Dataset:
    path = str(Path(source.path).expanduser())
    if reader is not None and not Path(path).exists():
        raise _no_file(path, key)
    if Path(path).is_dir():
        return _load_folder(path, source, reader, key)
    if reader is not None:
        return _load_files(path, source, reader, key)
    if path.startswith(("/", "./", "../")):
        raise _no_file(path, key)
    return _load_hub(path, source, key)


def _no_file(path: str, key: str) -> RunError:
    folder = Path(path).parent
    beside = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    known = nearest(Path(path).name, beside)
    there = (
        said("{folder} does not exist", folder=folder)
        if not folder.is_dir()
        else known or said("no file in {folder} has a similar name", folder=folder)
    )
    return RunError(
        said("there is no file {path}: {there}", path=path, there=there),
        hint=said("set {key}.path; relative paths start at {cwd}", key=key, cwd=Path.cwd()),
    )


def _load_files(path: str, source: DataSource, reader: str, key: str) -> Dataset:
    from datasets import load_dataset

    if Path(path).stat().st_size == 0:
        raise RunError(
            said("{path} is an empty file", path=path), hint=said("{key}.path must contain at least one row", key=key)
        )
    options = _options(reader, [path])
    if reader == "json":
        _check_text([path])
    return _guarded(
        lambda: load_dataset(reader, data_files={"rows": path}, split="rows", **options), path, f"as {reader}", key
    )


def _check_text(files: Iterable[str]) -> None:
    """Refuse text that is not UTF-8: the reader of JSON takes it, and rows cannot be read then. Holds a block at a time."""
    for file in files:
        if file.lower().endswith(tuple(f".{ending}" for ending in COMPRESSIONS)):
            continue
        decoder, line, block = codecs.getincrementaldecoder("utf-8")(), 1, b""
        with Path(file).open("rb") as held:
            try:
                while block := held.read(BLOCK_BYTES):
                    decoder.decode(block)
                    line += block.count(b"\n")
                decoder.decode(b"", final=True)
            except UnicodeDecodeError as error:
                number, odd = line + error.object.count(b"\n", 0, error.start), error.object[error.start : error.end]
                raise RunError(
                    said(
                        "line {number} of {file} is not UTF-8: {reason}, {odd!r}",
                        number=number,
                        file=file,
                        reason=error.reason,
                        odd=odd,
                    ),
                    hint="write it as UTF-8 (iconv -f LATIN1 -t UTF-8)",
                ) from error


def _options(reader: str | None, files: Sequence[str]) -> dict[str, Any]:
    """What the reader of some files is told: how columns are parted, and not to hold a whole Parquet file in memory."""
    if reader == "csv" and any(".tsv" in file.lower() for file in files):
        return {"sep": "\t"}
    if reader != "parquet":
        return {}
    from pyarrow.dataset import ParquetFragmentScanOptions

    return {"fragment_scan_options": ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)}


def _load_folder(path: str, source: DataSource, reader: str | None, key: str) -> Dataset:
    from datasets import load_dataset, load_from_disk

    if (Path(path) / "state.json").exists() or (Path(path) / "dataset_dict.json").exists():
        saved = _guarded(lambda: load_from_disk(path), path, "as a saved data set", key)
        return _choose_split(saved, source, key)
    if reader is not None:
        endings = [ending for ending, name in ENDINGS.items() if name == reader]
        files = sorted(str(file) for ending in endings for file in Path(path).rglob(f"*.{ending}*"))
        if not files:
            raise RunError(
                said("the folder {path} contains no {reader} file", path=path, reader=reader),
                hint=said("set {key}.path or {key}.format", key=key),
            )
        options = _options(reader, files)
        if reader == "json":
            _check_text(files)
        return _guarded(
            lambda: load_dataset(reader, data_files={"rows": files}, split="rows", **options), path, f"as {reader}", key
        )
    found_endings = {file.suffix for file in Path(path).rglob("*") if file.suffix.removeprefix(".") in ENDINGS}
    options = _options("parquet" if found_endings == {".parquet"} else None, [])
    found = _guarded(lambda: load_dataset(path, source.subset, **options), path, "as a folder of data files", key)
    return _choose_split(found, source, key)


def _load_hub(name: str, source: DataSource, key: str) -> Dataset:
    from datasets import load_dataset

    with hub_access() as online:
        try:
            found = load_dataset(name, source.subset)
        except (OSError, ValueError, RuntimeError) as error:
            _check_cache(error)
            reached = "" if online else ", and the hub is offline or cannot be reached"
            raise RunError(
                said(
                    "no data {name} ({key}.path): there is no such file or folder here, and it is not in the hub "
                    "cache{reached}: {first_line}",
                    name=name,
                    key=key,
                    reached=reached,
                    first_line=_first_line(error),
                ),
                hint=said(
                    "set {key}.path to a file, or download it once on a machine with network access (hf download "
                    "--repo-type dataset {name})",
                    key=key,
                    name=quoting.word(name),
                ),
            ) from error
    return _choose_split(found, source, key)


def _choose_split(found: Any, source: DataSource, key: str) -> Dataset:
    """Of a mapping of splits the one asked for, else ``train``, else the only one."""
    if not isinstance(found, dict):
        return found
    wanted = source.split or ("train" if "train" in found else next(iter(found)) if len(found) == 1 else None)
    if wanted in found:
        return found[wanted]
    what = said("no split {wanted!r}", wanted=wanted) if wanted else "several splits"
    raise RunError(
        said("{path} has {what}; its splits are {names}", path=source.path, what=what, names=", ".join(found)),
        hint=nearest_and(wanted or "", found, said("set {key}.split to one of them", key=key)),
    )


def _guarded(load: Any, path: str, how: str, key: str) -> Any:
    """Call a reader of ``datasets``, whose errors hide the cause in a chain, and show the cause."""
    from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from datasets.exceptions import DatasetsError
    from pyarrow import ArrowException

    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        return load()
    except (
        DatasetsError,
        ArrowException,
        OSError,
        ValueError,
        RuntimeError,
        KeyError,
        ImportError,
        TypeError,
    ) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        _check_cache(cause)
        reason = (
            _bad_line(path)
            or _no_rows(path)
            or said("cannot read {path} {how}: {first_line}", path=path, how=how, first_line=_first_line(cause))
        )
        raise RunError(
            reason, hint=said("correct {key}.path, or set {key}.format to what the file contains", key=key)
        ) from error
    finally:
        if shown:
            enable_progress_bars()


def _check_cache(error: BaseException) -> None:
    """Say of an error of ``datasets`` that it is about its cache, where it writes what it reads of any file.

    Raises:
        RunError: the cache cannot be written.
    """
    import datasets

    folder, reason = Path(datasets.config.HF_DATASETS_CACHE), ""
    if str(error).startswith("Not enough disk space"):
        reason = os.strerror(errno.ENOSPC)
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(bytes(_PROBED_BYTES))
        except OSError as problem:
            reason = problem.strerror or str(problem)
    if reason:
        raise RunError(
            said("the cache of data sets {folder} cannot be written: {reason}", folder=folder, reason=reason),
            hint="set HF_HOME, or HF_DATASETS_CACHE, to a folder with free space that this user can write to",
        ) from error


def _bad_line(path: str) -> str:
    """Which line of a JSONL file is no JSON, empty where none is: the reader counts from the start of a block."""
    if not path.lower().endswith((".jsonl", ".ndjson")) or not Path(path).is_file():
        return ""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                json.loads(line.strip() or "null")
            except ValueError as error:
                return f"line {number} of {path} is not JSON: {error}"
    return ""


def _no_rows(path: str) -> str:
    """That a Parquet file has none, which its reader fails of; empty where it has."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        return "" if read_metadata(path).num_rows else f"{path} has no rows"
    except (ArrowException, OSError):
        return ""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
