"""Objects of another process, used as if they were here: how tests reach a program that they must not share a process with.

    tester.py ── socket ── served.py          each has a ``Peer``; both run in sandboxes of their own

Plain data (numbers, text, containers of them, numpy arrays, a few types of the standard library) travels by value; all else stays
where it is, and a ``Remote`` represents it. An operation on a remote object (a call, an attribute, ``len``, ``+``) is a request;
while a side waits for the answer it serves requests of the other, so callbacks work. Arguments that a call changed are changed on
this side too. Exceptions travel as exceptions.

The two sides do not trust each other. Nothing received is executed or unpickled. A request may reach public attributes and the
operators below, of objects that were sent, and nothing else. Above all, a remote object never equals a plain value, nor does it
have an order, distance or remainder with one: a test that expects 3, or about 3, passes if the program returns 3, not if it
returns an object that claims to be near everything. An object of a subclass of numbers or text computes as that number or text.

Standard library only: the text of this file is executed in processes that see nothing of rlctl.
"""

from __future__ import annotations

import base64
import builtins
import collections
import copy
import datetime
import decimal
import fractions
import importlib
import json
import operator
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

MODULES = frozenset(
    """
    string re datetime collections heapq bisect copy math cmath random statistics itertools functools operator json typing
    decimal fractions numpy pytest time hashlib abc dataclasses enum numbers types
    """.split()  # noqa: SIM905 - shorter than a list
)
"""Modules that each side imports itself when the other sends them."""
_OPERATORS: dict[str, Callable[..., Any]] = {
    "call": lambda target, *args, **named: target(*args, **named),
    "len": len, "bool": bool, "str": str, "repr": repr, "hash": hash, "iter": iter, "next": next, "abs": abs,
    "reversed": reversed,
    "getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem, "contains": operator.contains,
    "eq": operator.eq, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": operator.pow, "matmul": operator.matmul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "neg": operator.neg, "pos": operator.pos, "invert": operator.invert,
    "isinstance": isinstance, "issubclass": issubclass, "deepcopy": copy.deepcopy, "copy": copy.copy, "type": type,
    "enter": lambda target: type(target).__enter__(target),
    "exit": lambda target: type(target).__exit__(target, None, None, None),
}  # fmt: skip
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "D": decimal.Decimal,
    "F": fractions.Fraction,
    "t": datetime.datetime.fromisoformat,
    "d": datetime.date.fromisoformat,
    "T": datetime.time.fromisoformat,
}
_TO_TEXT: dict[type, tuple[str, Callable[[Any], str]]] = {
    decimal.Decimal: ("D", str),
    fractions.Fraction: ("F", str),
    datetime.datetime: ("t", datetime.datetime.isoformat),
    datetime.date: ("d", datetime.date.isoformat),
    datetime.time: ("T", datetime.time.isoformat),
}
_SEQUENCES: dict[type, str] = {
    list: "l",
    tuple: "u",
    set: "s",
    frozenset: "z",
    collections.deque: "q",
}
_MAPPINGS: dict[type, str] = {
    dict: "m",
    collections.OrderedDict: "o",
    collections.Counter: "n",
    collections.defaultdict: "e",
}
_MAKE: dict[str, Callable[[Any], Any]] = {
    **{short: kind for kind, short in _SEQUENCES.items()},
    **{short: kind for kind, short in _MAPPINGS.items() if short != "e"},
    "e": lambda items: collections.defaultdict(None, items),
}
_CHANGEABLE = (list, set, dict, bytearray, collections.deque)
_NUMPY_KINDS = "biufcUS"
_LARGEST = 64 << 20


class Closed(Exception):
    """The other side has ended."""


