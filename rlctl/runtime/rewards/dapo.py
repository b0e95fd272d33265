r"""The answer after ``Answer:`` and when two final answers are equal, as DAPO's reward compares them.

The normalization is Minerva's (Lewkowycz et al., arXiv:2206.14858, appendix D.1); order of extraction and window are those
of verl/utils/reward_score/math_dapo.py: of the last 300 characters, the last ``Answer: ...`` line; without one, a
``\boxed{...}`` in the last 100 characters, which must be the very text of the answer.
"""

from __future__ import annotations

import re

WINDOW, BOXED_WINDOW = 300, 100
"""Characters from the end in which an answer is looked for."""
_ANSWER = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")
_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
)
_REMOVED = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points"),
    *("feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students"),
    *("childrentickets", "multiples"),
    *("\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}"),
    *("\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots"),
)
_SHORTENED = (
    (re.compile(r"(.*?)(\$)(.*?)(\$)(.*)"), r"$\3$"),
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt([^{])"), r"sqrt{\1}"),
)


def is_right(response: str, answer: str) -> bool:
    """Return whether the response's final answer is the answer."""
    tail = response[-WINDOW:]
    stated = _ANSWER.findall(tail)
    predicted = normalize(stated[-1]) if stated else None
    if predicted is not None and predicted != "[INVALID]":
        return predicted == normalize(answer)
    boxed = _boxed(tail[-BOXED_WINDOW:])
    return boxed == answer if boxed is not None else normalize("[INVALID]") == normalize(answer)


def said(response: str) -> str:
    """Return the final answer that is compared; that of a response without one is verl's ``[INVALID]``."""
    tail = response[-WINDOW:]
    stated = _ANSWER.findall(tail)
    predicted = normalize(stated[-1]) if stated else "[INVALID]"
    return (_boxed(tail[-BOXED_WINDOW:]) if predicted == "[INVALID]" else None) or predicted


def normalize(text: str) -> str:
    """Return a final answer in one spelling."""
    text = text.split("=")[-1]
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for expression in _REMOVED:
        text = text.replace(expression, "")
    for pattern, shorter in _SHORTENED:
        text = pattern.sub(shorter, text)
    text = text.replace("$", "")
    return (text.replace(",", "") if text.replace(",", "").isdigit() else text).strip()


def _boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    depth = 0
    for position in range(start, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if text[position] == "}" and depth == 0:
            return text[start + len("\\boxed{") : position]
    return None
