"""Python tools in the sandbox: the model writes their arguments.

A function has sandboxes that each serve one call at a time and are used again; every call runs in a fork there. An object of a
class has its own sandbox for its trajectory. Requests and answers have numbers. A sandbox is used again only after an answer to
its last request, of which nothing is left: one in which a call was given up, that passed a limit, or that wrote anything else is
ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from rlctl import sandbox
from rlctl.common import own_python
from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.agents import confined_child
from rlctl.runtime.user_code import PACKAGE

AT_ONCE = 16
"""Sandboxes of one function."""
STARTING_SECONDS = 60.0
LINE_BYTES = 1 << 16
"""The longest line before an answer."""
FOREVER = 30 * 86400.0
"""The tool's own time limit ends a call long before."""
_TEXT = Path(confined_child.__file__).read_text()


@dataclass(frozen=True, slots=True)
class Code:
    """A tool's code."""

    path: str
    name: str
    mode: str
    """``function`` or ``class``."""
    memory_mib: int
    copy: tempfile.TemporaryDirectory[str] | None
    """Of the file and the modules beside it; None for an installed module."""

    def profile(self) -> sandbox.Profile:
        """What it sees: Python, its packages, and the copy where the file is, read-only."""
        own = () if self.copy is None else (sandbox.Mount(self.copy.name, str(Path(self.path).parent)),)
        return sandbox.Profile(
            mounts=(*sandbox.python_mounts(), *own),
            folders=("/box", "/tmp"),
            folder="/box",
            environment={
                "PATH": sandbox.PATH,
                "HOME": "/box",
                "TMPDIR": "/box",
                "LANG": "C.UTF-8",
                **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            },
            limits=sandbox.Limits(seconds=FOREVER, memory_mib=self.memory_mib),
        )


