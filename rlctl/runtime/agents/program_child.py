"""Runs Python functions as agent programs, each call in a process forked from this one: ``program_child.py FILE FUNCTION``.

Reads one JSON object a line from standard input:

    {"start": 7, "row": {...}, "args": {...}, "base_url": "...", "api_key": "...", "model": "..."}
    {"kill": 7}

The file is imported once, here; a call's process is ready in milliseconds and can be killed alone. It posts what the function
returns, or its traceback, to ``base_url/reward``. This process writes ``{"ended": 7, "status": 0}`` for each call that ended.
Standard library only.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import select
import signal
import sys
import traceback
import urllib.request
from typing import Any

PACKAGE = "pkg://"
TRACEBACK_CHARACTERS = 4000


def load(path: str, name: str) -> Any:
    if path.startswith(PACKAGE):
        return getattr(importlib.import_module(path.removeprefix(PACKAGE).strip("/").replace("/", ".")), name)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120 - starts fast without pathlib
    spec = importlib.util.spec_from_file_location("rlctl_program", path)
    assert spec is not None, f"{path} is not a Python file"
    assert spec.loader is not None, f"{path} is not a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def post(url: str, token: str, value: dict[str, Any]) -> None:
    request = urllib.request.Request(
        url,
        json.dumps(value).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(request, timeout=60).close()


def call(function: Any, asked: dict[str, Any]) -> Any:
    """What the function returns; it gets the row, and whatever else of the call it has parameters for."""
    given = {name: asked[name] for name in ("base_url", "api_key", "model")}
    known = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in known.values())
    keywords = {name: value for name, value in given.items() if takes_all or name in known}
    result = function(asked["row"], **keywords, **asked["args"])
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def run(function: Any, asked: dict[str, Any]) -> int:
    os.environ |= {"OPENAI_BASE_URL": asked["base_url"], "OPENAI_API_KEY": asked["api_key"]}
    try:
        result = call(function, asked)
    except BaseException:  # noqa: BLE001 - whatever ends the function is shown to the user
        post(f"{asked['base_url']}/reward", asked["api_key"], {"error": traceback.format_exc()[-TRACEBACK_CHARACTERS:]})
        return 1
    if hasattr(result, "item"):
        result = result.item()
    if result is not None:
        value = result if isinstance(result, dict) else {"text" if isinstance(result, str) else "reward": result}
        try:
            post(f"{asked['base_url']}/reward", asked["api_key"], value)
        except (OSError, TypeError) as error:
            told = error.read().decode() if hasattr(error, "read") else str(error)
            said = f"the program returned {str(result)[:200]!r}: {told[:500]}"
            post(f"{asked['base_url']}/reward", asked["api_key"], {"error": said})
            return 1
    return 0


def main(path: str, name: str) -> None:
    function = load(path, name)
    print(json.dumps({"ready": True}), flush=True)
    calls: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    unread = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            reap(calls)
        if 0 not in ready:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            return
        *lines, unread = (unread + data).split(b"\n")
        for line in lines:
            take(json.loads(line), function, calls)


def take(asked: dict[str, Any], function: Any, calls: dict[int, int]) -> None:
    if "kill" in asked:
        for pid, number in calls.items():
            if number == asked["kill"]:
                os.killpg(pid, signal.SIGKILL)
        return
    pid = os.fork()
    if pid:
        os.setpgid(pid, pid)
        calls[pid] = asked["start"]
        return
    status = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)  # the other end reads only what this process writes
        status = run(function, asked)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def reap(calls: dict[int, int]) -> None:
    while calls:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        if pid in calls:
            print(json.dumps({"ended": calls.pop(pid), "status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
