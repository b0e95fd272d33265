"""What crosses between a program and its tests: plain data, by value, over a socket. Both processes run the text of this file.

    None, bool, int, float, complex, Decimal, Fraction, str, bytes, range, list, tuple, dict, set, frozenset, iterators over these

A value is a flat list of steps, the parts of a container before it and their number, so reading needs no recursion. What is
read is of exactly these types: nothing is imported, looked up or called that the other side names. Instances of subclasses, such
as ``Counter``, cross as the type that they extend, numbers and arrays of numpy as numbers and lists, and an iterator, such as a
generator, as one over what it gives.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import NoneType
from typing import Any

LARGEST = 16 << 20
"""Bytes of a message."""
DEEPEST = 400
_SMALL = 1 << 53
_DIRECT = (NoneType, bool, int, float, str)
_PARTS: dict[type, tuple[str, Callable[[Any], Any], Callable[[list[Any]], Any]]] = {
    complex: ("c", lambda value: (value.real, value.imag), lambda parts: complex(*parts)),
    Fraction: ("f", lambda value: (value.numerator, value.denominator), lambda parts: Fraction(*parts)),
    range: ("r", lambda value: (value.start, value.stop, value.step), lambda parts: range(*parts)),
    list: ("l", list.__iter__, list),
    tuple: ("t", tuple.__iter__, tuple),
    set: ("s", set.__iter__, set),
    frozenset: ("z", frozenset.__iter__, frozenset),
    dict: (
        "d",
        lambda value: (part for item in dict.items(value) for part in item),
        lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    ),
}
"""Types with parts: how their step is called, their parts, and how they are made of parts."""
_TEXTS: dict[str, Callable[[str], Any]] = {
    "i": lambda text: int(text, 16),
    "b": lambda text: base64.b64decode(text, validate=True),
    "D": Decimal,
}
_MAKE = {"I": iter, **{short: make for short, _, make in _PARTS.values()}}


class NotPlain(Exception):
    """A value that does not cross."""


class Closed(Exception):
    """The other side has ended."""


def pack(value: Any, object_number: Callable[[Any], int | None] = lambda value: None) -> list[Any]:
    """Return the steps of a value.

    Args:
        value: what to send.
        object_number: numbers objects of the program, which only tests may send, back to it.

    Raises:
        NotPlain: it is no plain data.
    """
    steps: list[Any] = []
    _add(value, steps, object_number, 0)
    return steps


def _add(value: Any, steps: list[Any], object_number: Callable[[Any], int | None], depth: int) -> None:
    if depth > DEEPEST:
        raise NotPlain("a value that contains itself, or is nested too deeply")
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
        kind = type(value)
    if issubclass(kind, bool | NoneType):
        steps.append(value)
    elif issubclass(kind, int):
        number = int(value)
        steps.append(number if -_SMALL < number < _SMALL else ["i", hex(number)])
    elif issubclass(kind, float | str):
        steps.append((float.__float__ if issubclass(kind, float) else str.__str__)(value))
    elif issubclass(kind, bytes | bytearray):
        steps.append(["b", base64.b64encode(value).decode()])
    elif issubclass(kind, Decimal):
        steps.append(["D", Decimal.__str__(value)])
    elif (base := next((each for each in _PARTS if issubclass(kind, each)), None)) is not None or _is_iterator(kind):
        short, parts, _ = _PARTS[base] if base else ("I", iter, None)
        count = 0
        for part in parts(value):
            _add(part, steps, object_number, depth + 1)
            count += 1
        steps.append([short, count])
    elif (numbered := object_number(value)) is not None:
        steps.append(["o", numbered])
    else:
        raise NotPlain(f"an object of the type {kind.__name__!r}")


def _is_iterator(kind: type) -> bool:
    """Whether it is a type of iterators, or of a dict's views, of Python itself."""
    return kind.__module__ in ("builtins", "itertools") and (hasattr(kind, "__next__") or hasattr(kind, "mapping"))


def unpack(steps: Any, objects: list[Any] | None = None) -> Any:
    """Return the value of steps; whatever else they may be raises some exception."""
    stack: list[Any] = []
    for step in steps:
        if type(step) in _DIRECT:
            stack.append(step)
            continue
        short, content = step
        if short in _TEXTS:
            stack.append(_TEXTS[short](content))
        elif short == "o" and objects is not None:
            stack.append(objects[content])
        else:
            first = len(stack) - content
            if type(content) is not int or not 0 <= first <= len(stack):
                raise ValueError("parts that are not there")
            stack[first:] = [_MAKE[short](stack[first:])]
    (value,) = stack
    return value


def send(socket: int, message: Any) -> None:
    """Write a message of JSON.

    Raises:
        Closed: the other side has ended.
        NotPlain: it is too large.
    """
    data = json.dumps(message).encode()
    if len(data) > LARGEST:
        raise NotPlain(f"more than {LARGEST >> 20} MiB")
    data = struct.pack("!I", len(data)) + data
    try:
        while data:
            data = data[os.write(socket, data) :]
    except OSError:
        raise Closed from None


def receive(socket: int) -> Any:
    """Read a message of JSON.

    Raises:
        Closed: the other side has ended.
        ValueError: it is too large, or no JSON.
    """
    (length,) = struct.unpack("!I", _read(socket, 4))
    if length > LARGEST:
        raise ValueError("too large")
    return json.loads(_read(socket, length), parse_int=_small)


def _small(text: str) -> int:
    if len(text) > len(str(_SMALL)) + 1:
        raise ValueError("a long number")
    return int(text)


def _read(socket: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        try:
            more = os.read(socket, min(length - len(data), 1 << 20))
        except OSError:
            more = b""
        if not more:
            raise Closed
        data += more
    return bytes(data)
