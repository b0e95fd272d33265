"""Patterns of the shell, ``*.sh`` and ``[[ x =~ ^a ]]``, as regular expressions of Python; and what ``${x#...}`` cuts by them."""

from __future__ import annotations

import re

_MAX_MATCH = 10**8
_SPECIAL = re.compile(r"[\\*?\[\](){}.^$+|!@&-]")
_EXTENDED = re.compile(r"(?<!\\)[@*+?!]\(")
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
    "word": r"\w",
    "print": " -~",
    "graph": "!-~",
    "cntrl": r"\x00-\x1f\x7f",
}


def escaped(text: str) -> str:
    """A text in quotes as a pattern or a regular expression that matches it alone."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def is_extended(glob: str) -> bool:
    """Whether a pattern has a group such as ``@(a|b)``, which is not read here."""
    return _EXTENDED.search(glob) is not None


def is_costly(text: str, glob: str) -> bool:
    """Whether matching a text with a pattern could take long: each ``*`` may begin and end anywhere."""
    cost: int = (len(text) + 1) ** (glob.count("*") + 1)
    return cost > _MAX_MATCH


def as_regex(glob: str, *, greedy: bool = True) -> str:
    """A shell pattern as a regular expression."""
    found = ""
    position = 0
    while position < len(glob):
        character = glob[position]
        if character == "*":
            found += ".*" if greedy else ".*?"
        elif character == "?":
            found += "."
        elif character == "[" and (bracket := _bracket(glob, position, escapes=True)) is not None:
            part, position = bracket
            found += part
            continue
        elif character == "\\" and position + 1 < len(glob):
            position += 1
            found += re.escape(glob[position])
        else:
            found += re.escape(character)
        position += 1
    return found


def from_extended(source: str) -> str | None:
    """A regular expression of ``[[ =~ ]]`` (POSIX extended) as Python's; None if it has what Python reads otherwise."""
    found = ""
    position = 0
    while position < len(source):
        character = source[position]
        if character == "[":
            bracket = _bracket(source, position, escapes=False)
            if bracket is None:
                return None
            part, position = bracket
            found += part
            continue
        if character == "\\":
            following = source[position + 1 : position + 2]
            if not following or following.isalnum() or following in "<>`'":
                return None
            found += re.escape(following)
            position += 2
            continue
        if source.startswith(("(?", "*?", "+?", "??", "}?", "*+", "++", "?+"), position):
            return None
        found += character
        position += 1
    return found


def _bracket(source: str, start: int, *, escapes: bool) -> tuple[str, int] | None:
    """``[...]`` at a place as a set of Python's, and where it ends; None if it is none."""
    position = start + 1
    negated = source[position : position + 1] in ("!", "^") if escapes else source.startswith("^", position)
    position += negated
    inside = ""
    while position < len(source):
        character = source[position]
        if character == "]" and inside:
            return f"[{'^' * negated}{inside}]", position + 1
        if source.startswith("[:", position) and (end := source.find(":]", position)) > 0:
            name = source[position + 2 : end]
            if name not in _CLASSES:
                return None
            inside += _CLASSES[name]
            position = end + 2
            continue
        if character == "\\" and escapes and position + 1 < len(source):
            position += 1
            inside += re.escape(source[position])
        else:
            inside += character if character == "-" or character.isalnum() else re.escape(character)
        position += 1
    return None


def cut(text: str, sign: str, glob: str, by: str) -> str:
    """A text without, or with a replacement for, what matches a pattern at its start, its end or anywhere."""
    longest = sign in ("##", "%%") or sign[0] == "/"
    pattern = as_regex(glob, greedy=longest)
    if sign in ("#", "##", "/#"):
        return re.sub(rf"\A(?:{pattern})", lambda _: by, text, count=1, flags=re.DOTALL)
    if sign in ("%", "%%", "/%"):
        starts = range(len(text) + 1) if sign != "%" else range(len(text), -1, -1)
        whole = re.compile(as_regex(glob), re.DOTALL)
        return next((text[:start] + by for start in starts if whole.fullmatch(text, start)), text)
    if not glob:
        return text
    return re.sub(
        pattern, lambda match: by if match[0] or not text else "", text, count=int(sign == "/"), flags=re.DOTALL
    )
