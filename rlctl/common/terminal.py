"""Text that is safe to write to a terminal: what a file or a process says must not move the cursor, set titles or hide text."""

from __future__ import annotations

import re

_STYLE = re.compile(r"\x1b\[[0-9;:]*m")
_TURNS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
"""Marks of direction, with which a terminal may show the rest of a line in another order."""
_SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_SHOWN |= dict.fromkeys((*range(0x80, 0xA0), *_TURNS), 0xFFFD)
_CONTROL = re.compile("[" + "".join(map(re.escape, map(chr, _SHOWN))) + "]")


def safe(text: str) -> str:
    """Text with control characters, other than line ends and tabs, replaced by pictures; colors of a terminal are left out."""
    return _STYLE.sub("", text).translate(_SHOWN) if _CONTROL.search(text) else text


def without_controls(text: str) -> str:
    """Text without control characters, for where the place of every character has been worked out: they had none."""
    return _CONTROL.sub("", text) if _CONTROL.search(text) else text
