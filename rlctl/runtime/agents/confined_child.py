"""Calls one Python tool, in the sandbox: ``FD MODE FILE NAME``. Reads a JSON object a line from a socket, and answers each.

    {"number": 1, "call": {...}}     a function: called in a fork, so that no call finds what another one left
    {"number": 1, "make": {...}}     a class: its object, made with these arguments
    {"number": 2, "method": "execute", "row": ..., "call": {...}}

An answer is a line ``{"number": 1, "size": 9, "clean": true}`` and as many bytes: {"value": ...}, {"tuple": [...]}, or
{"error": [type, message]}. A fork cannot reach the socket: it writes its answer to a pipe, and this process passes it on with the
number and the size. ``clean`` says whether nothing of the call is left, neither a process nor a file. Standard library only.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import select
import shutil
import signal
import sys
import time
import types
from contextlib import suppress
from typing import Any

LONGEST = 16 << 20
"""Bytes of an answer."""
FOLDERS = ("/box", "/tmp", "/dev/shm")
"""Where a tool can write."""
MOST_FILES = 1000
"""Of a call that are removed; a sandbox with more is not used again."""
_SET_DUMPABLE = 4
_ROUNDS, _ROUND_SECONDS = 500, 0.002


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


def error(kind: str, text: str) -> bytes:
    return json.dumps({"error": [kind, text]}).encode()


def answer(function: Any, *args: Any, **arguments: Any) -> bytes:
    pid = os.getpid()
    try:
        value = function(*args, **arguments)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        told = {"tuple": list(value)} if isinstance(value, tuple) else {"value": value}
        data = json.dumps(told, default=str).encode()
    except BaseException as raised:  # noqa: BLE001 - a tool may raise anything, and the model reads it
        try:
            data = error(type(raised).__name__, str(raised))
        except BaseException:  # noqa: BLE001 - even what it raises may raise
            data = error(type(raised).__name__, "")
    if os.getpid() != pid:  # the tool forked, and both returned
        os._exit(0)
    return data if len(data) <= LONGEST else too_long()


def too_long() -> bytes:
    return error("ValueError", f"the answer is longer than {LONGEST >> 20} MiB")


def forked(function: Any, arguments: dict[str, Any], fd: int) -> bytes:
    """The answer of a call in a process of its own."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(fd)
            os.close(ours)
            readable(True)
            write(theirs, answer(function, **arguments) + b"\n")
        finally:
            os._exit(0)
    os.close(theirs)
    data, status = collected(ours, pid)
    os.close(ours)
    if len(data) > LONGEST + 1:
        return too_long()
    if not data.endswith(b"\n"):
        return error("RuntimeError", f"the tool ended its process with status {status}")
    return bytes(data[:-1])


def collected(pipe: int, pid: int) -> tuple[bytearray, int]:
    """What a process writes, up to the end of a line, and its status. What it started may hold the pipe open."""
    ended, poll, data = os.pidfd_open(pid), select.poll(), bytearray()
    for each in (pipe, ended):
        poll.register(each, select.POLLIN)
    while not data.endswith(b"\n") and len(data) <= LONGEST + 1:
        ready = [each for each, _ in poll.poll()]
        more = os.read(pipe, 1 << 16) if pipe in ready else b""
        if not more:
            break
        data += more
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(ended)
    return data, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def readable(yes: bool) -> None:
    """Whether other processes of the sandbox may read and write the memory of this one."""
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, int(yes), 0, 0, 0)


def files() -> set[tuple[Any, ...]]:
    """All files in the folders that can be written."""
    found: set[tuple[Any, ...]] = set()
    for top in FOLDERS:
        device, waiting = os.lstat(top).st_dev, [top]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for each in entries:
                    seen = each.stat(follow_symlinks=False)
                    if seen.st_dev != device:
                        continue  # a mount, which cannot be written
                    if each.is_dir(follow_symlinks=False):
                        found.add((each.path, seen.st_ino))
                        waiting.append(each.path)
                    else:
                        found.add((each.path, seen.st_ino, seen.st_mtime_ns, seen.st_size))
    return found


def cleaned(kept: set[tuple[Any, ...]]) -> bool:
    """End and remove what a call left; whether nothing is left but what was ``kept``."""
    own = {"1", str(os.getpid())}
    for _ in range(_ROUNDS):
        if not any(each.isdigit() and each not in own for each in os.listdir("/proc")):  # noqa: PTH208 - as above
            break
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but this process and the first one
        time.sleep(_ROUND_SECONDS)
    else:
        return False
    try:
        new = files() - kept
        for path, *_ in sorted(new)[:MOST_FILES]:
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - as above
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.unlink(path)  # noqa: PTH108 - as above
        return files() == kept
    except (OSError, RecursionError):
        return False


def main(fd: int, mode: str, path: str, name: str) -> None:
    os.set_inheritable(fd, False)
    code, made = load(path, name), None
    readable(False)
    kept = files()

    def tell(number: int, data: bytes, clean: bool = True) -> None:
        write(fd, json.dumps({"number": number, "size": len(data), "clean": clean}).encode() + b"\n" + data)

    def make(**arguments: Any) -> list[str]:
        nonlocal made
        made = code(**arguments)
        return [each for each in ("create", "release") if hasattr(made, each)]

    tell(0, b'{"value": "ready"}')
    unread = b""
    while True:
        data = os.read(fd, 1 << 16)
        if not data:
            return
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            asked = json.loads(line)
            if mode == "function":
                told = forked(code, asked["call"], fd)
                tell(asked["number"], told, cleaned(kept))
            elif "make" in asked:
                tell(asked["number"], answer(make, **asked["make"]))
            else:
                row = [types.SimpleNamespace(**asked["row"])] if "row" in asked else []
                tell(asked["number"], answer(getattr(made, asked["method"]), *row, **asked.get("call", {})))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
