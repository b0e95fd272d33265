"""The shell's integer arithmetic, ``$(( ))``, by a small parser: nothing of an input is ever evaluated as code."""

from __future__ import annotations

import re
from collections.abc import Callable

from rlctl.common.messages.reasons import said

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+)|\$?\{?(?P<name>[A-Za-z_]\w*)\}?|(?P<sign>\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:~&|^]))"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_MAX_LENGTH = 2000
_MAX_POWER = 64


_SET = re.compile(
    r"(?P<name>[A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*(?P<counted>[A-Za-z_]\w*)"
)


def assigned(text: str) -> list[str]:
    """The names that an expression sets, as ``i`` in ``i++`` and ``a = b``."""
    return [match["name"] or match["counted"] for match in _SET.finditer(text)]


def evaluate(text: str, variable: Callable[[str], int]) -> int:
    """The value of an expression.

    Args:
        text: what stands between ``$((`` and ``))``.
        variable: the number a name stands for.

    Raises:
        ValueError: it is no expression of integers that is read here; the message says why.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError("the expression is too long")
    return _Parser(_tokens(text), variable).whole()


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(
                said("rlctl cannot evaluate {text!r} as integer arithmetic", text=text[position:].strip()[:20])
            )
        found.append((str(match.lastgroup), match[str(match.lastgroup)]))
        position = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], variable: Callable[[str], int]) -> None:
        self.tokens = tokens
        self.variable = variable
        self.place = 0

    def whole(self) -> int:
        value = self._choice()
        if self.place < len(self.tokens):
            raise ValueError(said("{token!r} is not an operator", token=self.tokens[self.place][1]))
        return value

    def _next(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def _take(self, *signs: str) -> str:
        sign = self._next()
        if sign in signs:
            self.place += 1
            return sign
        return ""

    def _choice(self) -> int:
        value = self._level(0)
        if not self._take("?"):
            return value
        first = self._choice()
        if not self._take(":"):
            raise ValueError("a '?' without its ':'")
        second = self._choice()
        return first if value else second

    def _level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        value = self._level(level + 1)
        while sign := self._take(*_LEVELS[level]):
            value = _applied(sign, value, self._level(level + 1))
        return value

    def _power(self) -> int:
        base = self._unary()
        if not self._take("**"):
            return base
        power = self._power()
        if not 0 <= power <= _MAX_POWER:
            raise ValueError(said("the power {power} is not between 0 and {limit}", power=power, limit=_MAX_POWER))
        return int(base**power)

    def _unary(self) -> int:
        sign = self._take("-", "+", "!", "~")
        if sign:
            value = self._unary()
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[sign]
        if self._take("("):
            value = self._choice()
            if not self._take(")"):
                raise ValueError("a '(' is not closed")
            return value
        if self.place >= len(self.tokens):
            raise ValueError("the expression ends where a number was expected")
        kind, text = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            return int(text, 16 if text[:2].lower() == "0x" else 8 if text[0] == "0" and len(text) > 1 else 10)
        if kind == "name":
            return self.variable(text)
        raise ValueError(said("{text!r} is not a number", text=text))


def _applied(sign: str, left: int, right: int) -> int:
    if sign in ("/", "%"):
        if right == 0:
            raise ValueError("a division by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    if sign in ("<<", ">>"):
        if not 0 <= right <= _MAX_POWER:
            raise ValueError(said("the shift {shift} is not between 0 and {limit}", shift=right, limit=_MAX_POWER))
        return left << right if sign == "<<" else left >> right
    results: dict[str, Callable[[], int]] = {
        "||": lambda: int(bool(left) or bool(right)),
        "&&": lambda: int(bool(left) and bool(right)),
        "|": lambda: left | right,
        "^": lambda: left ^ right,
        "&": lambda: left & right,
        "==": lambda: int(left == right),
        "!=": lambda: int(left != right),
        "<": lambda: int(left < right),
        "<=": lambda: int(left <= right),
        ">": lambda: int(left > right),
        ">=": lambda: int(left >= right),
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
    }
    return results[sign]()
