"""Rows to supervised training sequences: which tokens of a conversation are learnt.

A conversation is rendered through the chat template once, and once up to each turn that is trained on. The text between
"up to the turn, its opening included" and "up to the turn's end" is what the model must say: its tokens are counted.
The parts are tokenized one by one, as rollout tokenizes a prompt and then draws a response.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import Data, DataSource
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.custom import open_rows
from rlctl.runtime.data.images import check_columns, row_images, undecoded, with_places
from rlctl.runtime.data.messages import Messages, as_messages
from rlctl.runtime.data.prompts import as_tools, with_system
from rlctl.runtime.data.rowset import SetReport
from rlctl.runtime.data.sources import Rows, require_column, source_name
from rlctl.runtime.types import Sample

Part = tuple[str, bool]
"""Text, and whether it is learnt."""


class SampleSet(Sequence[Sample]):
    """The training sequences of one source, made when asked for.

    Args:
        dataset: its rows.
        source: its section of the config.
        chat: tokenizer and chat template.
        data: the config's data section.
        max_tokens: longest sequence.
        key: where the source stands in the config (``data.train[0]``), for messages.

    Raises:
        RunError: a column is missing, a row cannot be read, or one is overlong, ``sequence_truncation`` is error and
            ``overlong_prompts`` keep.
    """

    def __init__(self, dataset: Rows, source: DataSource, chat: Chat, data: Data, *, max_tokens: int, key: str) -> None:
        check_columns(dataset, source, chat.images, key=key)
        self.source = source
        self._dataset = undecoded(dataset, source.image_key)
        self._chat = chat
        self._data = data
        self._max_tokens = max_tokens
        self._key = key
        self._specials = set(chat.tokenizer.all_special_ids)
        self._columns = self._choose_columns(dataset)
        self.report = SetReport(source_name(source), source.path, dataset.num_rows)
        self.overlong = [row for row in range(dataset.num_rows) if len(self._tokens(row)[0]) > max_tokens]
        """Rows with longer sequences."""
        if self.overlong and data.overlong_prompts == "drop":
            self.leave_out(self.overlong)
        elif self.overlong and data.sequence_truncation == "error":
            first = self.overlong[0]
            raise RunError(
                said(
                    "{count} of {num_rows} sequences of {path} are longer than {max_tokens} tokens (the first is row "
                    "{first} with {tokens_count})",
                    count=len(self.overlong),
                    num_rows=dataset.num_rows,
                    path=source.path,
                    max_tokens=max_tokens,
                    first=first,
                    tokens_count=len(self._tokens(first)[0]),
                ),
                hint="raise data.max_sequence_tokens, or set data.sequence_truncation to left or right, or "
                "data.overlong_prompts to drop",
            )
        else:
            self.report = dataclasses.replace(self.report, cut=len(self.overlong))

    def check_cuts(self) -> None:
        """Refuse to cut sequences with images.

        Raises:
            RunError: there is one that is longer than a sequence may be.
        """
        for row in self.overlong:
            if self._images(row):
                raise RunError(
                    said(
                        "row {row} of {path} has images and more than {max_tokens} tokens, and rlctl cannot truncate a "
                        "sequence with images",
                        row=row,
                        path=self.source.path,
                        max_tokens=self._max_tokens,
                    ),
                    hint="raise data.max_sequence_tokens, or set data.overlong_prompts to drop",
                )

    def leave_out(self, rows: Collection[int]) -> None:
        """Drop rows.

        Raises:
            RunError: none is left.
        """
        kept = sorted(set(range(self._dataset.num_rows)) - set(rows))
        if not kept:
            raise RunError(
                said(
                    "all {num_rows} sequences of {path} are longer than {max_tokens} tokens",
                    num_rows=self._dataset.num_rows,
                    path=self.source.path,
                    max_tokens=self._max_tokens,
                ),
                hint="raise data.max_sequence_tokens",
            )
        dropped = self._dataset.num_rows - len(kept)
        self._dataset = self._dataset.select(kept)
        self.report = dataclasses.replace(self.report, rows=len(kept), dropped=dropped, cut=0)

    def __len__(self) -> int:
        return self._dataset.num_rows

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = index if index >= 0 else len(self) + index
        ids, learnt = self._tokens(position)
        if len(ids) > self._max_tokens:
            kept = (
                slice(-self._max_tokens, None) if self._data.sequence_truncation == "left" else slice(self._max_tokens)
            )
            ids, learnt = ids[kept], learnt[kept]
        mask = torch.tensor(learnt, dtype=torch.bool)
        mask[0] = False
        token_ids, reader = torch.tensor(ids, dtype=torch.int64), self._chat.images
        if reader is None:
            return Sample(token_ids, mask)
        mask &= token_ids != reader.image_token
        return Sample(token_ids, mask, inputs=reader.read(self._images(position)))

    def column(self, name: str) -> list[Any]:
        """The values of one column.

        Raises:
            RunError: there is no such column.
        """
        require_column(self._dataset, name, source=self.source, key="data.curriculum.keys")
        return list(self._dataset[name])

    def _choose_columns(self, dataset: Rows) -> tuple[str, str | None]:
        """The column with the conversation or the prompt, and the one with the response, where there is one."""
        source = self.source
        for field in ("messages_key", "response_key", "system_prompt_key", "tools_key"):
            column = getattr(source, field)
            if column is not None and not (column == getattr(DataSource, field) and column not in dataset.column_names):
                require_column(dataset, column, source=source, key=f"{self._key}.{field}")
        if source.messages_key is not None:
            return source.messages_key, None
        require_column(dataset, source.prompt_key, source=source, key=f"{self._key}.prompt_key")
        return source.prompt_key, source.response_key or ("response" if "response" in dataset.column_names else None)

    def _tokens(self, position: int) -> tuple[list[int], list[bool]]:
        """Token ids of a row, and which of them are learnt."""
        where, images = said("row {number} of {path}", number=position, path=self.source.path), self._images(position)
        parts = self._parts(self._dataset[position], where, len(images))
        encoded = [self._chat.encode([text], special=self._is_raw and not learn)[0] for text, learn in parts]
        if self._chat.images is not None:
            encoded = self._chat.images.fill(encoded, self._chat.images.counts(images), where=where)
        ids = [token for part in encoded for token in part]
        learnt = [flag for part, (_, learn) in zip(encoded, parts, strict=True) for flag in self._flags(part, learn)]
        end = self._chat.tokenizer.eos_token_id
        if parts[-1][1] and end is not None and not self._specials & set(encoded[-1]):
            return [*ids, end], [*learnt, True]
        return ids, learnt

    def _images(self, position: int) -> list[Any]:
        return row_images(self._dataset[position], self.source, self._chat.images, number=position)

    @property
    def _is_raw(self) -> bool:
        return self.source.prompt_type == "raw" and self.source.messages_key is None

    def _flags(self, ids: list[int], learn: bool) -> list[bool]:
        """What of a part is learnt: up to the token that ends the turn, not the line break a template puts after it."""
        last = max((i for i, token in enumerate(ids) if token in self._specials), default=len(ids) - 1)
        return [learn and i <= last for i in range(len(ids))]

    def _parts(self, row: Mapping[str, Any], where: str, images: int) -> list[Part]:
        column, response_column = self._columns
        value, where = row[column], f"{where}, {column}"
        response = row[response_column] if response_column else None
        if response_column and isinstance(response, Sequence) and not isinstance(response, str):
            response = _one_answer(as_messages(response, where=f"{where}, {response_column}"), value, where=where)
        if response_column and not isinstance(response, str):
            raise RunError(
                said(
                    "{where}: {response_column} is a {kind}; expected text or a list of messages",
                    where=where,
                    response_column=response_column,
                    kind=type(response).__name__,
                )
            )
        if self._is_raw:
            if not isinstance(value, str) or response is None:
                raise RunError(
                    said("{where}: raw prompts need a text and a response", where=where),
                    hint=said("set {key}.response_key", key=self._key),
                )
            return [(value, False), (response, True)]
        is_text = self.source.messages_key is None and isinstance(value, str) and self.source.prompt_type != "messages"
        messages = [{"role": "user", "content": value}] if is_text else as_messages(value, where=where)
        if response is not None:
            messages = [*messages, {"role": "assistant", "content": response}]
        own = row[self.source.system_prompt_key] if self.source.system_prompt_key else None
        messages = with_system(messages, own or self.source.system_prompt, where=where, key=self._key)
        tools = as_tools(row.get(self.source.tools_key), where=where) if self.source.tools_key else None
        if self._chat.images is not None:
            messages = with_places(messages, images, where=where)
        last_only = response is not None or self._data.multi_turn_loss == "last_assistant"
        return conversation_parts(messages, self._chat, last_only=last_only, tools=tools, where=where)


def _one_answer(messages: Messages, prompt: Any, *, where: str) -> Any:
    """The content of the assistant message that answers a prompt, which may be repeated before it."""
    before = list(prompt) if isinstance(prompt, Sequence) and not isinstance(prompt, str) else []
    rest = (
        messages[len(before) :]
        if [_said(message) for message in before] == [_said(message) for message in messages[: len(before)]]
        else messages
    )
    if len(rest) != 1 or rest[0]["role"] != "assistant":
        roles = ", ".join(str(message["role"]) for message in rest)
        raise RunError(
            said(
                "{where}: a response is the messages ({roles}); expected one assistant message",
                where=where,
                roles=roles,
            )
        )
    return rest[0].get("content")


def _said(message: Mapping[str, Any]) -> tuple[Any, Any]:
    return message.get("role"), message.get("content")


def conversation_parts(
    messages: Messages, chat: Chat, *, last_only: bool, tools: list[Any] | None = None, where: str = "a conversation"
) -> list[Part]:
    """Cut the rendered conversation into parts that are learnt and parts that are not.

    Args:
        messages: the conversation, up to its last assistant turn.
        chat: the template.
        last_only: learn the last assistant turn only, else all of them.
        tools: schemas of tools.
        where: for messages of errors.

    Raises:
        RunError: there is no assistant turn, or the template renders a turn differently once others follow it, so that
            its text cannot be found.
    """
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns:
        raise RunError(
            said("{where} has no assistant message to train on", where=where),
            hint="set data.train[].response_key to the column with the response",
        )
    if turns[0] == 0:
        raise RunError(
            said("{where} starts with an assistant message, which has no prompt", where=where),
            hint="remove it from the row",
        )
    messages = messages[: turns[-1] + 1]
    full = chat.render(messages, generate=False, tools=tools, where=where)
    parts: list[Part] = []
    done = 0
    for turn in turns[-1:] if last_only else turns:
        opening = chat.render(messages[:turn], generate=True, tools=tools, where=where)
        through = (
            full if turn == turns[-1] else chat.render(messages[: turn + 1], generate=False, tools=tools, where=where)
        )
        if not (full.startswith(opening) and full.startswith(through) and done <= len(opening) < len(through)):
            raise RunError(
                said(
                    "{where}: the chat template renders message {turn} differently when more messages follow, so rlctl "
                    "cannot tell which tokens belong to it",
                    where=where,
                    turn=turn,
                ),
                hint="set data.multi_turn_loss to last_assistant, or model.chat_template to a template that keeps all turns",
            )
        parts += [(full[done : len(opening)], False), (full[len(opening) : len(through)], True)]
        done = len(through)
    return parts


def open_samples(
    data: Data, sources: Iterable[tuple[str, DataSource]], chat: Chat, *, max_tokens: int
) -> Iterator[SampleSet]:
    """Open sources whose rows are training sequences, by their places in the config.

    Raises:
        RunError: a source cannot be read; see ``open_rows`` and ``SampleSet``.
    """
    for key, source in sources:
        rows = open_rows(data, source, chat.tokenizer, key=key)
        samples = SampleSet(rows, source, chat, data, max_tokens=max_tokens, key=key)
        samples.check_cuts()
        yield samples
