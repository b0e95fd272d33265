"""Rows to prompts: messages through the chat template, the answer, the source, and what happens to overlong ones.

Lengths are measured once, when a set is opened, because an overlong prompt must be known before the run starts. The
prompts themselves are made again whenever they are drawn: a set of millions of rows stays in Arrow, not in memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import Data, DataSource
from rlctl.runtime.data.chat import AgentPrompt, Chat
from rlctl.runtime.data.custom import open_rows
from rlctl.runtime.data.images import check_columns, row_images, undecoded, with_places
from rlctl.runtime.data.messages import Messages, as_messages
from rlctl.runtime.data.parallel import over_ranges
from rlctl.runtime.data.rowset import RowSet, SetReport
from rlctl.runtime.data.sources import Rows
from rlctl.runtime.types import Prompt

BATCH_ROWS = 1024
"""Rows measured at once: the tokenizer encodes them on all cores."""
NO_AGENT = AgentPrompt()
TEXT_FIELDS = ("system_prompt_key", "tools_key")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a prompt may be, and what happens to one that is longer."""

    tokens: int
    overlong: Literal["keep", "drop"] = "keep"
    truncation: Literal["error", "left", "right", "middle"] = "error"

    @classmethod
    def of(cls, data: Data) -> Limits:
        """The limits of a config."""
        return cls(data.max_prompt_tokens, data.overlong_prompts, data.truncation)


