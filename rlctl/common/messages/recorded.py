"""Reasons in the JSON of a run folder: beside each English text what it was made of, for readers in another language.

    {"kind": "advisory", "message": "step 3 is skipped",
     "said": {"message": {"template": "step {step} is skipped", "values": {"step": 3}}}}

Programs read the English text and need not know ``said``. A folder may be damaged or come from anyone: what was not made of a
template of the catalogue, or does not say what the text says, stays the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlctl.common import language
from rlctl.common.messages.reasons import Said, plain_value, reasons, said, sequence, translated

SAID = "said"
_ONLY_NAMES = re.compile(r"(?:\{\w+\}|[^{}A-Za-z])*")
"""A template without words, such as ``{worker}: {error}``, and without formats that could make a text of any size."""


def with_templates(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record to be written, with what its texts were made of."""
    told = {name: _of(value) for name, value in record.items()}
    made = {name: data for name, data in told.items() if data is not None}
    return {**record, SAID: made} if made else dict(record)


def with_reasons(record: dict[str, Any]) -> dict[str, Any]:
    """A record that was read, with texts that can be translated; an event, or anything else that ``with_templates`` made."""
    told = record.pop(SAID, None)
    for name, data in told.items() if isinstance(told, dict) else ():
        record[name] = _restored(data, record.get(name))
    return record


def text_in(record: Mapping[str, Any], name: str, spoken: str = "") -> str:
    """A text of a record in a language, the reader's by default; empty if the record has none."""
    value = record.get(name) or ""
    return translated(value if isinstance(value, str) else str(value), spoken)


def _of(value: Any) -> Any:
    """A text or a list of texts as JSON has it; None if it was made of nothing."""
    if isinstance(value, list | tuple):
        return [_of(item) for item in value] if any(isinstance(item, Said) for item in value) else None
    if not isinstance(value, Said):
        return None
    if value.parts:
        return {"parts": [_of(part) or part for part in value.parts], "separators": dict(value.separators)}
    return {
        "template": value.template,
        "values": {name: _of(each) or plain_value(each) for name, each in value.values.items()},
    }


def _restored(data: Any, text: Any) -> Any:
    if isinstance(data, list) and isinstance(text, list) and len(data) == len(text):
        return [_restored(each, one) for each, one in zip(data, text, strict=True)]
    try:
        made = _made(data)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return text
    return made if made == text else text


def _made(data: Any) -> Any:
    """The reason that data is of.

    Raises:
        ValueError: the catalogue does not have its template.
    """
    if not isinstance(data, dict):
        return data
    if "parts" in data:
        parts = [made if isinstance(made := _made(part), Said) else str(made) for part in data["parts"]]
        return sequence(*parts, separators={str(name): str(text) for name, text in data["separators"].items()})
    template = data["template"]
    if not _ONLY_NAMES.fullmatch(template) and not any(template in reasons(each) for each in language.LANGUAGES):
        raise ValueError(template)
    return said(template, **{name: _made(value) for name, value in data["values"].items()})
