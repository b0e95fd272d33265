"""Texts of messages in the part of Project Fluent's syntax that the catalogue uses: variables, quoted text, and a choice.

    { $count ->
        [one] one row
       *[other] { $count } rows
    } of { "{" }

A choice is by a number, or its plural in English, or by text. Fluent's own library is not used at run time: importing it takes a
fifth of a short command. The tests format every message with both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlctl.common.messages.spacing import joined
from rlctl.common.records import record

Values = Mapping[str, "int | str"]
Pattern = tuple["str | Variable | Choice", ...]
ATTRIBUTE = re.compile(r"\n +\.(?=[a-zA-Z][\w-]* =)")
SPACE = re.compile(r"\s*")
TEXT = re.compile(r"[^{}\n]+")
VARIABLE = re.compile(r"\$([a-zA-Z][\w-]*)\s*(->)?")
QUOTED = re.compile(r'"((?:[^"\\\n]|\\["\\])*)"')
VARIANT = re.compile(r"\s*(\*?)\[\s*([\w-]+)\s*\] *")


@record
class Variable:
    """A value."""

    name: str


@record
class Choice:
    """A pattern that is chosen by the value of a parameter."""

    name: str
    variants: Mapping[str, Pattern]
    otherwise: str


def parsed(entry: str) -> dict[str, Pattern]:
    """The texts of a message: its own under "", the others by their attribute.

    Raises:
        ValueError: the syntax is not in the part that is used.
    """
    lines = "\n".join(line for line in entry.splitlines() if not line.startswith("#"))
    found = {}
    for number, part in enumerate(ATTRIBUTE.split(lines)):
        name, _, text = part.partition("=")
        if text := text.strip():
            pattern, end = _pattern(text, 0)
            if end < len(text):
                raise ValueError(f"unexpected text at {text[end : end + 20]!r} in message {name.strip()}")
            found[name.strip() if number else ""] = pattern
    return found


def _pattern(text: str, at: int) -> tuple[Pattern, int]:
    """The parts from a place to the end of its line, and where that is."""
    parts: list[str | Variable | Choice] = []
    while at < len(text) and text[at] != "\n":
        if text[at] == "{":
            part, at = _placeable(text, at + 1)
            parts.append(part)
        elif plain := TEXT.match(text, at):
            parts.append(plain[0])
            at = plain.end()
        else:
            break
    return tuple(parts), at


def _placeable(text: str, at: int) -> tuple[str | Variable | Choice, int]:
    at = _skipped(text, at)
    part: str | Variable | Choice
    if quoted := QUOTED.match(text, at):
        part, at = re.sub(r"\\(.)", r"\1", quoted[1]), quoted.end()
    elif variable := VARIABLE.match(text, at):
        part, at = Variable(variable[1]), variable.end()
        if variable[2]:
            part, at = _choice(variable[1], text, at)
    else:
        raise ValueError(f"unexpected text at {text[at : at + 20]!r}")
    at = _skipped(text, at)
    if text[at : at + 1] != "}":
        raise ValueError(f"expected }} at {text[at : at + 20]!r}")
    return part, at + 1


def _choice(name: str, text: str, at: int) -> tuple[Choice, int]:
    variants: dict[str, Pattern] = {}
    otherwise = ""
    while variant := VARIANT.match(text, at):
        variants[variant[2]], at = _pattern(text, variant.end())
        if variant[1]:
            otherwise = variant[2]
    if otherwise not in variants:
        raise ValueError(f"the choice by ${name} has no variant with a star")
    return Choice(name, variants, otherwise), at


def _skipped(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


def formatted(pattern: Pattern, values: Values, language: str) -> str:
    """A text with its values.

    Raises:
        ValueError: a variable has no value.
    """
    return joined((part if isinstance(part, str) else _shown(part, values, language) for part in pattern), language)


def _shown(part: Variable | Choice, values: Values, language: str) -> str:
    if part.name not in values:
        raise ValueError(f"${part.name} has no value")
    value = values[part.name]
    if isinstance(part, Variable):
        return str(value)
    if isinstance(value, int):  # 0 is the number, not the text
        plural = "one" if value == 1 and language == "en" else part.otherwise
        chosen = str(value) if str(value) in part.variants else plural
    else:
        chosen = part.otherwise if value.isdecimal() else value
    return formatted(part.variants.get(chosen, part.variants[part.otherwise]), values, language)
