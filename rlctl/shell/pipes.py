"""What programs print that only change or count text, and what those print that only say where a script runs.

Nothing is run: ``echo 0,1,2 | tr , '\\n' | wc -l`` is worked out, and the address of a machine is assumed, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_PLACES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"hostname (?:-[iI]|--ip-address|--all-ip-addresses)"
            r"(?: ?\| ?(?:awk ['\"]\{ ?print \\?\$1;? ?\}['\"]|cut -d ?' ' -f ?1|head -n ?1|xargs))*"
        ),
        "127.0.0.1",
    ),
    (re.compile(r"mktemp(?: -p /tmp| -t)?"), "/tmp/tmp.XXXXXXXXXX"),
)
"""Commands that print an address or a temporary file of the machine, and what is taken for it."""
_DRAWN = re.compile(r"shuf -i (\d{1,9})-\d{1,9} -n ?1|shuf -n ?1 -i (\d{1,9})-\d{1,9}")
"""A number that is drawn, as a port is; the lowest is taken."""
_ESCAPES = {"\\n": "\n", "\\t": "\t", " ": " "}
_FIELD = re.compile(r"\{ ?print \$(NF|[1-9]\d?);? ?\}")
_COUNT = re.compile(r"\{ ?print NF;? ?\}")


def of_the_machine(command: str) -> str | None:
    """The text assumed as the output of a command that names the machine, such as ``hostname``; None for other commands."""
    drawn = _DRAWN.fullmatch(command)
    found = next((text for pattern, text in _PLACES if pattern.fullmatch(command)), None)
    return drawn[1] or drawn[2] if drawn else found


def filtered(text: str, words: Sequence[str]) -> str | None:
    """The output of a filter, text and output both without the last line end; None for a filter that is not evaluated."""
    found = _FILTERS.get(words[0]) if words else None
    return None if found is None else found(text, list(words[1:]))


def _tr(text: str, words: list[str]) -> str | None:
    if words[:1] == ["-d"] and len(words) == 2:
        removed = _ESCAPES.get(words[1], words[1])
        return text.replace(removed, "") if len(removed) == 1 and removed != "\n" else None
    if len(words) != 2:
        return None
    old, new = (_ESCAPES.get(word, word) for word in words)
    return text.replace(old, new) if len(old) == len(new) == 1 and old != "\n" else None


def _wc(text: str, words: list[str]) -> str | None:
    if words == ["-l"]:
        return str(len(text.split("\n")))
    return str(len(text.split())) if words == ["-w"] else None


def _awk(text: str, words: list[str]) -> str | None:
    separator = ""
    if words[:1] == ["-F"]:
        words = [words[0] + words[1], *words[2:]] if len(words) > 1 else words
    if words and words[0].startswith("-F"):
        separator, words = words[0][2:], words[1:]
    if len(words) != 1 or len(separator) > 1 or "\n" in text:
        return None
    fields = text.split(separator) if separator.strip() else text.split()
    if _COUNT.fullmatch(words[0]):
        return str(len(fields))
    match = _FIELD.fullmatch(words[0])
    if match is None:
        return None
    place = len(fields) if match[1] == "NF" else int(match[1])
    return fields[place - 1] if 1 <= place <= len(fields) else ""


def _cut(text: str, words: list[str]) -> str | None:
    match = re.fullmatch(r"-d ?(.) -f ?([1-9]\d?)", " ".join(words))
    if match is None or "\n" in text:
        return None
    fields = text.split(match[1])
    return fields[int(match[2]) - 1] if int(match[2]) <= len(fields) else text if len(fields) == 1 else ""


def _head(text: str, words: list[str]) -> str | None:
    return text.split("\n")[0] if words in (["-1"], ["-n", "1"], ["-n1"]) else None


def _tail(text: str, words: list[str]) -> str | None:
    return text.split("\n")[-1] if words in (["-1"], ["-n", "1"], ["-n1"]) else None


def _xargs(text: str, words: list[str]) -> str | None:
    return " ".join(text.split()) if not words and not set("'\"\\") & set(text) else None


_FILTERS: dict[str, Callable[[str, list[str]], str | None]] = {
    "awk": _awk,
    "cut": _cut,
    "head": _head,
    "tail": _tail,
    "tr": _tr,
    "wc": _wc,
    "xargs": _xargs,
}


def expression(words: Sequence[str]) -> str | None:
    """The output of ``expr`` for two integers; None if it is not evaluated."""
    if len(words) != 3 or not all(re.fullmatch(r"-?\d{1,15}", words[place]) for place in (0, 2)):
        return None
    left, right = int(words[0]), int(words[2])
    if words[1] in ("+", "-", "*"):
        return str({"+": left + right, "-": left - right, "*": left * right}[words[1]])
    if words[1] not in ("/", "%") or not right:
        return None
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return str(quotient if words[1] == "/" else left - quotient * right)
