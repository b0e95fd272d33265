"""What files of rows contain: columns and their types, lengths, duplicates, missing answers, data sources."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rlctl.common.numbers import percentile
from rlctl.porting.reading import DataFile, rows_of
from rlctl.porting.rows import Names, Row, row_of, text_of

MOST_COLUMNS = 64
"""Columns that are described, keys inside of columns included."""
BINS = 10
"""Bins of a histogram, of a width that is easy to read."""
KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), ((bytes, bytearray, memoryview), "bytes"),
)  # fmt: skip


@dataclass
class Column:
    """A column, or a key inside of one, as its rows have it."""

    name: str
    types: Counter[str] = field(default_factory=Counter)
    """Rows by type."""
    empty: int = 0
    """Rows that lack it, or have null or an empty text or list."""


@dataclass
class Lengths:
    """How long the texts of one kind are."""

    counts: Counter[int] = field(default_factory=Counter)
    """Texts by length."""

    def at(self, percent: float) -> int:
        """The shortest length that this share of the texts does not exceed; 0 without texts."""
        return percentile(self.counts, percent)

    def bins(self) -> list[tuple[int, int, int]]:
        """A histogram: shortest and longest length of each bin, and the texts in it; the last bin has the longest hundredth."""
        if not self.counts:
            return []
        low, most, longest = min(self.counts), self.at(99), self.at(100)
        width = next(
            step * 10**power for power in range(19) for step in (1, 2, 5) if (most - low) // (step * 10**power) < BINS
        )
        edges = [*range(low // width * width, most + 1, width), most // width * width + width]
        found = [
            (start, end - 1, sum(count for length, count in self.counts.items() if start <= length < end))
            for start, end in pairwise(edges)
        ]
        rest = sum(count for length, count in self.counts.items() if length >= edges[-1])
        return [*found, (edges[-1], longest, rest)] if rest else found

    def as_data(self) -> dict[str, Any]:
        """Percentiles and the histogram as plain data."""
        shares = {f"p{percent}": self.at(percent) for percent in (50, 90, 99)}
        return {"texts": sum(self.counts.values()), **shares, "longest": self.at(100), "histogram": self.bins()}


@dataclass
class Inspected:
    """What files of rows contain."""

    files: list[tuple[str, str, int]] = field(default_factory=list)
    """Path, split and rows."""
    columns: dict[str, Column] = field(default_factory=dict)
    more_columns: bool = False
    """Whether there are columns that are not in ``columns``."""
    names: list[Names] = field(default_factory=list)
    """Of each file, the columns that are read."""
    lengths: dict[str, Lengths] = field(default_factory=dict)
    """Of prompts and answers in characters, and of prompts in tokens."""
    sources: Counter[str] = field(default_factory=Counter)
    """Rows by data source."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Rows that no run can use, by reason."""
    without_answer: int = 0
    with_images: int = 0
    turns: Counter[int] = field(default_factory=Counter)
    """Rows by messages of their prompt."""
    repeated: int = 0
    """Rows whose prompt an earlier row of their split has."""
    contradicting: int = 0
    """Those of ``repeated`` with another answer."""
    shared: int = 0
    """Rows whose prompt is in another split too."""
    too_long: int | None = None
    """Rows with a prompt above the limit; None without a limit."""

    @property
    def rows(self) -> int:
        """Rows of all files, those included that no run can use."""
        return sum(rows for _, _, rows in self.files)

    def as_data(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "rows": self.rows,
            "files": [{"file": file, "split": split, "rows": rows} for file, split, rows in self.files],
            "columns": [{"name": each.name, "types": dict(each.types), "empty": each.empty} for each in self.columns.values()],
            "lengths": {name: each.as_data() for name, each in self.lengths.items()},
            "sources": dict(self.sources.most_common()), "messages": dict(sorted(self.turns.items())),
            "unusable": dict(self.reasons), "without_answer": self.without_answer, "with_images": self.with_images,
            "duplicate_prompts": self.repeated, "duplicates_with_another_answer": self.contradicting,
            "prompts_in_two_splits": self.shared, "too_long": self.too_long,
        }  # fmt: skip


