r"""Reasons: English texts of the code that are shown in the reader's language.

A message of the catalogue has an id. The many reasons in the adapters' tables do without: a reason is its own id, and
``reasons.zh.tsv`` has the Chinese text beside the English one, sorted by the module that says it::

    # rlctl/adapters/roll/batch.py
    ROLL has no {name}	ROLL 没有 {name}

A line break of a text is ``\n`` there. A constant needs nothing more than its line in that file. A text with values is made by
``said``, which remembers what it was made of. Reports and JSON hold the English texts; what shows them to a person calls
``translated``, and ``spoken`` makes a text that is printed immediately. ``recorded.py`` has reasons in files of a run.
``tests/common/test_reasons.py`` finds reasons without a translation, and lines that no reason needs any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from rlctl.common import language
from rlctl.common.messages.singular import of_one
from rlctl.common.messages.spacing import filled, joined

SEPARATORS = {"en": "; ", "zh": "；"}
COMMAS = {"en": ", ", "zh": "，"}
AND = {"en": " and ", "zh": "以及"}


_QUOTED = re.compile(r"'\{(\w+)[^{}]*\}'|\{(\w+)!r[^{}]*\}")
"""Variables in quotes: names that stand as they are in every language."""


_ONLY_VALUES = re.compile(r"(?:\{[^{}]*\}|[^{}A-Za-z])*")
"""A text without words: only its values are translated."""


class Said(str):
    """An English text that remembers what it was made of; everywhere else it is the text itself."""

    template: str = ""
    values: Mapping[str, Any] = {}
    parts: tuple[str, ...] = ()
    """Of several texts in one: each of them; there is no template then."""
    separators: Mapping[str, str] = {}
    """What is between the parts, by language; nothing by default."""

    def __getstate__(self) -> dict[str, Any]:
        """For another process: values that are not plain data are sent as text, because pickle may not load them there."""
        return {**self.__dict__, "values": {name: plain_value(value) for name, value in self.values.items()}}

    def __add__(self, other: str) -> Said:
        return sequence(self, other)

    def __radd__(self, other: str) -> Said:
        return sequence(other, self)


def plain_value(value: Any) -> Any:
    """A value that any process can read: text, a number or a truth value; the text of any other."""
    if isinstance(value, BaseException):
        return reason_of(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def said(template: str, /, **values: Any) -> str:
    """A reason with values, as ``said("ROLL has no {name}", name=key)``; a value may be a reason itself."""
    made = Said(of_one(template, values).format(**values))
    made.template, made.values = template, values
    return made


def spoken(template: str, /, **values: Any) -> str:
    """A text for the reader at once, in the reader's language: of output that nothing else reads."""
    return translated(said(template, **values))


def together(reasons: Iterable[str], separators: Mapping[str, str] = SEPARATORS) -> str:
    """Several reasons in one, each once, without those that are empty; a reason of several counts as these."""
    parts = tuple(dict.fromkeys(part for reason in reasons if reason for part in parts_of(reason, separators)))
    if len(parts) < 2:
        return parts[0] if parts else ""
    return sequence(*parts, separators=separators)


def parts_of(reason: str, separators: Mapping[str, str] = SEPARATORS) -> tuple[str, ...]:
    """The reasons that ``together`` made one of."""
    return reason.parts if isinstance(reason, Said) and reason.parts and reason.separators == separators else (reason,)


def sequence(*parts: str, separators: Mapping[str, str] = {}) -> Said:
    """Texts one after the other, each of which is translated as it is; ``separators`` are between them, by language."""
    made = Said(separators.get("en", "").join(parts))
    made.parts, made.separators = parts, separators
    return made


def lines_of(reasons: Iterable[str], first: str = "") -> str:
    """Reasons one below the other, without those that are empty; ``first`` is a line above them."""
    return sequence(*(reason for reason in (first, *reasons) if reason), separators={"en": "\n", "zh": "\n"})


def reason_of(error: BaseException) -> str:
    """The message of an exception, as ``said`` made it."""
    message = getattr(error, "message", None) or (error.args[0] if len(error.args) == 1 else None)
    return message if isinstance(message, str) else str(error)


def with_values(text: str, change: Callable[[str], str]) -> str:
    """A reason with its values changed, which is still translated; any other text is changed as a whole."""
    if not isinstance(text, Said):
        return change(text)
    if text.parts:
        return sequence(*(with_values(part, change) for part in text.parts), separators=text.separators)
    values = {
        name: with_values(value, change) if isinstance(value, str) else value for name, value in text.values.items()
    }
    return said(text.template, **values)


def translated(text: str, spoken: str = "") -> str:
    """A reason in a language, the reader's by default; as it is if that has no translation."""
    spoken = spoken or language.chosen()
    if spoken == "en":
        return text
    if not isinstance(text, Said):
        return reasons(spoken).get(text, text)
    if text.parts:
        between = text.separators.get(spoken, "")
        parts = (piece for part in text.parts for piece in (between, translated(part, spoken)))
        return joined(islice(parts, 1, None), spoken)
    template = reasons(spoken).get(text.template) or (text.template if _ONLY_VALUES.fullmatch(text.template) else None)
    if template is None:
        return text
    quoted = {name for pair in _QUOTED.findall(text.template) for name in pair if name}
    values = {name: value if name in quoted else _shown(value, spoken) for name, value in text.values.items()}
    return filled(template, values, spoken)


def _shown(value: Any, spoken: str) -> Any:
    if isinstance(value, BaseException):
        value = reason_of(value)
    elif not isinstance(value, (str, int, float)):
        value = str(value) if isinstance(str(value), Said) else value
    return translated(value, spoken) if isinstance(value, str) else value


@cache
def reasons(spoken: str) -> Mapping[str, str]:
    """The reasons of a language by the English text."""
    file = Path(__file__).with_name(f"reasons.{spoken}.tsv")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return dict(line.replace(r"\n", "\n").split("\t") for line in lines if line and not line.startswith("# "))
