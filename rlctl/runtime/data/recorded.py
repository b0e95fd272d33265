"""Rows that bring their responses: files that generation wrote, to be scored without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import EvaluationSource
from rlctl.runtime.data.rowset import RowSet, SetReport
from rlctl.runtime.data.sources import Rows, load_source
from rlctl.runtime.types import Prompt

RECORDED = "responses"
"""Where ``Prompt.extra`` holds the responses of a row."""


class RecordedSet(RowSet):
    """The tasks of one source with the responses of its column ``response_key``: a list of texts, or one text.

    Raises:
        RunError: a column is missing, or a row holds no responses.
    """

    def __init__(self, dataset: Rows, source: EvaluationSource, *, key: str, first_index: int = 0) -> None:
        super().__init__(dataset, source, key=key, first_index=first_index, required=("response_key",))
        assert source.response_key is not None, "the source names its responses"
        self._column = source.response_key
        for number, value in enumerate(dataset[self._column]):
            self._texts(value, number)
        self.report = SetReport(self._name, source.path, dataset.num_rows)

    def several(self, positions: Sequence[int]) -> list[Prompt]:
        return list(map(self._prompt, positions))

    def _prompt(self, position: int) -> Prompt:
        number = int(self._rows[position])
        row = self._dataset[number]
        shown = row.get(self.source.prompt_key)
        return Prompt(
            index=self.first_index + position,
            source=self._label(row),
            token_ids=(),
            text=shown if isinstance(shown, str) else "",
            answer=self._answer(row),
            extra={**self._extra(row), RECORDED: self._texts(row[self._column], number)},
            messages=tuple(shown) if isinstance(shown, list) and all(isinstance(each, dict) for each in shown) else (),
        )

    def _texts(self, value: Any, number: int) -> list[str]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
            raise RunError(
                said(
                    "row {number} of {path}, {column} is {value}; expected a list of responses",
                    number=number,
                    path=self.source.path,
                    column=self._column,
                    value=repr(value)[:80],
                ),
                hint=said("set {key}.response_key to the column with the responses", key=self._key),
            )
        return list(texts)


def open_recorded(sources: Sequence[EvaluationSource]) -> Iterator[RecordedSet]:
    """Open the sources of ``data.eval`` that bring responses.

    Raises:
        RunError: one cannot be read; see ``load_source`` and ``RecordedSet``.
    """
    first = 0
    for number, source in enumerate(sources):
        if source.response_key is not None:
            key = f"data.eval[{number}]"
            recorded = RecordedSet(load_source(source, key=key), source, key=key, first_index=first)
            first += len(recorded)
            yield recorded
