"""Copies of responses outside the run folder: lines of JSON a step, or the data set with its responses as Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import write_whole
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.tracking.interface import ShownResponse
from rlctl.runtime.types import Prompt

if TYPE_CHECKING:
    import pyarrow as pa

RESPONSES, REWARDS = "responses", "rewards"
"""Columns that a file of responses has beside those of its data set."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A prompt with its responses as text, and their scores where something scored them."""

    prompt: Prompt
    texts: Sequence[str]
    scores: Sequence[Score] = ()


class Keeper(Protocol):
    """Somewhere that responses are kept."""

    def keep(self, step: int, source: int, start: int, shown: Sequence[Shown]) -> None:
        """Keep the responses to some prompts of a source, the first of them number ``start``."""
        ...

    def close(self) -> None:
        """All is kept: make it whole on the disk."""
        ...


@dataclass
class JsonLines:
    """One file a step, ``<step>.jsonl``, with one line a response; verl's fields (``trainer.rollout_data_dir``)."""

    folder: Path
    _open: dict[int, list[str]] = field(default_factory=dict)

    def keep(self, step: int, source: int, start: int, shown: Sequence[Shown]) -> None:
        lines = self._open.setdefault(step, [])
        for item in shown:
            for index, text in enumerate(item.texts):
                lines.append(json.dumps(_line(step, item, index, text), ensure_ascii=False, default=str))

    def close(self) -> None:
        for step, lines in self._open.items():
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                write_whole(self.folder / f"{step}.jsonl", "".join(f"{line}\n" for line in lines))
            except OSError as error:
                raise _unwritable(self.folder, error) from error
        self._open.clear()


def _line(step: int, item: Shown, index: int, text: str) -> dict[str, Any]:
    prompt = item.prompt
    line = {"input": prompt.text, "output": text, "gts": prompt.answer, "step": step, "data_source": prompt.source}
    if not item.scores:
        return line
    score = item.scores[index]
    told = {"acc": score.correct, "pred": score.vote, "error": score.error}
    named = {name: value for name, value in score.components.items() if name not in line}
    return {**line, "score": score.total, **named, **{name: value for name, value in told.items() if value is not None}}


SEED = 42
"""Of the choice of responses that are shown; verl's."""


@dataclass
class Chosen:
    """Keeps some of all responses, the same prompts every time: sorted by prompt, shuffled, the first ``count``.

    That is verl's choice (``trainer.log_val_generations``, verl/trainer/ppo/ray_trainer.py, _maybe_log_val_generations).
    """

    count: int
    shown: list[ShownResponse] = field(default_factory=list)
    """Those of the last evaluation."""
    _all: list[ShownResponse] = field(default_factory=list)

    def keep(self, step: int, source: int, start: int, shown: Sequence[Shown]) -> None:
        for item in shown:
            for index, text in enumerate(item.texts):
                score = item.scores[index].total if item.scores else None
                self._all.append(ShownResponse(item.prompt.text, text, score))

    def close(self) -> None:
        found, self._all = sorted(self._all, key=lambda each: each.prompt), []
        order = np.arange(len(found))
        np.random.RandomState(SEED).shuffle(order)
        self.shown = [found[index] for index in order[: self.count]]


class ParquetFile:
    """The rows of all sources, each with its responses, in one file that is there when it is whole.

    Args:
        path: of the file.
        tables: of each source, its rows from a first to a last one.
        scored: whether the rewards are kept too.

    Raises:
        RunError: the file cannot be written, or a source has a column of the name of one that is added.
    """

    def __init__(self, path: Path, tables: Sequence[Callable[[int, int], pa.Table]], *, scored: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        self._partial = path.with_name(f"{path.name}.partial")
        self._path = path
        self._tables = tables
        added = [pa.field(RESPONSES, pa.list_(pa.string()))]
        added += [pa.field(REWARDS, pa.list_(pa.float64()))] if scored else []
        schemas = [table(0, 0).schema.remove_metadata() for table in tables]
        for name in (column.name for column in added):
            if any(name in schema.names for schema in schemas):
                raise RunError(
                    said("the data already has a column {name!r}, which the response file would duplicate", name=name),
                    hint="rename it in the dataset",
                )
        self._schema = pa.schema([*pa.unify_schemas(schemas, promote_options="permissive"), *added])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._partial, self._schema)
        except OSError as error:
            raise _unwritable(path, error) from error

    def keep(self, step: int, source: int, start: int, shown: Sequence[Shown]) -> None:
        import pyarrow as pa

        rows = self._tables[source](start, start + len(shown))
        added: dict[str, list[Any]] = {
            RESPONSES: [list(item.texts) for item in shown],
            REWARDS: [[score.total for score in item.scores] for item in shown],
        }
        columns = [
            rows[column.name].cast(column.type)
            if column.name in rows.column_names
            else pa.array(added.get(column.name, [None] * len(shown)), column.type)
            for column in self._schema
        ]
        try:
            self._writer.write_table(pa.table(columns, schema=self._schema))
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def close(self) -> None:
        try:
            self._writer.close()
            self._partial.replace(self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from error


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError(
        said("responses cannot be written to {path}: {value}", path=path, value=error.strerror or error),
        hint="set rollout.responses_folder to a folder that this user can write to",
    )
