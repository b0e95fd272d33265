"""The marks of the app, each with its own shape and color: nothing is said by color alone."""

from __future__ import annotations

import re

from textual.content import Content

STYLES = {
    "✗": "$error bold",
    "!": "$warning bold",
    "✓": "$success bold",
    "●": "$primary bold",
    "▲": "$success",
    "▼": "$error",
}
"""Error, warning, good, unsaved or running, better, worse."""
_MARK = re.compile("(?:^|(?<= ))([✗!✓●▲▼])(?= |$)")
_BARS = {"$primary": re.compile("━+"), "$border-blurred": re.compile("╌+")}
"""The done and the open part of a bar."""


def marked(text: str) -> Content:
    """A text whose marks and bars have their colors."""
    content = Content(text)
    for found in _MARK.finditer(text):
        content = content.stylize(STYLES[found[1]], found.start(), found.end())
    for style, bar in _BARS.items():
        for found in bar.finditer(text):
            content = content.stylize(style, *found.span())
    return content
