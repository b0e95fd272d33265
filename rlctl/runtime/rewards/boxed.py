r"""The answer in ``\boxed{...}`` and when two LaTeX answers are written equal.

Answers are compared as text after the normalization of the MATH benchmark (Hendrycks et al., arXiv:2103.03874), which
verl's default for the MATH data sets applies too (verl/utils/reward_score/math_reward.py). It knows spellings, not maths:
``1/2`` equals ``\frac12`` and 0.5, while 0.25 does not equal ``\frac14``.
"""

from __future__ import annotations

import re

_PLAIN = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
"""Replaced first, in this order."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")


def last_boxed(text: str) -> str | None:
    r"""Return what the last ``\boxed{...}`` or ``\fbox{...}`` holds, braces balanced; None where there is none.

    ``\boxed 5`` without braces holds what follows it, up to a dollar sign.
    """
    if "\\boxed " in text:
        return text.rsplit("\\boxed ", 1)[1].split("$", 1)[0]
    start = max(text.rfind("\\boxed"), -1)
    start = start if start >= 0 else text.rfind("\\fbox")
    if start < 0:
        return None
    depth = 0
    for position in range(start, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return _inside(text[start : position + 1])
    return None


def _inside(command: str) -> str | None:
    return command[len("\\boxed{") : -1] if command.startswith("\\boxed{") else None


def equal_latex(first: str, second: str) -> bool:
    """Return whether two answers are the same after normalization; one that cannot be normalized must be the same text."""
    try:
        return normalize(first) == normalize(second)
    except ValueError:
        return first == second


def normalize(text: str) -> str:
    """Return a LaTeX answer in one spelling.

    Raises:
        ValueError: it is cut off in the middle of a command.
    """
    for old, new in _PLAIN:
        text = text.replace(old, new)
    text = _without_unit(text).replace("\\\\%", "").replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    text = "0" + text if text[0] == "." else text
    name, equals, value = text.partition("=")
    if equals and "=" not in value and len(name) <= 2:
        text = value
    text = _braced_roots(text).replace(" ", "")
    text = _braced_fractions(text)
    return _slash_as_fraction("\\frac{1}{2}" if text == "0.5" else text)


def _without_unit(text: str) -> str:
    parts = text.split("\\text{ ")
    if len(parts) > 2:
        raise ValueError("two units")
    return parts[0]


def _braced_roots(text: str) -> str:
    first, *others = text.split("\\sqrt")
    if any(not other for other in others):
        raise ValueError("a root of nothing")
    return first + "".join("\\sqrt" + (o if o[0] == "{" else "{" + o[0] + "}" + o[1:]) for o in others)


def _braced_fractions(text: str) -> str:
    r"""``\frac12`` and ``\frac1{2}`` as ``\frac{1}{2}``; a fraction cut short leaves the text as it is."""
    first, *others = text.split("\\frac")
    if any(not other for other in others):
        raise ValueError("a fraction of nothing")
    parts = [first]
    for other in others:
        if other[0] != "{":
            if len(other) < 2:
                return text
            below = other[1:] if other[1] == "{" else "{" + other[1] + "}" + other[2:]
            other = "{" + other[0] + "}" + below
        parts.append("\\frac" + other)
    return "".join(parts)


def _slash_as_fraction(text: str) -> str:
    above, slash, below = text.partition("/")
    if slash and _INTEGER.fullmatch(above) and _INTEGER.fullmatch(below) and "-0" not in (above, below):
        return f"\\frac{{{above}}}{{{below}}}"
    return text
