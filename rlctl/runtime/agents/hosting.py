"""Where the environments of an agent worker run: each in a process of its own, or in threads of the worker.

    agent loop ──start, kill──▶ environment_host.py ──fork──▶ an environment
        └──open, act, close─────────────────────────────────────▲

A process that has imported the environment's code forks one for each trajectory, which is asked over a channel of its own.
Whatever becomes of an environment, a crash, a hang, too much memory, it fails no other trajectory.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from rlctl.common import own_python
from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.agents import environment_host
from rlctl.runtime.agents.environment_host import LINE_BYTES
from rlctl.runtime.agents.played import Failed, Held, Observed, Task
from rlctl.runtime.processes.process_group import end_group, status_of
from rlctl.sandbox import REAPER

START_SECONDS = 60.0
"""More for environments that are opened while their code is imported."""
ENDED_SECONDS = 5.0
"""Within which the end of a process is reported."""
STARTS = 16
"""Environments that are started at the same time."""


class EnvironmentFailed(Exception):
    """An environment did not do what it was asked."""

    def __init__(self, cause: str, text: str) -> None:
        """``cause``: ``environment_error``, ``environment_timeout``, ``environment_memory`` or ``environment_lost``."""
        super().__init__(text)
        self.cause = cause


class Unplayable(RunError):
    """The config names something that cannot be played. In a run it fails a trajectory: it could be played before."""

    cause = "environment_error"


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
            Unplayable: the config is at fault.
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
                raise Unplayable(found.text)
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
    """Environments of one task, each in a process of its own."""

    def __init__(self, timeout: float, at_once: int | None, memory_limit_mib: int | None = None) -> None:
        self._limited, self._memory = _Limited(timeout, at_once), memory_limit_mib
        self._numbers = count()
        self._starter: _Starter | None = None
        self._environments: dict[int, _Environment] = {}

    async def open(self, task: Task, seed: int) -> tuple[int, Observed]:
        if self._starter is None or self._starter.has_ended:
            self._starter = _Starter(task, self._memory)
            await self._starter.connect()
        starter, number = self._starter, next(self._numbers)
        environment = self._environments[number] = _Environment(number, starter)

        async def opened() -> Observed | Failed:
            await environment.start()
            return await environment.ask({"open": seed})

        try:
            more = 0.0 if starter.ready.is_set() else START_SECONDS
            return number, await self._limited.done(opened, more=more)
        except BaseException:
            await self.close(number)
            raise

    async def act(self, environment: int, text: str) -> Observed:
        return await self._limited.done(lambda: self._environments[environment].ask({"act": text}))

    async def close(self, environment: int) -> None:
        found = self._environments.pop(environment, None)
        if found is not None:
            found.close()

    def end(self) -> None:
        for environment in self._environments.values():
            environment.close()
        self._environments.clear()
        if self._starter is not None:
            self._starter.kill()


class _Environment:
    """The process of an environment, as the loop sees it."""

    def __init__(self, number: int, starter: _Starter) -> None:
        self._number, self._starter = number, starter
        self._numbers = count()
        self._answers = True
        """Whether every request was answered."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        """Start it.

        Raises:
            EnvironmentFailed: the process that starts it is gone.
        """
        channel = await self._starter.start(self._number)
        self._reader, self._writer = await asyncio.open_connection(sock=channel, limit=LINE_BYTES)

    async def ask(self, message: Mapping[str, Any]) -> Observed | Failed:
        """The answer to a request.

        Raises:
            EnvironmentFailed: the process has ended, or it writes something else.
        """
        assert self._reader is not None
        assert self._writer is not None
        if not self._answers:
            raise EnvironmentFailed("environment_lost", said("the environment has not answered its last request"))
        number, self._answers = next(self._numbers), False
        line = b""
        with suppress(OSError, ValueError):  # ValueError: a line that is too long
            self._writer.write(json.dumps({**message, "number": number}).encode() + b"\n")
            await self._writer.drain()
            line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EnvironmentFailed(*await self._starter.how_ended(self._number))
        try:
            told = json.loads(line)
            if told["number"] != number:
                raise ValueError
            found = Failed(told["failed"], told["config"]) if "failed" in told else Observed(**told["observed"])
        except (ValueError, TypeError, KeyError, RecursionError):
            text = said("the process of the environment wrote something else than an answer")
            raise EnvironmentFailed("environment_error", text) from None
        self._answers = True
        return found

    def close(self) -> None:
        """End it; kill it if it has not answered. Does not wait."""
        if self._writer is not None:
            with suppress(RuntimeError, OSError):
                if self._answers:
                    self._writer.write(b'{"close": true}\n')
                self._writer.close()
        if not self._answers:
            self._starter.end(self._number)


class _Starter:
    """The process that forks environments."""

    def __init__(self, task: Task, memory_limit_mib: int | None) -> None:
        self.ready = asyncio.Event()
        """Whether it has imported their code."""
        self.has_ended = False
        self._memory = memory_limit_mib
        self._starting = asyncio.Semaphore(STARTS)
        self._started: dict[int, asyncio.Future[None]] = {}
        self._ended: dict[int, asyncio.Future[tuple[int, bool]]] = {}
        """Status, and whether it had too much memory, of each that was started."""
        self._process, self._control, self._channels = _started(task, memory_limit_mib or 0)
        self._finalizer = weakref.finalize(self, _end, self._process, self._channels)

    async def connect(self) -> None:
        """Begin to read what it says."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._control)
        self._reading = asyncio.create_task(self._read())

    async def start(self, number: int) -> socket.socket:
        """Start an environment; its channel.

        Raises:
            EnvironmentFailed: the process is gone.
        """
        loop = asyncio.get_running_loop()
        await self.ready.wait()
        ours, theirs = socket.socketpair()
        try:
            async with self._starting:
                started = self._started[number] = loop.create_future()
                self._ended[number] = loop.create_future()
                if not self.has_ended:
                    with suppress(OSError):
                        socket.send_fds(self._channels, [b"0"], [theirs.fileno()])
                        self._writer.write(json.dumps({"start": number}).encode() + b"\n")
                    await started
        except BaseException:
            ours.close()
            self.end(number)
            raise
        finally:
            theirs.close()
            self._started.pop(number, None)
        if self.has_ended:
            ours.close()
            raise EnvironmentFailed(*await self.how_ended(number))
        return ours

    async def _read(self) -> None:
        with suppress(OSError):
            while line := await self._reader.readline():
                told = json.loads(line)
                if "ready" in told:
                    self.ready.set()
                elif "started" in told:
                    _settle(self._started.get(told["started"]), None)
                else:
                    _settle(self._ended.get(told["ended"]), (told["status"], told["memory"]))
        self.has_ended = True
        self.ready.set()
        for future in self._started.values():
            _settle(future, None)

    async def how_ended(self, number: int) -> tuple[str, str]:
        """Cause and text of the failure of an environment whose process closed its channel."""
        status: int | None = None
        over = False
        ended = self._ended.get(number)
        if ended is not None and not self.has_ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDED_SECONDS):
                    status, over = await asyncio.shield(ended)
        if self.has_ended and status is None:
            status = await asyncio.to_thread(status_of, self._process, 1.0)
        if over:
            how = said("needed more than {limit} MiB (memory_limit_mib)", limit=self._memory)
            return "environment_memory", said("the process of the environment {how}", how=how)
        if status is None:
            how = said("closed its connection")
        elif status < 0:
            how = said("ended by signal {name}", name=signal.Signals(-status).name)
        else:
            how = said("ended with status {status}", status=status)
        return "environment_lost", said("the process of the environment {how}", how=how)

    def end(self, number: int) -> None:
        """Kill an environment."""
        with suppress(OSError, RuntimeError):
            self._writer.write(json.dumps({"kill": number}).encode() + b"\n")

    def kill(self) -> None:
        """End it with all environments."""
        self.has_ended = True
        self._reading.cancel()
        with suppress(RuntimeError):
            self._writer.close()
        self._process.terminate()
        threading.Thread(target=self._finalizer, daemon=True).start()


def _settle(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


def _started(task: Task, memory_limit_mib: int) -> tuple[subprocess.Popen[bytes], socket.socket, socket.socket]:
    """The process, and our ends of its control and its channels."""
    (control, theirs), (channels, their_channels) = socket.socketpair(), socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    descriptors = (theirs.fileno(), their_channels.fileno())
    reaper = own_python.bare(str(REAPER), "--keep", ",".join(map(str, descriptors)), "--")
    command = own_python.module(environment_host.__name__, *map(str, descriptors), str(memory_limit_mib))
    with tempfile.TemporaryFile() as given:
        pickle.dump(task, given)
        given.seek(0)
        try:
            process = subprocess.Popen(
                [*reaper, *command],
                pass_fds=descriptors,
                stdin=given,
                env=environment,
                start_new_session=True,
            )
        finally:
            theirs.close()
            their_channels.close()
    return process, control, channels


def _end(process: subprocess.Popen[bytes], channels: socket.socket) -> None:
    process.terminate()
    status_of(process, within=5.0)
    end_group(process)
    channels.close()
