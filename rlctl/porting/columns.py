"""The columns that each framework reads, and a row written in them.

Each layout keeps the row of the source as JSON text in ``source_row``, so that a reward reads every value with its own type:
columns of Parquet would give all rows the same keys, and readers of JSON turn texts that look like dates into dates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rlctl.common.records import record
from rlctl.porting.rows import CARRIED, Row, text_of

TEXT, NUMBER = "string", "int64"
MESSAGES = {"role": TEXT, "content": TEXT}


@record
class Layout:
    """The columns of a framework."""

    name: str
    columns: Mapping[str, Any]
    """By column its type: a name, a mapping for a struct, a list of one for a list."""
    write: Callable[[Row, int, str, str], dict[str, Any]]
    """A row, its number, its split and the row of the source as JSON, to columns."""
    prompt: str
    """The column with the prompt."""
    answer: str
    images: bool
    """Whether the layout has a column of images."""


def _verl(row: Row, number: int, split: str, raw: str) -> dict[str, Any]:
    return {
        "data_source": row.source or row.tag,
        "prompt": list(row.messages),
        "reward_model": {"style": "rule", "ground_truth": text_of(row.answer)},
        "extra_info": {"index": number, "split": split, CARRIED: raw},
    }


def _trinity(row: Row, number: int, split: str, raw: str) -> dict[str, Any]:
    return {
        "prompt": next(each["content"] for each in reversed(row.messages) if each["role"] != "system")
        if any(each["role"] != "system" for each in row.messages)
        else row.messages[-1]["content"],
        "ground_truth": text_of(row.answer),
        "messages": list(row.messages),
        "data_source": row.source or row.tag,
        CARRIED: raw,
    }


def _roll(row: Row, number: int, split: str, raw: str) -> dict[str, Any]:
    return {
        "id": str(number),
        "messages": list(row.messages),
        "ground_truth": text_of(row.answer),
        "tag": row.tag or row.source,
        CARRIED: raw,
    }


_VERL = {
    "data_source": TEXT,
    "prompt": [MESSAGES],
    "reward_model": {"style": TEXT, "ground_truth": TEXT},
    "extra_info": {"index": NUMBER, "split": TEXT, CARRIED: TEXT},
}
LAYOUTS = {
    "verl": Layout("verl", _VERL, _verl, "prompt", "reward_model.ground_truth", images=True),
    "trinity": Layout(
        "trinity",
        {"prompt": TEXT, "ground_truth": TEXT, "messages": [MESSAGES], "data_source": TEXT, CARRIED: TEXT},
        _trinity,
        "prompt",
        "ground_truth",
        images=True,
    ),
    "roll": Layout(
        "roll",
        {"id": TEXT, "messages": [MESSAGES], "ground_truth": TEXT, "tag": TEXT, CARRIED: TEXT},
        _roll,
        "messages",
        "ground_truth",
        images=False,
    ),
    "rlctl": Layout("rlctl", _VERL, _verl, "prompt", "reward_model.ground_truth", images=True),
}


def raw_text(row: Mapping[str, Any], without: tuple[str, ...]) -> tuple[str, set[str], set[str]]:
    """A row as JSON text.

    Args:
        row: the row of the source.
        without: columns that are written elsewhere as they are.

    Returns:
        The text; the columns of bytes, which JSON has not and are left out; and those with a value of another type that JSON
        has not, such as a date, which is written as text.
    """
    binary, changed, kept = set(), set(), {}
    for name, value in row.items():
        if name in without:
            continue
        try:
            kept[name] = json.loads(json.dumps(value, ensure_ascii=False))
        except TypeError:
            if _has_bytes(value):
                binary.add(name)
            else:
                changed.add(name)
                kept[name] = value
    return json.dumps(kept, ensure_ascii=False, default=str), binary, changed


def _has_bytes(value: Any) -> bool:
    if isinstance(value, bytes | bytearray | memoryview):
        return True
    if isinstance(value, Mapping):
        return any(map(_has_bytes, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_bytes, value))
