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


def plural(count: int, one: str, many: str) -> str:
    """A text about a number of things: ``one`` for one thing, else ``many``, in which ``{count}`` is the number."""
    return say(one if count == 1 else many).format(count=count)


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


def told_apart(one: str, other: str, cells: int) -> tuple[str, str]:
    """Two texts that differ, each at most so wide: what they share is left out first, so that the difference is in sight."""
    if max(cell_len(one), cell_len(other)) <= cells:
        return one, other
    start = _alike(one, other)
    end = _alike(one[start:][::-1], other[start:][::-1])
    return _around(one, start, end, cells), _around(other, start, end, cells)


def _alike(one: str, other: str) -> int:
    """How many characters two texts share from their beginning."""
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def _around(text: str, start: int, end: int, cells: int) -> str:
    """The middle of a text, between its first ``start`` and its last ``end`` characters, and what has room around it."""
    before, middle, after = text[:start], text[start : len(text) - end], text[len(text) - end :]
    room = cells - cell_len(middle)
    if room < 2:
        return shortened(f"{'…' if before else ''}{middle}{'…' if after else ''}", cells)
    if cell_len(before) > (most := max(1, room // 2, room - cell_len(after))):
        while cell_len(before) > most - 1:
            before = before[1:]
        before = f"…{before}"
    if cell_len(after) > (most := room - cell_len(before)):
        while after and cell_len(after) > most - 1:
            after = after[:-1]
        after = f"{after}…"
    return f"{before}{middle}{after}"


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