class PromptSet(RowSet):
    """The prompts of one source, made when asked for.

    Args:
        dataset: its rows.
        source: its section of the config.
        chat: tokenizer and chat template.
        limits: of the prompts' lengths.
        key: where the source stands in the config (``data.train[0]``), for messages.
        first_index: ``Prompt.index`` of the first one, so that sets put together have no index twice.
        workers: processes that measure lengths.

    Raises:
        RunError: a column is missing, a row cannot be read, or a prompt is overlong and ``truncation`` is error.
    """

    def __init__(
        self,
        dataset: Rows,
        source: DataSource,
        chat: Chat,
        limits: Limits,
        *,
        key: str,
        first_index: int = 0,
        workers: int = 1,
    ) -> None:
        check_columns(dataset, source, chat.images, key=key)
        dataset = undecoded(dataset, source.image_key)
        super().__init__(
            dataset, source, key=key, first_index=first_index, required=("prompt_key",), optional=TEXT_FIELDS
        )
        self._chat = chat
        self._limits = limits
        self._raw = source.prompt_type == "raw"
        measured = over_ranges(
            self._measure, dataset.num_rows, BATCH_ROWS, processes=workers, key="data.filter_workers"
        )
        lengths, images, unanswered, empty = np.concatenate(list(measured)).T
        self._rows, self.report = self._settle(lengths, images, unanswered, empty)
        self.longest = int(min(lengths[self._rows].max(initial=0), limits.tokens))
        """Tokens of the longest prompt."""

    def _measure(self, start: int, stop: int) -> np.ndarray:
        """Of a range of rows: lengths of prompts, how many images each has, whether it has no answer, and asks nothing.
        int64 [stop - start, 4]."""
        rows = self._dataset.select(range(start, stop))
        texts, counts, lacking = [], [], []
        for number, row in enumerate(rows, start):
            images = self._images(row, number)
            counts.append(self._chat.images.counts(images) if self._chat.images else [])
            where = self._where(number)
            told = self._told(row, where)
            texts.append(self._text(row, where, told, len(images)))
            asks = (
                bool(images)
                or self.source.format == "episodes"
                or (not is_blank(told) if told else bool(texts[-1].strip()))
            )
            lacking.append((self._is_unanswered(row), not asks))
        encoded = zip(self._chat.encode(texts, special=self._raw), counts, strict=True)
        lengths = [len(self._filled(ids, each, number)) for number, (ids, each) in enumerate(encoded, start)]
        if not all(lengths):
            raise RunError(
                said("{where} is empty: the model would get no prompt", where=self._where(start + lengths.index(0))),
                hint="remove the row, or add text",
            )
        return np.array([lengths, [len(each) for each in counts], *zip(*lacking, strict=True)], dtype=np.int64).T

    def _images(self, row: Mapping[str, Any], number: int) -> list[Any]:
        return row_images(row, self.source, self._chat.images, number=number)

    def _filled(self, ids: list[int], counts: list[int], number: int) -> list[int]:
        """The tokens of a prompt with those that its images fill."""
        reader = self._chat.images
        return ids if reader is None else reader.fill([ids], counts, where=self._where(number))[0]

    def _settle(
        self, lengths: np.ndarray, images: np.ndarray, unanswered: np.ndarray, empty: np.ndarray
    ) -> tuple[np.ndarray, SetReport]:
        """The rows that are used, and what became of the others."""

        def report(kept: np.ndarray, **counts: int) -> SetReport:
            lacking = {"unanswered": int(unanswered[kept].sum()), "empty": int(empty[kept].sum())}
            return SetReport(name, path, len(kept), **counts, **lacking)

        limit, name, path = self._limits, self._name, self.source.path
        over = np.flatnonzero(lengths > limit.tokens)
        if limit.overlong == "keep" and limit.truncation != "error" and len(shown := over[images[over] > 0]):
            raise RunError(
                said(
                    "{count} prompts of {path} with images are longer than data.max_prompt_tokens = {tokens} (the first "
                    "is row {shown} with {lengths} tokens), and rlctl cannot truncate a prompt with images",
                    count=len(shown),
                    path=path,
                    tokens=limit.tokens,
                    shown=shown[0],
                    lengths=lengths[shown[0]],
                ),
                hint="raise data.max_prompt_tokens, or set data.overlong_prompts to drop",
            )
        if not len(over) or (limit.overlong == "keep" and limit.truncation != "error"):
            kept = np.arange(len(lengths))
            return kept, report(kept, cut=len(over))
        if limit.overlong == "keep":
            raise RunError(
                said(
                    "{count} of {lengths_count} prompts of {path} are longer than data.max_prompt_tokens = {tokens} (the "
                    "first is row {over} with {lengths} tokens, the longest has {max})",
                    count=len(over),
                    lengths_count=len(lengths),
                    path=path,
                    tokens=limit.tokens,
                    over=over[0],
                    lengths=lengths[over[0]],
                    max=lengths.max(),
                ),
                hint="raise data.max_prompt_tokens, or set data.overlong_prompts to drop, or data.truncation to left, "
                "right or middle",
            )
        kept = np.flatnonzero(lengths <= limit.tokens)
        if not len(kept):
            raise RunError(
                said(
                    "all {count} prompts of {path} are longer than data.max_prompt_tokens = {tokens} (the shortest has "
                    "{min} tokens)",
                    count=len(lengths),
                    path=path,
                    tokens=limit.tokens,
                    min=lengths.min(),
                ),
                hint="raise data.max_prompt_tokens",
            )
        return kept, report(kept, dropped=len(over))

    def _where(self, row: int) -> str:
        return said(
            "row {number} of {path}, {column}", number=row, path=self.source.path, column=self.source.prompt_key
        )

    def several(self, positions: Sequence[int]) -> list[Prompt]:
        """The tasks at some positions; their texts are tokenized together."""
        numbers = self._rows[positions].tolist()
        rows = self._dataset.__getitems__(numbers)
        images = [self._images(row, number) for row, number in zip(rows, numbers, strict=True)]
        places = list(map(self._where, numbers))
        told = list(map(self._told, rows, places))
        texts = list(map(self._text, rows, places, told, map(len, images)))
        encoded = self._chat.encode(texts, special=self._raw)
        return list(map(self._prompt, positions, numbers, rows, told, images, texts, encoded))

    def _prompt(
        self,
        position: int,
        number: int,
        row: Mapping[str, Any],
        messages: Messages,
        images: list[Any],
        text: str,
        ids: list[int],
    ) -> Prompt:
        reader = self._chat.images
        ids = self._filled(ids, reader.counts(images) if reader else [], number)
        extra = self._extra(row) | self._of_tools(row)
        if len(ids) > self._limits.tokens:
            extra["truncated"] = True
            ids = cut(ids, self._limits.tokens, self._limits.truncation)
            text = self._chat.tokenizer.decode(ids)
        return Prompt(
            index=self.first_index + position,
            source=self._label(row),
            token_ids=tuple(ids),
            text=text,
            answer=self._answer(row),
            extra=extra,
            messages=tuple(messages),
            inputs=reader.read(images) if reader else {},
        )

    def _told(self, row: Mapping[str, Any], where: str) -> Messages:
        """The messages of a row; none of raw text."""
        return [] if self._raw else self._messages(row[self.source.prompt_key], row, where)

    def _text(self, row: Mapping[str, Any], where: str, messages: Messages, images: int) -> str:
        value = row[self.source.prompt_key]
        if self._raw:
            if not isinstance(value, str):
                raise RunError(
                    said("{where} is a {kind}; expected text", where=where, kind=type(value).__name__),
                    hint=said("{key}.prompt_type is raw", key=self._key),
                )
            return value
        tools = self._tools(row, where)
        if self._chat.images is not None:
            messages = with_places(messages, images, where=where)
        return self._chat.render(messages, generate=True, tools=tools, where=where)

    def _messages(self, value: Any, row: Mapping[str, Any], where: str) -> Messages:
        source = self.source
        is_text = source.prompt_type == "text" or (source.prompt_type == "auto" and isinstance(value, str))
        if is_text and not isinstance(value, str):
            raise RunError(
                said("{where} is a {kind}; expected text", where=where, kind=type(value).__name__),
                hint=said("{key}.prompt_type is text", key=self._key),
            )
        messages = [{"role": "user", "content": value}] if is_text else as_messages(value, where=where)
        own = row[source.system_prompt_key] if source.system_prompt_key else None
        messages = with_system(messages, own or source.system_prompt, where=where, key=self._key)
        of_agent = self._shown(row).system_prompt
        if of_agent is not None and messages[0]["role"] != "system":
            return [{"role": "system", "content": of_agent}, *messages]
        return messages

    def _shown(self, row: Mapping[str, Any]) -> AgentPrompt:
        agent = self._agent(row)
        return self._chat.default if agent is None else self._chat.agents.get(agent, NO_AGENT)

    def _of_tools(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The names of the tools that a row may call, if not all, and what their objects are made with."""
        found: dict[str, Any] = {}
        shown = self._shown(row)
        names, given = value_at(row, shown.selection_key), value_at(row, shown.args_key)
        if names is not None:
            found["tools"] = list(names)
        if given:
            found["tool_args"] = {name: _arguments(each) for name, each in given.items() if each}
        return found

    def _tools(self, row: Mapping[str, Any], where: str) -> list[Any] | None:
        own = as_tools(row.get(self.source.tools_key), where=where) if self.source.tools_key else None
        agent = self._shown(row)
        shown = agent.selected(value_at(row, agent.selection_key), where=where)
        if not own:
            return shown
        if shown:
            raise RunError(
                said("{where}: the row names its tools, but the prompts show those of the run's agent", where=where),
                hint=said("set {key}.tools_key to null", key=self._key),
            )
        return own


def is_blank(messages: Messages) -> bool:
    """Whether no message of a user has more than spaces."""
    asked = [message.get("content") for message in messages if message["role"] == "user"]
    return not any(content.strip() if isinstance(content, str) else content for content in asked)


def value_at(row: Mapping[str, Any], key: str | None) -> Any:
    """What a row has at a key whose dots lead into structures; None if it has nothing there."""
    value: Any = row if key else None
    for part in (key or "").split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a row gives to ``create``; verl keeps it under ``create_kwargs``. Arrow has None where other rows have values."""
    found = given.get("create_kwargs") or given
    return {name: value for name, value in found.items() if value is not None}


def with_system(messages: Messages, system: str | None, *, where: str, key: str) -> Messages:
    """Put a system message first.

    Raises:
        RunError: there is one already.
    """
    if not system:
        return messages
    if messages[0]["role"] == "system":
        raise RunError(
            said("{where} starts with its own system message, but the config sets another", where=where),
            hint=said(
                "unset {key}.system_prompt and {key}.system_prompt_key, or remove the row's system message", key=key
            ),
        )
    return [{"role": "system", "content": system}, *messages]


def as_tools(value: Any, *, where: str) -> list[Any] | None:
    """Read the tool schemas of a row: a list of them, or the same as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise RunError(said("{where}: the tools are text that is not JSON", where=where)) from error
    return list(value) if value else None


def cut(ids: list[int], limit: int, side: str) -> list[int]:
    """Return ``limit`` of the ids; ``side`` says which go: left keeps the last, right the first, middle half of each."""
    if side == "left":
        return ids[-limit:]
    if side == "right":
        return ids[:limit]
    first = limit // 2
    return ids[:first] + ids[len(ids) - (limit - first) :]


def open_prompts(
    data: Data, chat: Chat, sources: Sequence[DataSource], *, section: str, without: Collection[int] = ()
) -> Iterator[PromptSet]:
    """Open the sources of ``data.<section>`` in turn, except those at ``without``; prompts are numbered across all of them.

    Raises:
        RunError: a source cannot be read; see ``open_rows`` and ``PromptSet``.
    """
    first = 0
    for number, source in enumerate(sources):
        if number in without:
            continue
        key = f"data.{section}[{number}]"
        dataset = open_rows(data, source, chat.tokenizer, key=key)
        workers = data.filter_workers if data.custom is None else 1  # a class of the user's stays in this process
        prompts = PromptSet(dataset, source, chat, Limits.of(data), key=key, first_index=first, workers=workers)
        first += len(prompts)
        yield prompts