class Remote:
    """An object of the other side."""

    def __init__(self, peer: Peer, number: int, value: Any) -> None:
        self.__dict__.update(_peer=peer, _number=number, _value=value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._peer.request("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.request("set", self, name, value)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._peer.request("call", self, *args, named=named)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Remote):
            return self._value is not None and bool(self._value == other)
        return self is other or bool(self._peer.request("eq", self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._value) if self._value is not None else int(self._peer.request("hash", self))

    def __iter__(self) -> Any:
        return self._peer.request("iter", self)

    def __contains__(self, item: object) -> bool:
        return bool(self._peer.request("contains", self, item))

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Remote) and bool(self._peer.request("isinstance", instance, self))

    def __subclasscheck__(self, kind: object) -> bool:
        return isinstance(kind, Remote) and bool(self._peer.request("issubclass", kind, self))

    def __deepcopy__(self, memo: object) -> Any:
        return self._peer.request("deepcopy", self)

    def __enter__(self) -> Any:
        return self._peer.request("enter", self)

    def __exit__(self, *error: object) -> None:
        self._peer.request("exit", self)


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Remote, *args: Any) -> Any:
        if self._value is not None and name not in ("str", "repr"):
            return _OPERATORS[name](self._value, *args)
        return self._peer.request(name, self, *args)

    return method


def _binary(name: str, *, swapped: bool = False) -> Callable[..., Any]:
    def method(self: Remote, other: Any) -> Any:
        if self._value is not None:
            return _OPERATORS[name](*((other, self._value) if swapped else (self._value, other)))
        if name in _TELLING and not isinstance(other, Remote):
            return NotImplemented
        return self._peer.request(name, *((other, self) if swapped else (self, other)))

    return method


_TWO = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_ONE = ("len", "bool", "str", "repr", "next", "abs", "reversed", "neg", "pos", "invert", "copy")
_ORDER = ("lt", "le", "gt", "ge")
_TELLING = (*_ORDER, "sub", "truediv", "floordiv", "mod", "xor")
"""With a plain value on the other side they tell how far it is from what is expected."""
for _name in (*_ONE, "getitem", "setitem", "delitem"):
    setattr(Remote, f"__{_name}__", _forward(_name))
for _name in (*_TWO, *_ORDER):
    setattr(Remote, f"__{_name}__", _binary(_name))
for _name in _TWO:
    setattr(Remote, f"__r{_name}__", _binary(_name, swapped=True))


class Peer:
    """One side.

    Args:
        fd: socket to the other side.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._mine: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._theirs: dict[int, Any] = {}
        self.names: Callable[[list[str]], dict[str, Any]] = lambda wanted: {}
        """What the other side's request for names finds."""

    def request(self, what: str, *args: Any, named: dict[str, Any] | None = None) -> Any:
        """Have something done on the other side.

        Raises:
            Closed: the other side has ended.
            BaseException: what was raised there.
        """
        self._send(
            ["do", what, [self.encode(each) for each in args], {k: self.encode(v) for k, v in (named or {}).items()}]
        )
        given = [*args, *(named or {}).values()]
        while True:
            kind, *rest = self._receive()
            if kind == "do":
                self._serve(*rest)
                continue
            for place, value in rest[1]:
                _change(given[place], self.decode(value))
            if kind == "is":
                return given[rest[0]]
            if kind == "done":
                return self.decode(rest[0])
            raise self._exception(rest[0])

    def serve(self) -> None:
        """Do what the other side wants, until it has ended."""
        while True:
            try:
                _, *rest = self._receive()
            except Closed:
                return
            self._serve(*rest)

    def _serve(self, what: str, args: list[Any], named: dict[str, Any]) -> None:
        changes: list[Any] = []
        try:
            given, words = [self.decode(each) for each in args], {k: self.decode(v) for k, v in named.items()}
            result = self._do(what, given, words)
            every, before = [*given, *words.values()], [*args, *named.values()]
            for place, value in enumerate(every):
                if _is_changeable(value) and (after := self.encode(value)) != before[place]:
                    changes.append([place, after])
            same = next((place for place, value in enumerate(every) if value is result and _is_changeable(value)), None)
            answer = ["done", self.encode(result), changes] if same is None else ["is", same, changes]
        except Closed:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the other side's
            answer = ["raised", self._told(error), []]
        self._send(answer)

    def _do(self, what: str, args: list[Any], named: dict[str, Any]) -> Any:
        if what == "names":
            return self.names(args[0])
        targets = args[:2] if what in _TWO else args[1:2] if what in ("isinstance", "issubclass") else args[:1]
        if not any(id(each) in self._numbers for each in targets):
            raise TypeError("a request is about objects that were sent")
        if what in ("get", "set"):
            target, name, *value = args
            if not isinstance(name, str) or name.startswith("_"):
                raise AttributeError(name)
            return setattr(target, name, value[0]) if what == "set" else getattr(target, name)
        return _OPERATORS[what](*args, **named)

    # Exceptions

    def _told(self, error: BaseException) -> list[Any]:
        try:
            args = [self.encode(each) for each in error.args]
        except Exception:  # noqa: BLE001 - an argument may be anything
            args = []
        return [self.encode(type(error)), args]

    def _exception(self, told: list[Any]) -> BaseException:
        kind, args = self.decode(told[0]), [self.decode(each) for each in told[1]]
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            return RuntimeError("the other side raised what is no exception")
        try:
            return kind(*args)
        except Exception:  # noqa: BLE001 - a class may want other arguments
            return RuntimeError(kind.__name__)

    # Values

    def encode(self, value: Any) -> Any:
        """As JSON: plain data by value, all else by number."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is Remote and value._peer is self:
            return {"yours": value._number}
        if kind in _SEQUENCES:
            return {_SEQUENCES[kind]: [self.encode(each) for each in value]}
        if kind in _MAPPINGS:
            return {_MAPPINGS[kind]: [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if kind in (bytes, bytearray):
            return {"b" if kind is bytes else "B": base64.b64encode(value).decode()}
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if kind is range:
            return {"r": [value.start, value.stop, value.step]}
        if kind is datetime.timedelta:
            return {"S": [value.days, value.seconds, value.microseconds]}
        if kind in _TO_TEXT:
            short, text = _TO_TEXT[kind]
            return {short: text(value)}
        return self._encode_numpy(value) or self._encode_known(value) or self._encode_own(value)

    def _encode_numpy(self, value: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if (
            numpy is None
            or not isinstance(value, numpy.ndarray | numpy.generic)
            or value.dtype.kind not in _NUMPY_KINDS
        ):
            return None
        data = base64.b64encode(value.tobytes()).decode()
        return {"a": [value.dtype.str, list(value.shape), isinstance(value, numpy.generic), data]}

    def _encode_known(self, value: Any) -> Any:
        """A builtin, or a module that both sides have."""
        name = getattr(value, "__name__", None)
        if isinstance(name, str):
            if getattr(builtins, name, None) is value:
                return {"builtin": name}
            if name in MODULES and sys.modules.get(name) is value:
                return {"module": name}
        return None

    def _encode_own(self, value: Any) -> Any:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbers)
            self._mine[self._numbers[id(value)]] = value
        told: dict[str, Any] = {"mine": self._numbers[id(value)]}
        if isinstance(value, type) and issubclass(value, BaseException):
            told["bases"] = [self.encode(base) for base in value.__bases__]
            told["name"] = value.__name__
        plain = next((kind for kind in (bool, int, float, str, tuple) if isinstance(value, kind)), None)
        if plain is not None:
            told["value"] = self.encode(plain(value))
        return told

    def decode(self, told: Any) -> Any:
        """Return the value of ``encode``."""
        if not isinstance(told, dict):
            return told
        for short, content in told.items():
            if short in _MAKE:
                mapping = short in _MAPPINGS.values()
                items: Any = (
                    [(self.decode(k), self.decode(v)) for k, v in content] if mapping else map(self.decode, content)
                )
                return _MAKE[short](dict(items) if mapping else items)
            if short in _FROM_TEXT:
                return _FROM_TEXT[short](content)
            return self._decode_other(short, content, told)
        raise ValueError("an empty message")

    def _decode_other(self, short: str, content: Any, told: dict[str, Any]) -> Any:
        if short in "bB":
            data = base64.b64decode(content)
            return data if short == "b" else bytearray(data)
        if short in "crS":
            return {"c": complex, "r": range, "S": datetime.timedelta}[short](*content)
        if short == "a":
            return _array(*content)
        if short == "builtin":
            return getattr(builtins, content)
        if short == "module":
            if content not in MODULES:
                raise ValueError(f"the module {content!r} is not shared")
            return importlib.import_module(content)
        if short == "yours":
            return self._mine[content]
        return self._decode_theirs(content, told)

    def _decode_theirs(self, number: int, told: dict[str, Any]) -> Any:
        if number not in self._theirs:
            if "bases" in told:
                bases = tuple(base for base in map(self.decode, told["bases"]) if isinstance(base, type))
                self._theirs[number] = type(told["name"], bases or (Exception,), {})
            else:
                self._theirs[number] = Remote(self, number, self.decode(told.get("value")))
        return self._theirs[number]

    # Messages

    def _send(self, message: Any) -> None:
        text = json.dumps(message).encode()
        data = struct.pack("!I", len(text)) + text
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            raise Closed("the other side has ended") from None

    def _receive(self) -> Any:
        (length,) = struct.unpack("!I", self._read(4))
        if length > _LARGEST:
            raise Closed("the other side sends too much")
        return json.loads(self._read(length))

    def _read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            try:
                more = os.read(self._fd, min(length - len(data), 1 << 20))
            except OSError:
                more = b""
            if not more:
                raise Closed("the other side has ended")
            data += more
        return data


def _array(dtype: str, shape: list[int], scalar: bool, data: str) -> Any:
    import numpy

    kind = numpy.dtype(dtype)
    if kind.kind not in _NUMPY_KINDS:
        raise ValueError(f"an array of {dtype}")
    found = numpy.frombuffer(base64.b64decode(data), kind).reshape(shape).copy()
    return found[()] if scalar else found


def _is_changeable(value: Any) -> bool:
    return isinstance(value, _CHANGEABLE) or type(value).__name__ == "ndarray"


def _change(target: Any, value: Any) -> None:
    """Give an object the content that its copy on the other side has now."""
    if isinstance(target, list | bytearray):
        target[:] = value
    elif isinstance(target, set | dict):
        target.clear()
        target.update(value)
    elif isinstance(target, collections.deque):
        target.clear()
        target.extend(value)
    elif type(target).__name__ == "ndarray":
        target[...] = value