def inspected(
    files: Iterable[tuple[DataFile, Names]],
    *,
    tokens: Callable[[Sequence[Mapping[str, str]]], int] | None = None,
    limit: int | None = None,
    seen: Callable[[int], None] = lambda rows: None,
) -> Inspected:
    """Read every row once. Of each row, two digests stay in memory, to find duplicates.

    Args:
        files: files of rows with their columns.
        tokens: counts the tokens of a prompt after the chat template; None counts characters only.
        limit: the longest prompt in tokens, or in characters without ``tokens``.
        seen: called with 1 for every row.

    Raises:
        RunError: a file cannot be read.
        MissingDependency: pyarrow is needed and not installed.
    """
    found = Inspected(too_long=None if limit is None else 0)
    prompts: dict[int, int] = {}
    for file, names in files:
        count = 0
        for placed in rows_of(file.path):
            count += 1
            seen(1)
            row = placed.reason if placed.row is None else row_of(placed.row, names)
            if placed.row is not None:
                _describe(found, placed.row)
            if not isinstance(row, Row):
                found.reasons[row] += 1
                continue
            _measure(found, row, tokens, limit)
            _compare(found, prompts, row, file.split)
        found.files.append((str(file.path), file.split, count))
        found.names.append(names)
    rows = sum(count for _, _, count in found.files)
    for column in found.columns.values():  # rows in which a key is absent
        column.empty += rows - column.empty - sum(column.types.values())
    return found


def _describe(found: Inspected, row: Mapping[str, Any]) -> None:
    for name, value in _flat(row):
        if name not in found.columns:
            if len(found.columns) >= MOST_COLUMNS:
                found.more_columns = True
                continue
            found.columns[name] = Column(name)
        column = found.columns[name]
        if value is None or (isinstance(value, str | list | dict) and not value):
            column.empty += 1
        else:
            column.types[kind_of(value)] += 1


def _flat(row: Mapping[str, Any], before: str = "", depth: int = 2) -> Iterator[tuple[str, Any]]:
    """The columns of a row; a struct is its keys, down to two levels."""
    for key, value in row.items():
        if isinstance(value, Mapping) and value and depth > 0:
            yield from _flat(value, f"{before}{key}.", depth - 1)
        else:
            yield f"{before}{key}", value


def kind_of(value: Any) -> str:
    """The type of a value, in words of JSON; lists say what is in them, messages are named."""
    if isinstance(value, list | tuple):
        first = next((item for item in value if item is not None), None)
        if isinstance(first, Mapping) and "role" in first:
            return "messages"
        return "list" if first is None else f"list of {kind_of(first)}"
    if isinstance(value, Mapping):
        return "object"
    return next((name for types, name in KINDS if isinstance(value, types)), type(value).__name__)


def _measure(
    found: Inspected, row: Row, tokens: Callable[[Sequence[Mapping[str, str]]], int] | None, limit: int | None
) -> None:
    length = sum(len(each["content"]) for each in row.messages)
    found.lengths.setdefault("prompt_characters", Lengths()).counts[length] += 1
    if tokens is not None:
        length = tokens(row.messages)
        found.lengths.setdefault("prompt_tokens", Lengths()).counts[length] += 1
    if limit is not None and length > limit:
        found.too_long = (found.too_long or 0) + 1
    answer = text_of(row.answer)
    if answer.strip():
        found.lengths.setdefault("answer_characters", Lengths()).counts[len(answer)] += 1
    else:
        found.without_answer += 1
    found.turns[len(row.messages)] += 1
    found.with_images += row.images is not None
    found.sources[row.source or row.tag] += 1


def _compare(found: Inspected, prompts: dict[int, int], row: Row, split: str) -> None:
    """Count a prompt that is there already, images included; a number holds split and answer, to save memory."""
    key = _digest([[each["role"], each["content"]] for each in row.messages], row.images)
    new = _digest(text_of(row.answer)) << 8 | _digest(split) & 255
    first = prompts.setdefault(key, new)
    if first is new:
        return
    if (first ^ new) & 255:
        found.shared += 1
    else:
        found.repeated += 1
        found.contradicting += first != new


def _digest(*values: Any) -> int:
    text = json.dumps(values, ensure_ascii=False, default=repr)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
