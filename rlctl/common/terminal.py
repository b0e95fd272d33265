"""Invisible characters, and text without them that is safe to write to a terminal.

What a file or a process says must not move the cursor, set titles, or hide or reorder text. Standard library only.
"""

from __future__ import annotations

import re

_STYLE = re.compile(r"\x1b\[[0-9;:]*m")
_UNSEEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad"
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks of direction, with which a terminal may reorder a line
    r"\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U000e0000-\U000e0fff"
)
_JOINERS = r"(?<![^\x00-\x7f])[\u200c\u200d]"
"""Characters that shape the letters of some languages, and join emoji; after an ASCII character they have no effect."""
UNSEEN = re.compile(rf"[{_UNSEEN}]|{_JOINERS}")
"""A control character other than a line end or a tab, or another one that shows nothing."""
UNSEEN_IN_LINE = re.compile(rf"[\t\n{_UNSEEN}]|{_JOINERS}")
"""The same, and what ends or widens a line."""


def safe(text: str) -> str:
    """Text with pictures instead of characters that show nothing, other than line ends and tabs; without a terminal's colors."""
    return UNSEEN.sub(_picture, _STYLE.sub("", text)) if UNSEEN.search(text) else text


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 32 else "\u2421" if code == 0x7F else "\ufffd"


def without_controls(text: str) -> str:
    """Text without characters that show nothing, for where the place of every character has been worked out: they had none."""
    return UNSEEN.sub("", text) if UNSEEN.search(text) else text


def escaped(json: str) -> str:
    """JSON text with escapes instead of characters that show nothing, and of halves of pairs: the same values."""
    return _ESCAPED.sub(_escape, json) if _ESCAPED.search(json) else json


_ESCAPED = re.compile(rf"{UNSEEN.pattern}|[\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    data = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[place : place + 2].hex()}" for place in range(0, len(data), 2))
