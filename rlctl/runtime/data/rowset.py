"""The rows of one source as tasks: what every kind of set reads of a row beside its prompt or its responses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.config.sections.data import DataSource
from rlctl.runtime.data.custom import CustomPart
from rlctl.runtime.data.sources import Rows, missing_column, require_column, source_name
from rlctl.runtime.types import Prompt

if TYPE_CHECKING:
    import pyarrow as pa

ANSWERS = ("reward_model.ground_truth", "ground_truth", "answer")
"""Where the ground truth is looked for, in this order, where ``answer_key`` is null."""
REWARD_COLUMNS = ("case_type", "test_cases", "test_case_function", "rubric")
"""Columns that a reward reads besides the answer, if they are there: ROLL's tests of programs, Trinity's rubrics."""
TASK_FIELDS = ("answer_key", "source_key", "tag_key", "extra_key", "agent_key")
"""Fields of a source that name columns which every kind of set reads."""


@dataclass(frozen=True, slots=True)
class SetReport:
    """What became of the rows of one source."""

    name: str
    path: str
    rows: int
    """Rows that are used."""
    undrawn: int = 0
    """Rows of no reward that ``data.domain_weights`` names, which are not."""
    dropped: int = 0
    """Overlong prompts that are not."""
    cut: int = 0
    """Overlong prompts that are used and cut."""
    unanswered: int = 0
    """Rows that are used and have no answer, in data with answers."""
    empty: int = 0
    """Rows that are used and ask nothing."""

    def __str__(self) -> str:
        template = "{name}: {rows} prompts from {path}" if self.path else "{name}: {rows} prompts"
        parts = [said(template, name=self.name, rows=self.rows, path=self.path)]
        if self.undrawn:
            parts.append(said("{count} of no reward in data.domain_weights not used", count=self.undrawn))
        parts += [said("{count} overlong dropped", count=self.dropped)] if self.dropped else []
        parts += [said("{count} overlong truncated", count=self.cut)] if self.cut else []
        parts += [said("{count} without an answer", count=self.unanswered)] if self.unanswered else []
        parts += [said("{count} with an empty prompt", count=self.empty)] if self.empty else []
        return together(parts, COMMAS)


class RowSet(Sequence[Prompt]):
    """The tasks of one source, made when asked for.

    Args:
        dataset: its rows.
        source: its section of the config.
        key: where the source stands in the config (``data.train[0]``), for messages.
        first_index: ``Prompt.index`` of the first one, so that sets put together have no index twice.
        required: fields of the source that name columns which must be there.
        optional: fields that name columns which must be there unless they have their defaults.

    Raises:
        RunError: a column is missing.
    """

    report: SetReport

    def __init__(
        self,
        dataset: Rows,
        source: DataSource,
        *,
        key: str,
        first_index: int = 0,
        required: Iterable[str],
        optional: Iterable[str] = (),
    ) -> None:
        self.source = source
        self.first_index = first_index
        self._dataset = dataset
        self._key = key
        self._name = source_name(source)
        self._check_columns(required, (*optional, *TASK_FIELDS))
        self._answer_key = source.answer_key or _answer_column(dataset)
        self._rows = np.arange(dataset.num_rows)
        """Numbers of the rows that are used. int64."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.several(range(*index.indices(len(self))))
        return self.several([index if index >= 0 else len(self) + index])[0]

    @abstractmethod
    def several(self, positions: Sequence[int]) -> list[Prompt]:
        """The tasks at some positions among the rows that are used."""

    def column(self, name: str) -> list[Any]:
        """The values of one column, in the order of the tasks.

        Raises:
            RunError: there is no such column.
        """
        require_column(self._dataset, name, source=self.source, key="data.curriculum.keys")
        values = list(self._dataset[name])
        return [values[row] for row in self._rows.tolist()]

    def labels(self) -> list[tuple[str, str | None]]:
        """The data source and the tag of each task, without making the tasks."""
        named = [key for key in (self.source.source_key, self.source.tag_key) if key in self._dataset.column_names]
        columns = {key: self.column(key) for key in named if key}
        sources = columns.get(self.source.source_key or "", [None] * len(self))
        tags = columns.get(self.source.tag_key or "", [None] * len(self))
        labels = zip(sources, tags, strict=True)
        return [(str(source or self._name), None if tag is None else str(tag)) for source, tag in labels]

    def table(self, start: int, stop: int) -> pa.Table:
        """The rows of the tasks from ``start`` to ``stop``, as they are in the data set."""
        chosen = self._dataset.select(self._rows[start:stop])
        return chosen.table() if isinstance(chosen, CustomPart) else chosen.with_format("arrow")[:]

    def _check_columns(self, required: Iterable[str], optional: Iterable[str]) -> None:
        columns, defaults = self._dataset.column_names, DataSource(path="-")
        for field in (*required, *optional):
            column = getattr(self.source, field)
            if column is None or (column == getattr(defaults, field) and field in optional and column not in columns):
                continue
            require_column(self._dataset, column, source=self.source, key=f"{self._key}.{field}")

    def _label(self, row: Mapping[str, Any]) -> str:
        """The data source of a row."""
        key = self.source.source_key
        return str(row.get(key) or self._name) if key else self._name

    def _answer(self, row: Mapping[str, Any]) -> Any:
        value: Any = row
        for part in (self._answer_key or "").split("."):
            if not part or value is None:
                return None
            if not isinstance(value, Mapping) or part not in value:
                known = value if isinstance(value, Mapping) else ()
                raise missing_column(part, known, path=self.source.path, key=f"{self._key}.answer_key")
            value = value[part]
        return value

    def _is_unanswered(self, row: Mapping[str, Any]) -> bool:
        """Whether a row has nothing where its source has the answer."""
        return self._answer_key is not None and self._answer(row) in (None, "")

    def _agent(self, row: Mapping[str, Any]) -> str | None:
        """The agent that a row or its source names."""
        key = self.source.agent_key
        return (str(row[key]) if key and row.get(key) else None) or self.source.agent

    def _extra(self, row: Mapping[str, Any]) -> dict[str, Any]:
        source = self.source
        extra: dict[str, Any] = {}
        if agent := self._agent(row):
            extra["agent"] = agent
        extra |= {"extra_info": (row.get(source.extra_key) if source.extra_key else None) or {}}
        columns = {name: row[name] for name in REWARD_COLUMNS if row.get(name) is not None}
        if columns:
            extra["columns"] = columns
        if source.tag_key is not None:
            extra["tag"] = row[source.tag_key]
        if source.sampling:
            extra["sampling"] = dict(source.sampling)
        if source.reward is not None:
            extra["reward"] = source.reward
        if source.reward_args:
            extra["reward_args"] = dict(source.reward_args)
        return extra


def _answer_column(dataset: Rows) -> str | None:
    for name in ANSWERS:
        first, _, rest = name.partition(".")
        if first in dataset.column_names:
            feature = dataset.features[first]
            if not rest or (isinstance(feature, Mapping) and rest in feature):
                return name
    return None
