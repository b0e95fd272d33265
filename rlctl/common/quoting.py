"""Words and comments of a shell, for everything that rlctl writes or prints and a shell reads.

``tests/common/test_quoting.py`` finds any other way of quoting. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlctl.common.terminal import UNSEEN, UNSEEN_IN_LINE

_PLAIN = re.compile(r"(?!=)[\w@%+:,./^=-]+", re.ASCII)
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\x27"}
_NO_TEXT = re.compile(r"[\ud800-\udfff]")
_QUOTED = re.compile(rf"[\\']|{UNSEEN_IN_LINE.pattern}|{_NO_TEXT.pattern}")


def word(content: object, *, lines: bool = False) -> str:
    """A text as one word of bash that means exactly it. Every character of it can be seen, and no shell runs a part of it.

    Args:
        content: a text, or the path of a file.
        lines: whether the word may have line ends and tabs in it.
    """
    text = str(content)
    if _PLAIN.fullmatch(text):
        return text
    if (UNSEEN if lines else UNSEEN_IN_LINE).search(text) or _NO_TEXT.search(text) or ("'" in text and "!" in text):
        return "$'" + _QUOTED.sub(_escape, text) + "'"
    key, equals, value = text.partition("=")
    if equals and _PLAIN.fullmatch(key) and "'" not in value:
        return f"{key}='{value}'"
    return f"'{text}'" if "'" not in text else f'"{in_double(text)}"'


def command(words: Iterable[object]) -> str:
    """Words as a command that can be pasted."""
    return " ".join(word(each) for each in words)


def in_double(text: str) -> str:
    r"""A text as it stands between double quotes, which leave ``$`` with a meaning; ``!`` has one in a terminal alone."""
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _NAMED:
        return _NAMED[character]
    half = "\udc80" <= character <= "\udcff"  # a byte of a file's name that is no text
    data = character.encode("utf-8", "surrogateescape" if half else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)
