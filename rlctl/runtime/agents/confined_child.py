"""Calls one Python tool, in the sandbox: ``FD MODE FILE NAME``. Reads a JSON object a line from a socket, and answers each.

    {"call": {...}}                  a function: called in a fork, so that no call finds what another one left
    {"make": {...}}                  a class: its object, made with these arguments
    {"method": "execute", "row": ..., "call": {...}}

The answer is {"value": ...}, {"tuple": [...]}, or {"error": [type, message]}. Standard library only.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
import types
from typing import Any


def load(path: str, name: str) -> Any:
    if path.startswith("pkg://"):
        module = importlib.import_module(path[len("pkg://") :].strip("/").replace("/", "."))
        return getattr(module, name)
    sys.path.append(os.path.dirname(path))  # noqa: PTH120 - starts fast without pathlib
    spec = importlib.util.spec_from_file_location("rlctl_tool", path)
    assert spec is not None, f"{path} is not a Python file"
    assert spec.loader is not None, f"{path} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


async def _awaited(value: Any) -> Any:
    return await value


def answer(function: Any, *args: Any, **arguments: Any) -> str:
    try:
        value = function(*args, **arguments)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        told = {"tuple": list(value)} if isinstance(value, tuple) else {"value": value}
        return json.dumps(told, default=str)
    except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and the model reads it
        return json.dumps({"error": [type(error).__name__, str(error)]})


def forked(function: Any, arguments: dict[str, Any], fd: int) -> None:
    pid = os.fork()
    if not pid:
        try:
            write(fd, answer(function, **arguments))
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        write(fd, json.dumps({"error": ["RuntimeError", f"the tool ended its process with status {status}"]}))


def write(fd: int, text: str) -> None:
    data = text.encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]


def main(fd: int, mode: str, path: str, name: str) -> None:
    code, made = load(path, name), None
    write(fd, json.dumps({"value": "ready"}))
    unread = b""
    while True:
        data = os.read(fd, 1 << 16)
        if not data:
            return
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            asked = json.loads(line)
            if mode == "function":
                forked(code, asked["call"], fd)
                continue
            if "make" in asked:
                try:
                    made = code(**asked["make"])
                    write(fd, json.dumps({"value": [each for each in ("create", "release") if hasattr(made, each)]}))
                except BaseException as error:  # noqa: BLE001 - as above
                    write(fd, json.dumps({"error": [type(error).__name__, str(error)]}))
                continue
            row = [types.SimpleNamespace(**asked["row"])] if "row" in asked else []
            write(fd, answer(getattr(made, asked["method"]), *row, **asked.get("call", {})))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
