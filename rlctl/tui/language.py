"""The language of the app's own texts: `say` gives one in English or Chinese."""

from __future__ import annotations

import re

from rich.cells import cell_len

from rlctl.common.language import chosen
from rlctl.common.messages.reasons import translated

LANGUAGE = chosen()
"""Read once, as the app's key bindings are made when its screens are imported."""


def say(text: str) -> str:
    """The text in the app's language; values are filled in after: `say("step {step}").format(step=3)`."""
    if LANGUAGE == "zh":
        from rlctl.tui.zh import ZH

        return ZH.get(text) or translated(text, "zh")
    return text


def shortened(text: str, cells: int) -> str:
    """The text without its middle where it is wider than that."""
    if cell_len(text) <= cells:
        return text
    room = max(cells, 3)
    head, tail = text[:room], text[-room:]
    while cell_len(head) + cell_len(tail) + 1 > room:
        if cell_len(head) >= cell_len(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head}…{tail}"


def padded(text: str, cells: int) -> str:
    """The text with spaces after it, up to a width: a Chinese character takes two cells."""
    return text + " " * (cells - cell_len(text))


_OPEN, _CLOSE = "（《「『【〈“‘", "，。；：？！、）》」』】〉”’…％"
_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
WORD = re.compile(
    rf"\s*(?:[{_OPEN}]*(?:[^\s{_WIDE}{_OPEN}{_CLOSE}]+|(?![{_OPEN}{_CLOSE}])[{_WIDE}])[{_CLOSE}]*|[{_OPEN}{_CLOSE}]+)\s*"
)
"""What a line is not broken within: a Chinese character with the punctuation that belongs to it, or a word between them.

Rich breaks at spaces only, which leaves lines of Chinese half empty."""
