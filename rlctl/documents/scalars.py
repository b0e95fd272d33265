"""What a plain YAML scalar means, exactly as OmegaConf's loader takes it, and which strings therefore need quotes.

The rules are YAML 1.1's types without timestamps, plus floats that need no dot and no sign in the exponent (``1e-6``).
"""

from __future__ import annotations

import re
from functools import lru_cache

from rlctl.common.messages.reasons import said

Scalar = str | int | float | bool | None

MAX_DIGITS = 4300
"""The longest number that is read: the limit Python itself sets for converting decimal digits."""

_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    form: value
    for word, value in {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}.items()
    for form in (word, word.title(), word.upper())
}
_FLOAT = re.compile(
    r"""[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?
      | \.[0-9][0-9_]*(?:[eE][-+][0-9]+)?
      | [-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9_]*)?[eE][-+]?[0-9]+
      | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
      | [-+]?\.(?:inf|Inf|INF)
      | \.(?:nan|NaN|NAN)""",
    re.VERBOSE,
)
_INT = re.compile(
    r"""[-+]?0b[01_]+
      | [-+]?0[0-7_]+
      | [-+]?(?:0|[1-9][0-9_]*)
      | [-+]?0x[0-9a-fA-F_]+
      | [-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+""",
    re.VERBOSE,
)
_DIGITS = re.compile(r"[-+]?[0-9a-fA-FxX_.:+-]*")
_ELSEWHERE = re.compile(
    r"""[-+]?\.?[0-9][0-9_.,:eE+-]*                 # a number, a time or a date to some YAML loader
      | [-+]?0[xXoObB][0-9a-fA-F_]+
      | [-+]?\.(?:inf|nan)
      | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt\ ].*)?
      | [yn] | [=<]+ | ~ | null | true | false | yes | no | on | off""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


@lru_cache(maxsize=4096)
def plain_value(text: str) -> Scalar:
    """Return the value of an unquoted scalar.

    Raises:
        ValueError: it is a number in form, but none that can be read; the message says why.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    if len(text) > MAX_DIGITS and _DIGITS.fullmatch(text):
        raise ValueError(
            said(
                "is a number of {count} characters; rlctl reads at most {limit}",
                count=len(text),
                limit=MAX_DIGITS,
            )
        )
    if _FLOAT.fullmatch(text):
        return _float(text)
    return _int(text) if _INT.fullmatch(text) else text


def needs_quotes(text: str) -> bool:
    """Return whether some loader, of YAML 1.1 or 1.2, would read the unquoted ``text`` as something else."""
    return text in _WORDS or _ELSEWHERE.fullmatch(text) is not None


def _float(text: str) -> float:
    digits = text.replace("_", "").lower()
    sign = -1.0 if digits[0] == "-" else 1.0
    digits = digits.lstrip("+-")
    if digits in {".inf", ".nan"}:
        return sign * float(digits[1:])
    if ":" in digits:
        return sign * sum(float(part) * 60.0**power for power, part in enumerate(reversed(digits.split(":"))))
    return sign * float(digits)


def _int(text: str) -> int:
    digits = text.replace("_", "")
    sign = -1 if digits[0] == "-" else 1
    digits = digits.lstrip("+-")
    if ":" in digits:
        total = 0
        for part in digits.split(":"):
            total = total * 60 + int(part)
        return sign * total
    base = 2 if digits.startswith("0b") else 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    try:
        return sign * (int(digits, base) if digits != "0" else 0)
    except ValueError:
        raise ValueError(said("{text!r} looks like a number, but has no digits", text=text)) from None
