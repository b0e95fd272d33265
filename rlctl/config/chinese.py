"""The help of keys and options in Chinese, beside the English under each field.

The table is ``chinese.tsv``: what is explained (``Grpo.epsilon``, or ``Grpo`` for the option), a mark of the English that
the Chinese was made from, and the Chinese. A test fails where the English has changed since. This prints what is to be done:

    python -m rlctl.config.chinese
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from inspect import get_annotations
from pathlib import Path

from rlctl.config.fields import Choice
from rlctl.config.inspect import Key, sections_in, summary_of, walk
from rlctl.config.root import Config
from rlctl.language import LANGUAGE

TABLE = Path(__file__).with_name("chinese.tsv")


def key_help(key: Key) -> str:
    """What a key is, in the reader's language."""
    return (LANGUAGE == "zh" and chinese(name_of(key))) or key.help


def option_help(cls: type) -> str:
    """What an option of a choice is, in the reader's language."""
    return (LANGUAGE == "zh" and chinese(cls.__name__)) or summary_of(cls)


def chinese(name: str) -> str:
    """The Chinese of one line; empty where there is none."""
    return lines().get(name, ("", ""))[1]


@cache
def lines() -> dict[str, tuple[str, str]]:
    """The table: the mark of the English, and the Chinese, by what they explain."""
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines() if line)
    return {name: (mark, text) for name, mark, text in rows}


def mark_of(english: str) -> str:
    """A few letters that change with the text."""
    return hashlib.sha256(english.encode()).hexdigest()[:6]


def name_of(key: Key) -> str:
    """A key's name in the table: the section that explains it, which a section derived from it shares, and the field."""
    owner = next(cls for cls in key.owner.__mro__ if key.info.attribute in get_annotations(cls))
    return f"{owner.__name__}.{key.info.name}"


def english() -> Iterator[tuple[str, str]]:
    """Everything that the table explains, with its English, in the schema's order."""
    seen = set()
    for key in walk(Config):
        options = [
            cls for held, _ in sections_in(key.info.type) if issubclass(held, Choice) for cls in held.registry.values()
        ]
        for name, text in ((name_of(key), key.help), *((cls.__name__, summary_of(cls)) for cls in options)):
            if name not in seen:
                seen.add(name)
                yield name, text


if __name__ == "__main__":
    for name, text in english():
        if lines().get(name, ("", ""))[0] != mark_of(text):
            print(name, mark_of(text), text, sep="\t")
