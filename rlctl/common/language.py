"""The language in which people are shown texts, and how it is chosen."""

from __future__ import annotations

import os

LANGUAGES = {"en": "English", "zh": "中文"}
VARIABLE = "RLCTL_LANGUAGE"
"""The environment's word for the language; without it, the locale's variables decide."""


def chosen() -> str:
    """The language of `$RLCTL_LANGUAGE`, else of the locale, else English."""
    for name in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"):
        language = os.environ.get(name, "").partition(".")[0].partition("_")[0].lower()
        if language:
            return language if language in LANGUAGES else "en"
    return "en"


def later(text: str) -> str:
    """A text of data that is said in the reader's language where it is shown; so marked, a test finds it."""
    return text
