"""Key paths: how one place in a tree of settings is named, as a tuple and as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlctl.common.messages.reasons import said

KeyPath = tuple[str | int, ...]

PLAIN = frozenset({type(None), bool, int, float, str})
"""Types of values that hold no other values."""
_SPECIAL = re.compile(r'([.\[\]\\"])')
_PART = re.compile(r'\[(?P<index>-?\d{1,18})\]|(?P<dot>\.)?(?:(?P<empty>"")|(?P<key>(?:[^.\[\]\\"]|\\.)+))', re.DOTALL)


def dotted(path: KeyPath) -> str:
    r"""Return ``path`` as text: ``("a", "b", 0, "c.d")`` is ``a.b[0].c\.d``; integers stand in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():  # nearly all of them: nothing to escape
            text = f"{text}.{part}" if text else part
        else:
            text += ("." if text else "") + (_SPECIAL.sub(r"\\\1", part) if part else '""')
    return text


def parse_dotted(text: str) -> KeyPath:
    """Return the path that ``dotted`` writes as ``text``.

    Raises:
        ValueError: ``text`` is no key path; the message says from where on.
    """
    path: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or (match["index"] is None and bool(match["dot"]) != bool(path)):
            raise ValueError(
                said("{text!r} is not a key path from {rest!r} on; write a.b[0].c", text=text, rest=text[position:])
            )
        if match["index"] is not None:
            path.append(int(match["index"]))
        else:
            path.append("" if match["empty"] else re.sub(r"\\(.)", r"\1", match["key"], flags=re.DOTALL))
        position = match.end()
    return tuple(path)


def merged(base: Any, over: Any) -> Any:
    """Return a new tree in which mappings are merged key by key and anything else of ``over`` wins."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        result = {key: copied(value) for key, value in base.items() if key not in over}
        both = {key: merged(base[key], value) if key in base else copied(value) for key, value in over.items()}
        return result | both
    return copied(over)


def copied(value: Any) -> Any:
    """Return a copy of a tree of plain values that shares no mapping or list with it."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copied(item) for item in value]
    return value
