"""Rows from a data-set class of the user's (``data.custom``), made and called as verl does: code runs because it is named.

The class is made with those of these arguments that it takes: ``data_files`` (a list; ``parquet_files`` is the same),
``tokenizer``, ``processor`` (None), ``max_samples`` (-1 is all) and ``config``, the data section by verl's names. It has
``__len__`` and ``__getitem__``; an item is a mapping, read as a row of a file is. Its prompt is in ``prompt_key`` or, as
verl's own class has it, in ``raw_prompt``.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.common.errors import RunError, nearest_and
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import CustomDataset, Data, DataSource
from rlctl.runtime.data.sources import Rows, load_source
from rlctl.runtime.remote.files import bring, is_remote
from rlctl.runtime.user_code import import_file, last_lines

if TYPE_CHECKING:
    import pyarrow as pa

RAW_PROMPT = "raw_prompt"
KEY = "data.custom"


def open_rows(data: Data, source: DataSource, tokenizer: Any, *, key: str) -> Rows:
    """The rows of a source: of its files, or of the class that ``data.custom`` names.

    Raises:
        RunError: they cannot be read, or the class cannot be made.
    """
    return (
        load_source(source, key=key) if data.custom is None else CustomRows(data, data.custom, source, tokenizer, key)
    )


class CustomRows:
    """A data set of the user's as a table of rows. Its class is called from one thread at a time."""

    def __init__(self, data: Data, custom: CustomDataset, source: DataSource, tokenizer: Any, key: str) -> None:
        self._name = f"{custom.class_name} of {custom.path}"
        self._prompt_key = source.prompt_key
        self._lock = threading.Lock()
        found = load_class(custom.path, custom.class_name)
        path = str(bring(source.path, key=f"{key}.path")) if is_remote(source.path) else source.path
        arguments = _arguments(found, data, source, path, tokenizer)
        self._made = self._call(lambda: found(**arguments), "making it")
        rows = self._call(lambda: len(self._made), "its length")
        self.num_rows = rows if source.max_samples is None else min(rows, source.max_samples)
        if not self.num_rows:
            raise RunError(
                said("{name} returned no rows for {path}", name=self._name, path=source.path),
                hint=said("correct {key}.path, or {key2}", key=key, key2=KEY),
            )
        first = self[0]
        self.column_names = list(first)
        self.features: Mapping[str, Any] = first

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return (self[number][key] for number in range(self.num_rows))
        row = self._call(lambda: self._made[key], said("row {key}", key=key))
        if not isinstance(row, Mapping):
            raise RunError(
                said(
                    "row {key} of {name} is a {kind}; expected a mapping of columns",
                    key=key,
                    name=self._name,
                    kind=type(row).__name__,
                )
            )
        renamed = self._prompt_key not in row and RAW_PROMPT in row
        return {**row, self._prompt_key: _plain(row[RAW_PROMPT])} if renamed else dict(row)

    def __getitems__(self, keys: list[int]) -> list[Any]:
        """Rows by their numbers."""
        return [self[number] for number in keys]

    def select(self, indices: Iterable[int]) -> CustomPart:
        """Some of the rows."""
        return CustomPart(self, [int(index) for index in indices])

    def _call(self, action: Callable[[], Any], what: str) -> Any:
        try:
            with self._lock:
                return action()
        except (Exception, SystemExit) as error:  # whatever the user's class raises is shown to the user
            raise RunError(
                said("{name}, {what} fails:\n{error}", name=self._name, what=what, error=last_lines(error)),
                hint=said("correct the class, or {key}", key=KEY),
            ) from error


class CustomPart:
    """Some rows of a custom data set."""

    def __init__(self, rows: CustomRows, numbers: list[int]) -> None:
        self._rows = rows
        self._numbers = numbers
        self.num_rows = len(numbers)
        self.column_names = rows.column_names
        self.features = rows.features

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._rows[number] for number in self._numbers)

    def __getitem__(self, key: Any) -> Any:
        return (row[key] for row in self) if isinstance(key, str) else self._rows[self._numbers[key]]

    def select(self, indices: Iterable[int]) -> CustomPart:
        return CustomPart(self._rows, [self._numbers[int(index)] for index in indices])

    def table(self) -> pa.Table:
        """The rows, with the columns that a file can hold."""
        import pyarrow as pa

        rows = list(self)
        columns = {}
        for name in self.column_names:
            try:
                columns[name] = pa.array([row.get(name) for row in rows])
            except (pa.ArrowException, TypeError, ValueError):
                continue  # tensors, images and other objects of the class
        return pa.table(columns)


def load_class(path: str, name: str) -> type:
    """Import a Python file and return a class of it. Modules beside the file can be imported by it.

    Raises:
        RunError: there is no such file or class, or importing it raises.
    """
    file = Path(path.removeprefix("file://")).expanduser().resolve()
    if not file.is_file():
        raise RunError(
            said("there is no file {file} ({key}.path)", file=file, key=KEY),
            hint=said("set {key}.path to a Python file", key=KEY),
        )
    module = import_file(file, prefix="rlctl_dataset", what=f"{file} ({KEY}.path)")
    found = getattr(module, name, None)
    if not isinstance(found, type):
        names = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        raise RunError(
            said(
                "{file} has no class {name!r}; it has {value}", file=file, name=name, value=", ".join(names) or "none"
            ),
            hint=nearest_and(name, names, said("set {key}.class_name", key=KEY)),
        )
    missing = [method for method in ("__len__", "__getitem__") if not hasattr(found, method)]
    if missing:
        raise RunError(
            said("the class {name} of {file} has no {names}", name=name, file=file, names=", ".join(missing)),
            hint=said("correct the class, or {key}", key=KEY),
        )
    return found


def _arguments(found: type, data: Data, source: DataSource, path: str, tokenizer: Any) -> dict[str, Any]:
    """Of the arguments there are, those that the class takes.

    Raises:
        RunError: it wants another.
    """
    offered = {
        "data_files": [path],
        "parquet_files": [path],
        "tokenizer": tokenizer,
        "config": _verl_names(data, source),
        "processor": None,
        "max_samples": -1 if source.max_samples is None else source.max_samples,
    }
    parameters = inspect.signature(found).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return {name: value for name, value in offered.items() if name != "parquet_files" or name in parameters}
    wanted = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_POSITIONAL
        and name not in offered
    ]
    if wanted:
        raise RunError(
            said(
                "the class {found} requires {names}; rlctl passes only {offered_names}, by name",
                found=found.__name__,
                names=", ".join(wanted),
                offered_names=", ".join(offered),
            ),
            hint="give all other parameters defaults",
        )
    return {name: value for name, value in offered.items() if name in parameters}


def _verl_names(data: Data, source: DataSource) -> Any:
    """The data section as such a class reads it: verl's names, as attributes and with ``get``."""
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "prompt_key": source.prompt_key,
            "reward_fn_key": source.source_key,
            "image_key": source.image_key,
            "video_key": source.video_key,
            "max_prompt_length": data.max_prompt_tokens,
            "truncation": data.truncation,
            "filter_overlong_prompts": data.overlong_prompts == "drop",
            "filter_overlong_prompts_workers": data.filter_workers,
            "shuffle": data.curriculum.order == "shuffle",
            "seed": data.seed,
            "return_raw_chat": True,
            "trust_remote_code": data.trust_remote_code,
        }
    )


def _plain(value: Any) -> Any:
    """Messages as a list, where a class holds them in an array."""
    return value.tolist() if hasattr(value, "tolist") else value
