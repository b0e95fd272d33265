"""What format a file has, told by its first lines, as for a list of many files; opening one looks closer."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from rlctl.adapters import SIGNS, dialect, signed

HEAD = 64 << 10
"""Bytes of a file that are looked at."""
SCRIPTS = (".sh", ".bash")
_TOP = re.compile(r"^([A-Za-z_]\w*) *:", re.MULTILINE)
_JSON_KEY = re.compile(r'"([A-Za-z_]\w*)" *:')
_WORD = re.compile(r"[\w./*-]+")


def format_of(path: Path) -> str:
    """The name of the dialect that a config or a launch script is for; empty if its first lines do not say."""
    try:
        with path.open("rb") as file:
            text = file.read(HEAD).decode("utf-8", errors="replace")
    except OSError:
        return ""
    if path.suffix in SCRIPTS:
        return _launched(text)
    return signed((_JSON_KEY if path.suffix == ".json" else _TOP).findall(text))


def _launched(text: str) -> str:
    """The dialect of the program that a script starts."""
    words = set(_WORD.findall(text))
    names = {word.rpartition("/")[2] for word in words} | words
    for name in SIGNS:
        if any(fnmatch(word, program) for program in dialect(name).programs for word in names):
            return name
    return ""
