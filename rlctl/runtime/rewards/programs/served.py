"""The process of a program that tests call from another process: runs the program as ``__main__``, then does what they ask.

    python -I -c TEXT-OF-THIS-FILE JOB SOCKET      two file descriptors

Neither the tests nor what they expect are here, and nothing that this process says is more than an answer: plain data, the
number of an object that stays here, or an exception. The program may answer itself, in any way it likes.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Run the program of the job that a descriptor holds, and answer at a socket until it is closed."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = json.loads(file.read())
    wire: Any = types.ModuleType("wire")
    exec(compile(job["wire"], "wire.py", "exec"), wire.__dict__)
    socket = int(sys.argv[2])
    os.set_inheritable(socket, False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.set_int_max_str_digits(0)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = ["program.py"]
    objects: list[Any] = []

    def run(names: list[str], tested: list[str]) -> list[Any]:
        exec(compile(job["prelude"], "program.py", "exec"), module.__dict__)
        for name in tested:
            module.__dict__.pop(name, None)  # the program has to define them itself
        exec(compile(job["code"], "program.py", "exec"), module.__dict__)
        return ["ran", *(told(module.__dict__[name]) if name in module.__dict__ else None for name in names)]

    def told(value: Any) -> list[Any]:
        try:
            return ["plain", wire.pack(value)]
        except (wire.NotPlain, RecursionError):
            objects.append(value)
            return ["object", len(objects) - 1, type(value).__name__]

    def get(number: int, name: str) -> list[Any]:
        return told(getattr(objects[number], name))

    def call(number: int, steps: list[Any], for_effects: bool) -> list[Any]:
        args, named = wire.unpack(steps, objects)
        result = told(objects[number](*args, **named))
        given = [*args, *named.values()]
        changed = {i: each for i, each in enumerate(given) if for_effects and isinstance(each, list | dict | set)}
        return [*result, wire.pack(changed)] if changed else result

    does: dict[str, Callable[..., Any]] = {"run": run, "get": get, "call": call}
    while True:
        try:
            number, what, *rest = wire.receive(socket)
        except wire.Closed:
            break
        try:
            answer = does[what](*rest)
        except SystemExit as error:
            answer = ["exited", 0 if error.code is None else error.code if isinstance(error.code, int) else 1]
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            answer = _raised(error, wire)
        try:
            sys.stdout.flush()
            wire.send(socket, [number, answer])
        except wire.NotPlain as error:
            wire.send(socket, [number, ["object", len(objects), str(error)]])
            objects.append(None)
        except wire.Closed:
            break


def _raised(error: BaseException, wire: Any) -> list[Any]:
    """The nearest class of exceptions that tests know too, the arguments, and a text for people."""
    kind = next(each for each in type(error).__mro__ if getattr(builtins, each.__name__, None) is each)
    try:
        args = wire.pack(list(error.args))
    except (wire.NotPlain, RecursionError):
        args = wire.pack([])
    try:
        text = f"{type(error).__name__}: {error}"[:300]
    except Exception:  # noqa: BLE001 - it may not be possible to print it
        text = type(error).__name__
    return ["raised", kind.__name__, args, text]


if __name__ == "__main__":
    main()