def code_of(path: str, name: str, mode: str, memory_mib: int) -> Code:
    """The code of a tool; the file is copied, since a sandbox of root may not read the folders of users."""
    if path.startswith(PACKAGE):
        return Code(path, name, mode, memory_mib, None)
    copy = tempfile.TemporaryDirectory(prefix="rlctl-tool-")
    to = Path(copy.name)
    for each in Path(path).parent.iterdir():
        if each.suffix == ".py" and each.is_file():
            shutil.copyfile(each, to / each.name)
        elif (each / "__init__.py").is_file():
            shutil.copytree(each, to / each.name, ignore=shutil.ignore_patterns("__pycache__"))
    for each in (to, *to.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    return Code(path, name, mode, memory_mib, copy)


class Raised(Exception):
    """What a tool raised: the name of its type, and its text."""


class Sandboxed:
    """A sandbox with a tool's code."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._ours, self._theirs = socket.socketpair()
        self._wake, self._stop = os.pipe2(os.O_CLOEXEC)
        self._process: sandbox.Process | None = None
        self._result: sandbox.Result | None = None
        self._error: Exception | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count()
        self._asking = False
        self._ended = threading.Event()
        # The kernel ends a sandbox with the thread that started it.
        self._thread = threading.Thread(target=self._watch, name="confined-tool", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        fd = self._theirs.fileno()
        command = own_python.isolated("-c", _TEXT, str(fd), self._code.mode, self._code.path, self._code.name)
        try:
            with sandbox.Process(command, self._code.profile(), bwrap=sandbox.find_bwrap(), pass_fds=(fd,)) as process:
                self._theirs.close()
                self._process = process
                while process.result is None:
                    poll = select.poll()
                    for each in (*process.descriptors, self._wake):
                        poll.register(each, select.POLLIN)
                    ready = [each for each, _ in poll.poll(max(0.0, process.due - time.monotonic()) * 1000)]
                    if self._wake in ready:
                        break
                    process.step(ready)
            self._result = process.result
        except Exception as error:  # noqa: BLE001 - it is raised where the sandbox is asked
            self._error = error
        finally:
            self._theirs.close()
            self._ended.set()
            os.close(self._wake)

    async def start(self) -> None:
        """Wait until the code is imported.

        Raises:
            RunError: it cannot be imported in the sandbox.
            SandboxUnavailable: there is no sandbox here.
        """
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=self._ours, limit=LINE_BYTES)
            async with asyncio.timeout(STARTING_SECONDS):
                await self._answer(next(self._numbers))
        except (OSError, TimeoutError, EOFError, _Garbled) as error:
            raise RunError(
                said(
                    "the tool {path}:{name} cannot be imported in the sandbox: {why}",
                    path=self._code.path,
                    name=self._code.name,
                    why=await self._why(),
                ),
                hint="set trusted: true for a tool that needs the network or other files",
            ) from error
        except BaseException:
            self.close()
            raise

    async def _why(self) -> str:
        """Why it ended; it is ended if it has not."""
        self.close()
        await asyncio.to_thread(self._ended.wait, STARTING_SECONDS)
        if self._error is not None:
            raise self._error
        if self._result is None:
            return "it did not end"
        errors = self._result.stderr.decode(errors="replace").strip().splitlines()
        return f"{self._result.stopped or f'status {self._result.status}'}{': ' + errors[-1] if errors else ''}"

    async def ask(self, message: Mapping[str, Any]) -> Any:
        """Have a call made. Whatever ends it but an answer ends the sandbox too.

        Raises:
            Raised: the tool raised something.
            RuntimeError: the sandbox ended, for example because it passed its limit of memory.
        """
        assert not self._asking, "a sandbox serves one call at a time"
        if not self.runs or self._writer is None or self._process is None:
            raise RuntimeError("the tool's sandbox ended with an earlier call")
        self._asking, number = True, next(self._numbers)
        try:
            self._process.forget_output()
            self._writer.write(json.dumps({**message, "number": number}, default=str).encode() + b"\n")
            await self._writer.drain()
            answer, clean = await self._answer(number)
        except (OSError, EOFError) as error:
            raise RuntimeError(f"the tool's sandbox ended: {await self._why()}") from error
        except _Garbled as error:
            self.close()
            raise RuntimeError("the tool wrote something else to its sandbox than an answer; it was ended") from error
        except BaseException:
            self.close()
            raise
        finally:
            self._asking = False
        if not clean:
            self.close()
        return _told(answer)

    async def _answer(self, number: int) -> tuple[bytes, bool]:
        """The bytes of an answer, and whether nothing is left of its call."""
        assert self._reader is not None
        try:
            line = await self._reader.readline()
        except ValueError as error:  # too long
            raise _Garbled from error
        if not line.endswith(b"\n"):
            raise EOFError
        try:
            told = json.loads(line)
            found, size, clean = told["number"], told["size"], told["clean"]
            if found != number or not 0 <= size <= confined_child.LONGEST:
                raise _Garbled
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _Garbled from error
        return await self._reader.readexactly(size), clean is True

    @property
    def runs(self) -> bool:
        """Whether it can be asked again."""
        return self._stop >= 0 and not self._ended.is_set()

    def close(self) -> None:
        """End the sandbox; does not wait."""
        if self._stop >= 0:
            os.close(self._stop)
            self._stop = -1
        if self._writer is not None:
            with suppress(RuntimeError):
                self._writer.close()
        else:
            self._ours.close()


class _Garbled(Exception):
    """Something came that is not the answer to the request."""


def _told(data: bytes) -> Any:
    """What a tool returned.

    Raises:
        Raised: it raised something.
        RuntimeError: its process wrote something else.
    """
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        told = None
    match told:
        case {"error": [str(kind), str(text)]}:
            raise Raised(f"{kind}: {text}")
        case {"tuple": list(values)}:
            return tuple(values)
        case {"value": value}:
            return value
    raise RuntimeError("the tool's process wrote something else than an answer")


class ConfinedFunction:
    """A function; calls it have a sandbox each while they run."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._idle: list[Sandboxed] = []
        self.gate = asyncio.Semaphore(AT_ONCE)
        """Held by whoever calls."""

    async def call(self, **arguments: Any) -> Any:
        """Call the function.

        Raises:
            Exception: see ``Sandboxed.ask``.
        """
        idle = self._idle.pop() if self._idle else None
        if idle is not None and not idle.runs:
            idle.close()
            idle = None
        used = idle or Sandboxed(self._code)
        try:
            if idle is None:
                await used.start()
            return await used.ask({"call": arguments})
        finally:
            if used.runs:
                self._idle.append(used)

    async def close(self) -> None:
        """End all sandboxes."""
        for each in self._idle:
            each.close()
        self._idle.clear()


class ConfinedObject:
    """An object of a class, in its own sandbox. Its calls follow one another."""

    def __init__(self, code: Code, args: Mapping[str, Any]) -> None:
        self._sandboxed, self._args = Sandboxed(code), args
        self._has: Sequence[str] | None = None

    async def create(self, row: Any, **arguments: Any) -> None:
        """Make the object, and tell it of its row, with the row's arguments for it."""
        await self._sandboxed.start()
        self._has = await self._sandboxed.ask({"make": dict(self._args)})
        if "create" in self._has:
            fields = ("index", "source", "text", "answer", "extra", "messages")
            task = {name: getattr(row, name) for name in fields}
            await self._sandboxed.ask({"method": "create", "row": task, "call": arguments})

    async def execute(self, **arguments: Any) -> Any:
        """Call it."""
        return await self._sandboxed.ask({"method": "execute", "call": arguments})

    async def release(self) -> None:
        """End it."""
        try:
            if self._has and "release" in self._has and self._sandboxed.runs:
                await self._sandboxed.ask({"method": "release"})
        finally:
            self._sandboxed.close()
