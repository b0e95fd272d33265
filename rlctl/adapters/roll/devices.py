"""ROLL's ``device_mapping``: Python text for a list of device numbers, read by a small parser and printed, never evaluated.

Read are ``list(...)``, ``range(...)``, ``[...]`` with ``*`` inside, numbers with commas, and sums of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rlctl.common.messages.reasons import said
from rlctl.common.records import record

MOST = 1 << 20
"""More devices than this are a mistake."""
DEEPEST = 100
"""More brackets than this are a mistake, too."""
_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[-+*,()\[\]])|(?P<strange>\S))")
_EXPECTED = "expected device numbers, as list(range(0,8)), [0, 1, 2] or sums of these"


class DevicesError(ValueError):
    """A device mapping that cannot be read: what was found, where, and what was expected."""


def parse_devices(text: object) -> tuple[int, ...]:
    """The device numbers of a mapping, in order.

    Raises:
        DevicesError: it is no list of device numbers; the text says which character.
    """
    if not isinstance(text, str):
        kind = "a YAML list" if isinstance(text, (list, tuple)) else f"{text!r}"
        raise DevicesError(said("is {kind}; ROLL wants text, such as 'list(range(0,8))'", kind=kind))
    if text.count("(") + text.count("[") > DEEPEST:
        raise DevicesError(
            said("is nested more than {deepest} brackets deep; {expected}", deepest=DEEPEST, expected=_EXPECTED)
        )
    reader = _Reader(text, list(_tokens(text)))
    devices = tuple(reader.whole())
    if len(set(devices)) < len(devices):
        repeated = next(number for place, number in enumerate(devices) if number in devices[:place])
        raise DevicesError(said("is {text!r}, which names device {repeated} twice", text=text, repeated=repeated))
    return devices


def print_devices(devices: Sequence[int]) -> str:
    """The mapping that ROLL reads as these devices, as its examples write it."""
    parts: list[str] = []
    single: list[int] = []
    for run in _runs(devices):
        if len(run) < 3 and not (len(run) == len(devices) > 1):
            single += run
            continue
        parts += _listed(single)
        single = []
        parts.append(f"list(range({run[0]},{run[-1] + 1}))")
    parts += _listed(single)
    return " + ".join(parts) or "[]"


@record
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while found := _TOKEN.match(text, place):
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], found.start(kind))
        place = found.end()
    yield _Token("end", "", len(text.rstrip()))


@dataclass
class _Reader:
    """Reads a mapping by recursive descent."""

    text: str
    tokens: list[_Token]
    place: int = 0

    def whole(self) -> list[int]:
        """The whole mapping: a sum, or bare numbers with commas."""
        if self._next.kind == "number":
            numbers = self._items("")
            if len(self.tokens) == 2:
                raise self._problem(self.tokens[0], "a single number is not a list")
            return numbers
        _, devices = self._sum()
        if self._next.kind != "end":
            raise self._problem(self._next)
        return devices

    @property
    def _next(self) -> _Token:
        return self.tokens[self.place]

    def _took(self, *texts: str) -> bool:
        """Take these tokens if they are next."""
        there = tuple(token.text for token in self.tokens[self.place : self.place + len(texts)]) == texts
        self.place += len(texts) * there
        return there

    def _must(self, text: str) -> None:
        if not self._took(text):
            raise self._problem(self._next, said("'{text}' is missing", text=text))

    def _sum(self) -> tuple[str, list[int]]:
        """The Python type and the numbers of terms that are added; only a list and a list, or two tuples, add up."""
        kind, devices = self._term()
        while self._next.text == "+":
            plus = self._next
            self.place += 1
            other, more = self._term()
            if other != kind or kind == "range":
                raise self._problem(
                    plus, said("Python cannot add {other} to {kind}; wrap each in list(...)", other=other, kind=kind)
                )
            devices = devices + more
        return kind, devices

    def _term(self) -> tuple[str, list[int]]:
        token = self._next
        if self._took("list", "("):
            devices = [] if self._next.text == ")" else self._sum()[1]
            self._must(")")
            return "list", devices
        if self._took("range", "("):
            return "range", self._range(token)
        if self._took("["):
            return "list", self._items("]")
        if self._took("("):
            if self._next.kind == "number" or self._next.text == "*":
                return "tuple", self._items(")")
            inside = self._sum()
            self._must(")")
            return inside
        raise self._problem(token)

    def _items(self, end: str) -> list[int]:
        """Numbers with commas, and ``*`` before a list, up to the text that ends them, which is taken."""
        devices: list[int] = []
        while self._next.text != end:
            devices += self._term()[1] if self._took("*") else [self._number()]
            if not self._took(",") and self._next.text != end:
                raise self._problem(self._next)
        self.place += bool(end)
        return devices

    def _range(self, name: _Token) -> list[int]:
        numbers = [self._number()]
        while len(numbers) < 3 and self._took(","):
            numbers.append(self._number())
        self._must(")")
        if len(numbers) == 3 and not numbers[2]:
            raise self._problem(name, "a step of 0 never ends")
        devices = range(*numbers)
        if len(devices) > MOST:
            raise self._problem(name, said("{count} devices", count=len(devices)))
        return list(devices)

    def _number(self) -> int:
        token = self._next
        if token.kind != "number":
            raise self._problem(token)
        self.place += 1
        return int(token.text)

    def _problem(self, token: _Token, why: str = "") -> DevicesError:
        found = why or (f"{token.text!r}" if token.text else "the end")
        return DevicesError(
            said(
                "is {text!r}; at character {value}: {found}; {expected}",
                text=self.text,
                value=token.at + 1,
                found=found,
                expected=_EXPECTED,
            )
        )


def _runs(devices: Sequence[int]) -> Iterator[list[int]]:
    """The numbers in runs that count up by one."""
    run: list[int] = list(devices[:1])
    for before, number in pairwise(devices):
        if number != before + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _listed(numbers: list[int]) -> list[str]:
    return [str(numbers)] if numbers else []
