"""The language of the app: `say` gives a text in the language that was chosen, English or Chinese."""

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


LANGUAGE = chosen()
"""Read once: descriptions of keys are made when the screens are imported."""


def say(text: str) -> str:
    """The text in the app's language; values are filled in after: `say("step {step}").format(step=3)`."""
    if LANGUAGE == "zh":
        from rlctl.tui.zh import ZH

        return ZH.get(text, text)
    return text
