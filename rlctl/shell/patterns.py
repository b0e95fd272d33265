"""Patterns of the shell, ``*.sh`` and ``[[ x =~ ^a ]]``, as regular expressions of Python; and what ``${x#...}`` cuts by
them."""

from __future__ import annotations

import re

_MAX_MATCH = 10**8
_SPECIAL = re.compile(r"[\\*?\[\](){}.^$+|!@&-]")
_GROUP = re.compile(r"(?<!\\)([@*+?!])\(")
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


def is_unread(glob: str) -> bool:
    """Whether a pattern has a group that is not read: ``!(a)``, or one that may repeat others or ``*``."""
    for match in _GROUP.finditer(glob):
        inside = glob[match.end() : _group_end(glob, match.end())]
        if match[1] == "!" or (match[1] in "*+" and re.search(r"[*(]", inside)):
            return True
    return False


def _group_end(glob: str, position: int) -> int:
    """The end of the group whose inside begins at a position."""
    depth = 1
    while position < len(glob):
        position += glob[position] == "\\"
        depth += {"(": 1, ")": -1}.get(glob[position : position + 1], 0)
        if not depth:
            return position
        position += 1
    return len(glob)


def is_costly(text: str, glob: str) -> bool:
    """Whether matching a text with a pattern could take long: each ``*`` may begin and end anywhere."""
    cost: int = (len(text) + 1) ** (glob.count("*") + 1)
    return cost > _MAX_MATCH


def as_regex(glob: str, *, greedy: bool = True, groups: bool = False) -> str:
    """A shell pattern as a regular expression; with ``groups``, one that may have groups such as ``@(a|b)``."""
    found = ""
    position = 0
    while position < len(glob):
        character = glob[position]
        if groups and (group := _GROUP.match(glob, position)) is not None:
            position = _group_end(glob, group.end())
            inside = "|".join(as_regex(each, groups=True) for each in _alternatives(glob[group.end() : position]))
            found += f"(?:{inside}){group[1].replace('@', '')}"
        elif character == "*":
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


def _alternatives(inside: str) -> list[str]:
    """The alternatives of a group: its parts between ``|``; nested groups stay whole."""
    found, start, position = [], 0, 0
    while position < len(inside):
        if inside[position] == "|":
            found.append(inside[start:position])
            start = position + 1
        elif (group := _GROUP.match(inside, position)) is not None:
            position = _group_end(inside, group.end())
        position += 1 + (inside[position : position + 1] == "\\")
    return [*found, inside[start:]]


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
    first, items = position, list[str]()
    while position < len(source):
        if source[position] == "]" and position > first:
            inside = "".join(items)
            return f"[{'^' * negated}{inside}]" if inside else "." if negated else "(?!)", position + 1
        if source.startswith("[:", position) and (end := source.find(":]", position)) > 0:
            if (name := source[position + 2 : end]) not in _CLASSES:
                return None
            items.append(_CLASSES[name])
            position = end + 2
            continue
        if source.startswith(("[.", "[="), position):
            return None
        low, position = _in_brackets(source, position, escapes=escapes)
        if source[position : position + 1] != "-" or source[position + 1 : position + 2] in ("", "]"):
            items.append(re.escape(low))
            continue
        high, position = _in_brackets(source, position + 1, escapes=escapes)
        if low <= high:
            items.append(f"{re.escape(low)}-{re.escape(high)}")
        elif not escapes:
            return None
    return None


def _in_brackets(source: str, position: int, *, escapes: bool) -> tuple[str, int]:
    """The character at a place in ``[...]``, and where the next one is."""
    position += escapes and source[position] == "\\" and position + 1 < len(source)
    return source[position], position + 1


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
