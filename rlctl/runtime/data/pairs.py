"""Rows to preference pairs: a chosen and a rejected response to the same prompt, each as a supervised training sequence.

A row has a prompt and two responses, as text or as messages; or, without a prompt, two conversations that differ in their
last turn. Of each sequence only the last assistant turn is counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import Data, DataSource
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.custom import open_rows
from rlctl.runtime.data.sft import SampleSet
from rlctl.runtime.data.sources import Rows, require_column
from rlctl.runtime.types import Sample

Pair = tuple[Sample, Sample]
"""Chosen, rejected."""


class PairSet(Sequence[Pair]):
    """The preference pairs of one source, made when asked for.

    Args:
        dataset: its rows.
        source: its section of the config.
        chat: tokenizer and chat template.
        data: the config's data section.
        max_tokens: longest sequence, prompt and response.
        key: where the source stands in the config (``data.train[0]``), for messages.

    Raises:
        RunError: a column is missing, a row cannot be read, or one is overlong, ``sequence_truncation`` is error and
            ``overlong_prompts`` keep.
    """

    def __init__(self, dataset: Rows, source: DataSource, chat: Chat, data: Data, *, max_tokens: int, key: str) -> None:
        self.source = source
        drops = data.overlong_prompts == "drop"  # both sequences of a pair, or none
        last = dataclasses.replace(data, multi_turn_loss="last_assistant")
        if drops:
            last = dataclasses.replace(last, overlong_prompts="keep", sequence_truncation="left")

        def responses(field: str) -> SampleSet:
            column = getattr(source, field)
            require_column(dataset, column, source=source, key=f"{key}.{field}")
            absent = source.prompt_key == DataSource.prompt_key and source.prompt_key not in dataset.column_names
            whole = absent and source.messages_key is None
            if whole:
                made = dataclasses.replace(source, messages_key=column, response_key=None)
            else:
                prompt = source.messages_key or source.prompt_key
                made = dataclasses.replace(source, prompt_key=prompt, messages_key=None, response_key=column)
            return SampleSet(dataset, made, chat, last, max_tokens=max_tokens, key=key)

        self._chosen, self._rejected = responses("chosen_key"), responses("rejected_key")
        over = {*self._chosen.overlong, *self._rejected.overlong}
        if over and drops:
            self._chosen.leave_out(over)
            self._rejected.leave_out(over)
        if not drops:
            self._chosen.check_cuts()
            self._rejected.check_cuts()
        cut = 0 if drops else len(over)
        self.report = dataclasses.replace(self._chosen.report, cut=cut)

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        chosen, rejected = self._chosen[index], self._rejected[index]
        for name, sample in (("chosen", chosen), ("rejected", rejected)):
            if not sample.mask.any():
                raise RunError(
                    said(
                        "row {index} of {path}: truncation leaves nothing of the {name} response",
                        index=index,
                        path=self.source.path,
                        name=name,
                    ),
                    hint="raise data.max_sequence_tokens, or set data.sequence_truncation to left",
                )
        return chosen, rejected

    def column(self, name: str) -> list[Any]:
        """The values of one column.

        Raises:
            RunError: there is no such column.
        """
        return self._chosen.column(name)


def open_pairs(
    data: Data, sources: Iterable[tuple[str, DataSource]], chat: Chat, *, max_tokens: int
) -> Iterator[PairSet]:
    """Open the training sources of dpo, by their places in the config.

    Raises:
        RunError: a source cannot be read; see ``open_rows`` and ``PairSet``.
    """
    for key, source in sources:
        rows = open_rows(data, source, chat.tokenizer, key=key)
        yield PairSet(rows, source, chat, data, max_tokens=max_tokens, key=key)
