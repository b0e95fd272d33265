"""What rlctl says, by id: ``checks.en.ftl`` holds the English texts of an area, ``checks.zh.ftl`` beside it the Chinese ones.

The files are in the syntax of Project Fluent (https://projectfluent.org), the part that ``patterns`` reads. A message may have
attributes::

    mini-batch-too-large = a mini-batch has { $mini } responses, but a step has only { $step }
        .hint = { $first } or less
        .about = The mini-batch is larger than a whole step.

``.option`` says on a command line when to give the option that resolves a finding, instead of "pass OPTION".

To add one: the message in both files, each text on one line; ``text("mini-batch-too-large", mini=512, step="256 responses")``.
``tests/common/test_messages.py`` finds ids that one language lacks, variables that differ, and messages that nothing uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rlctl.common import language
from rlctl.common.messages.patterns import Pattern, Variable, formatted, parsed
from rlctl.common.messages.reasons import translated
from rlctl.common.messages.singular import after_one, is_one

ENTRY = re.compile(r"^(?=[a-zA-Z][\w-]* =)", re.MULTILINE)
"""Where a message of a file begins."""


def text(name: str, /, **values: Any) -> str:
    """A message in the chosen language; ``name`` is its id, or ``id.attribute``.

    Raises:
        KeyError: no message or attribute has this name.
        ValueError: a variable of the message has no value.
    """
    return in_language(language.chosen(), name, **values)


def optional(name: str, /, **values: Any) -> str:
    """A message in the chosen language; empty if there is none of this name."""
    return text(name, **values) if has(name) else ""


def code_of(id_: str) -> str:
    """The code of a finding: what variants of one message, as ``no-data`` and ``no-data_path``, have in common."""
    return id_.partition("_")[0]


def has(name: str) -> bool:
    """Whether there is a message, or an attribute of one, of this name."""
    id_, _, attribute = name.partition(".")
    if id_ not in catalogue("en"):
        return False
    return not attribute or re.search(rf"^ +\.{re.escape(attribute)} =", catalogue("en")[id_], re.MULTILINE) is not None


def in_language(chosen: str, name: str, /, **values: Any) -> str:
    """A message in a language, in English if that has no translation."""
    id_, _, attribute = name.partition(".")
    spoken = chosen if id_ in catalogue(chosen) else "en"
    shown = {key: _shown(value, spoken) for key, value in values.items()}
    pattern = _message(spoken, id_)[attribute]
    try:
        return formatted(_of_one(pattern, values) if spoken == "en" else pattern, shown, spoken)
    except ValueError as error:
        raise ValueError(f"message {name}: {error}") from error


def _of_one(pattern: Pattern, values: Mapping[str, Any]) -> Pattern:
    """A text with its nouns in the singular after values that are 1."""
    before = ("", *pattern)
    return tuple(
        after_one(part)
        if isinstance(part, str) and isinstance(count, Variable) and is_one(values.get(count.name))
        else part
        for count, part in zip(before, pattern, strict=False)
    )


@cache
def catalogue(chosen: str) -> Mapping[str, str]:
    """The messages of a language by their ids, as the files write them."""
    return dict(_entries(chosen))


def _entries(chosen: str) -> Iterator[tuple[str, str]]:
    for file in sorted(Path(__file__).parent.glob(f"*.{chosen}.ftl")):
        for entry in ENTRY.split(file.read_text(encoding="utf-8"))[1:]:
            yield entry.partition(" =")[0], entry


@cache
def _message(chosen: str, id_: str) -> Mapping[str, Pattern]:
    """A message parsed: a command says a few of several hundred, and parsing all of them takes longer than the command."""
    return parsed(catalogue(chosen)[id_])


def _shown(value: Any, spoken: str) -> int | str:
    """Counts choose plurals; the rest is text, or a reason."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return translated(value if isinstance(value, str) else str(value), spoken)
