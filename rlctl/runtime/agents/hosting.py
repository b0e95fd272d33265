"""Where the environments of an agent worker run: in a process beside it, or in its threads.

    agent loop ──open, act, close──▶ host ──▶ environments, each operation in a thread of the host

One process holds the environments of many trajectories. A step that takes too long fails its trajectory. If the process still
answers, it only gets no further environments, and is ended when the last one is closed; else it is killed, and so the others
in it are lost. After a crash all of them are. Their trajectories are made again, in a new process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.agents import environment_host
from rlctl.runtime.agents.environment_host import OUT_OF_MEMORY
from rlctl.runtime.agents.played import Failed, Held, Observed, Task
from rlctl.runtime.processes.process_group import end_group, status_of
from rlctl.sandbox import REAPER

PING_SECONDS = 2.0
"""A host that does not answer within this is stuck."""
START_SECONDS = 60.0
"""More for the first operation of a process, which imports the environment's packages."""


class EnvironmentFailed(Exception):
    """An environment did not do what it was asked."""

    def __init__(self, cause: str, text: str) -> None:
        """``cause``: ``environment_error``, ``environment_timeout``, ``environment_memory`` or ``environment_lost``."""
        super().__init__(text)
        self.cause = cause


class Host(Protocol):
    """Runs environments."""

    async def open(self, task: Task, seed: int) -> tuple[int, Observed]:
        """Make and reset an environment; its number, and what it shows."""
        ...

    async def act(self, environment: int, text: str) -> Observed:
        """Take an action."""
        ...

    async def close(self, environment: int) -> None:
        """End an environment."""
        ...

    def end(self) -> None:
        """End all."""
        ...


class _Limited:
    """Operations with a time limit, of which only so many run at the same time."""

    def __init__(self, timeout: float, at_once: int | None) -> None:
        self._timeout = timeout
        self._room = asyncio.Semaphore(at_once) if at_once else None

    async def done(self, operation: Any, *, more: float = 0.0) -> Observed:
        """The result of an operation.

        Raises:
            EnvironmentFailed: it fails, or takes too long.
            RunError: the config is at fault.
        """
        if self._room is None:
            return await self._awaited(operation, more)
        async with self._room:
            return await self._awaited(operation, more)

    async def _awaited(self, operation: Any, more: float) -> Observed:
        try:
            async with asyncio.timeout(self._timeout + more):
                found = await operation()
        except TimeoutError:
            raise EnvironmentFailed(
                "environment_timeout", said("an environment took longer than {seconds:g} s", seconds=self._timeout)
            ) from None
        if isinstance(found, Failed):
            if found.is_config:
                raise RunError(found.text)
            raise EnvironmentFailed("environment_error", found.text)
        assert isinstance(found, Observed), "open and act are answered with what is observed"
        return found


class ThreadHost:
    """Environments in threads of this process. One that hangs keeps its thread."""

    def __init__(self, threads: ThreadPoolExecutor, timeout: float, at_once: int | None) -> None:
        self._held, self._threads, self._numbers = Held(), threads, count()
        self._limited = _Limited(timeout, at_once)

    async def open(self, task: Task, seed: int) -> tuple[int, Observed]:
        number = next(self._numbers)
        return number, await self._limited.done(lambda: self._run("open", number, (task, seed)))

    async def act(self, environment: int, text: str) -> Observed:
        return await self._limited.done(lambda: self._run("act", environment, (text,)))

    async def close(self, environment: int) -> None:
        self._threads.submit(self._held.do, "close", environment, ())

    async def _run(self, operation: str, number: int, arguments: Sequence[Any]) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._held.do, operation, number, arguments)

    def end(self) -> None:
        """Its threads belong to the agent worker."""


class ProcessHost:
    """Environments in a process beside this one, which is replaced when it crashes or hangs."""

    def __init__(self, timeout: float, at_once: int | None, memory_limit_mib: int | None = None) -> None:
        self._limited, self._memory = _Limited(timeout, at_once), memory_limit_mib
        self._numbers = count()
        self._current: _Process | None = None
        self._of: dict[int, _Process] = {}
        """The process of each open environment."""

    async def open(self, task: Task, seed: int) -> tuple[int, Observed]:
        number = next(self._numbers)
        if self._current is None or not self._current.takes:
            self._current = _Process(asyncio.get_running_loop(), self._memory)
        process = self._of[number] = self._current
        process.open += 1
        more = 0.0 if process.has_answered else START_SECONDS
        try:
            return number, await self._done(process, "open", number, (task, seed), more)
        except BaseException:
            await self.close(number)
            raise

    async def act(self, environment: int, text: str) -> Observed:
        return await self._done(self._of[environment], "act", environment, (text,))

    async def _done(
        self, process: _Process, operation: str, number: int, arguments: Sequence[Any], more: float = 0.0
    ) -> Observed:
        try:
            return await self._limited.done(lambda: process.ask(operation, number, arguments), more=more)
        except EnvironmentFailed as error:
            if error.cause == "environment_timeout":
                await self._retire(process)
            raise

    async def _retire(self, process: _Process) -> None:
        """Give a process with a hanging environment no further ones; kill it if it answers nothing at all."""
        process.takes = False
        try:
            async with asyncio.timeout(PING_SECONDS):
                await process.ask("ping", -1, ())
        except (TimeoutError, EnvironmentFailed):
            process.kill()

    async def close(self, environment: int) -> None:
        process = self._of.pop(environment, None)
        if process is None:
            return
        process.open -= 1
        process.tell("close", environment)
        if not process.takes and not process.open:
            process.kill()

    def end(self) -> None:
        for process in {*self._of.values(), *([self._current] if self._current else [])}:
            process.kill()


class _Process:
    """A process of environments, as the loop's thread sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory_limit_mib: int | None) -> None:
        self.open = 0
        """Environments in it."""
        self.takes = True
        """Whether it gets further ones."""
        self.has_answered = False
        self._loop, self._numbers = loop, count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._memory = memory_limit_mib
        self._process, self._connection = _started(memory_limit_mib or 0)
        self._finalizer = weakref.finalize(self, _ended, self._process, self._connection)
        threading.Thread(target=self._read, name="environments", daemon=True).start()

    async def ask(self, operation: str, environment: int, arguments: Sequence[Any]) -> Any:
        """The answer to an operation.

        Raises:
            EnvironmentFailed: the process is gone.
        """
        number = next(self._numbers)
        future = self._waiting[number] = self._loop.create_future()
        try:
            try:
                self._connection.send((number, operation, environment, arguments))
            except (OSError, ValueError):
                self._lost()
            return await future
        finally:
            self._waiting.pop(number, None)

    def tell(self, operation: str, environment: int) -> None:
        """Do an operation whose answer matters to nothing."""
        with suppress(OSError, ValueError):
            self._connection.send((next(self._numbers), operation, environment, ()))

    def _read(self) -> None:
        """In a thread: hand answers to the loop."""
        while True:
            try:
                number, result = self._connection.recv()
            except Exception:  # noqa: BLE001 - whatever it says that is no answer, it is of no use any more
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._lost)
                return
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._answered, number, result)

    def _answered(self, number: int, result: Any) -> None:
        self.has_answered = True
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(result)

    def _lost(self) -> None:
        self.takes = False
        cause, how = self._how()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(EnvironmentFailed(cause, said("the process of the environment {how}", how=how)))

    def _how(self) -> tuple[str, str]:
        status = status_of(self._process, within=1.0)
        if status == OUT_OF_MEMORY:
            return "environment_memory", said("needed more than {limit} MiB (memory_limit_mib)", limit=self._memory)
        if status is None:
            return "environment_lost", said("closed its connection")
        if status < 0:
            return "environment_lost", said("ended by signal {name}", name=signal.Signals(-status).name)
        return "environment_lost", said("ended with status {status}", status=status)

    def kill(self) -> None:
        """End it with everything that it started."""
        self.takes = False
        self._process.terminate()
        threading.Thread(target=self._finalizer, daemon=True).start()


def _started(memory_limit_mib: int) -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = Pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    descriptor = theirs.fileno()
    try:
        reaper = (sys.executable, "-I", "-S", str(REAPER), "--keep", str(descriptor), "--")
        process = subprocess.Popen(
            [*reaper, sys.executable, "-P", "-m", environment_host.__name__, str(descriptor), str(memory_limit_mib)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    finally:
        theirs.close()
    return process, ours


def _ended(process: subprocess.Popen[bytes], connection: Connection) -> None:
    process.terminate()
    status_of(process, within=5.0)
    end_group(process)
    connection.close()
