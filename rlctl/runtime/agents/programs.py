"""Agents of type ``program``: how a program is started for a trajectory, and what becomes of it.

    python     a function, in a process forked for each call (``program_child.py``)
    command    a command with the row on its standard input
    url        a POST with the row to a service that runs elsewhere

Each gets the row, and the address and token of an OpenAI endpoint that is the trajectory's own (``endpoint.py``). What it returns
is the reward, the text that ``rewards`` score, both, or nothing. Programs end with their trajectory: killed if need be.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from rlctl.common import own_python, quoting
from rlctl.common.errors import RunError
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.secrets import without_secrets
from rlctl.config.sections.agents import CommandProgram, FunctionProgram, ProgramAgent, UrlProgram
from rlctl.runtime.agents import program_child
from rlctl.runtime.agents.conversation import Renderer
from rlctl.runtime.agents.endpoint import MODEL, Endpoint, Session
from rlctl.runtime.agents.formats import AUTO, LOOKUP, format_of
from rlctl.runtime.agents.kinds import Ended, Model, returned
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.types import Prompt
from rlctl.runtime.user_code import PACKAGE, load_object
from rlctl.sandbox import REAPER

LOOPBACK = "127.0.0.1"

KEPT_BYTES = 1 << 16
"""Of what a program prints: its end."""
SHOWN_CHARACTERS = 1500
"""Of that, in an error."""
ENDING_SECONDS = 5.0
"""How long a killed program may take to end."""
LINE_BYTES = 1 << 20
PER_CORE = 16
"""Programs at the same time by default: the official client alone takes 70 ms of a core to start."""
DIRECT = "127.0.0.1,localhost"
"""Addresses that programs reach without a proxy."""


class ProgramFailed(Exception):
    """A program ended without a trajectory."""

    cause = "crashed"


class NoCall(ProgramFailed):
    """A program ended without a call of the model."""

    cause = "no_call"


class Launcher(Protocol):
    """Starts one kind of program."""

    async def run(self, session: Session, base_url: str) -> Mapping[str, Any]:
        """Run a program to its end; returns what it returned, see ``endpoint.returned``.

        Raises:
            ProgramFailed: it crashed, or returned something else.
        """
        ...

    async def close(self) -> None:
        """End what was started."""
        ...


def task_of(row: Prompt) -> dict[str, Any]:
    """A row as programs read it."""
    task = {
        "index": row.index,
        "source": row.source,
        "messages": list(row.messages),
        "prompt": row.text,
        "answer": row.answer,
        "extra": row.extra,
    }
    plain: dict[str, Any] = json.loads(json.dumps(task, default=_plain))
    return plain


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, set | tuple | Sequence) else str(value)


def variables(base_url: str, session: Session, further: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a program; the official clients of the OpenAI API read the first two."""
    direct = ",".join(filter(None, (os.environ.get("no_proxy", os.environ.get("NO_PROXY", "")), DIRECT)))
    own = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": session.token, "OPENAI_MODEL": MODEL}
    return {**os.environ, "NO_PROXY": direct, "no_proxy": direct, **further, **own}


class Command:
    """Starts a command for each trajectory.

    Its result is the last line that it prints, if that is a JSON object with ``reward`` or ``text``.
    """

    def __init__(self, command: Sequence[str], env_vars: Mapping[str, str], folder: str | None, *, where: str) -> None:
        self._command, self._env_vars, self._folder, self._where = command, env_vars, folder, where

    async def run(self, session: Session, base_url: str) -> Mapping[str, Any]:
        """Run the command."""
        task = json.dumps({**task_of(session.row), "base_url": base_url, "model": MODEL}).encode()
        status, printed, errors = await self._run(task, variables(base_url, session, self._env_vars), self._folder)
        if status:
            raise ProgramFailed(
                said(
                    "{where} ended with status {status}:\n{value}",
                    where=self._where,
                    status=status,
                    value=_shown(errors or printed),
                )
            )
        return _result_of(printed)

    async def _run(self, task: bytes, environment: Mapping[str, str], folder: str | None) -> tuple[int, str, str]:
        try:
            process = await asyncio.create_subprocess_exec(
                *own_python.bare(str(REAPER), "--", *self._command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                cwd=folder,
            )
        except OSError as error:
            raise ProgramFailed(said("{where} cannot be started: {error}", where=self._where, error=error)) from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            printed, errors, _ = await asyncio.gather(
                _tail(process.stdout), _tail(process.stderr), _fed(process.stdin, task)
            )
            return await process.wait(), printed, errors
        finally:
            await _ended(process)

    async def close(self) -> None:
        """Nothing outlives its trajectory."""


async def _fed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):  # a program need not read the row
        pipe.write(data)
        await pipe.drain()
    pipe.close()


async def _tail(pipe: asyncio.StreamReader) -> str:
    kept = b""
    while data := await pipe.read(KEPT_BYTES):
        kept = (kept + data)[-KEPT_BYTES:]
    return kept.decode(errors="replace")


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a reaper, which ends its command and all that this started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await process.wait()


def _has_ended(launch: asyncio.Task[asyncio.subprocess.Process]) -> bool:
    """Whether a process has to be launched again."""
    if not launch.done():
        return False
    return launch.cancelled() or launch.exception() is not None or launch.result().returncode is not None


def _shown(text: str) -> str:
    return without_secrets(text.strip()[-SHOWN_CHARACTERS:]) or "(it printed nothing)"


def _result_of(printed: str) -> Mapping[str, Any]:
    lines = printed.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        return {}
    if not isinstance(found, dict) or not found.keys() & {"reward", "text"}:
        return {}
    try:
        return returned({name: found[name] for name in ("reward", "text") if name in found})
    except ValueError as error:
        raise ProgramFailed(
            said("the program's last line is {lines}: {error}", lines=lines[-1][:200], error=error)
        ) from error


class Url:
    """Asks a service for each trajectory: POST with the row, answered when the program has ended."""

    def __init__(self, url: str, *, where: str) -> None:
        self._url, self._where = url, where
        self._client: Any = None

    async def run(self, session: Session, base_url: str) -> Mapping[str, Any]:
        """Ask for one trajectory."""
        import httpx

        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
            self._client = httpx.AsyncClient(timeout=httpx.Timeout(None, connect=30.0), limits=limits)
        task = {**task_of(session.row), "base_url": base_url, "api_key": session.token, "model": MODEL}
        try:
            answer = await self._client.post(self._url, json=task)
        except httpx.HTTPError as error:
            raise ProgramFailed(
                said(
                    "{where}: {url} fails: {kind}: {error}",
                    where=self._where,
                    url=self._url,
                    kind=type(error).__name__,
                    error=error,
                )
            ) from error
        if answer.status_code >= 400:
            raise ProgramFailed(
                said(
                    "{where}: {url} answers with {status_code}: {text}",
                    where=self._where,
                    url=self._url,
                    status_code=answer.status_code,
                    text=_shown(answer.text),
                )
            )
        if not answer.content.strip():
            return {}
        try:
            return returned(answer.json())
        except ValueError as error:
            raise ProgramFailed(
                said(
                    "{where}: {url} returns {text}: {error}",
                    where=self._where,
                    url=self._url,
                    text=_shown(answer.text),
                    error=error,
                )
            ) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


class Function:
    """Calls a Python function for each trajectory, in a process forked from one that has imported its file."""

    def __init__(self, path: str, name: str, args: Mapping[str, Any], *, where: str) -> None:
        self._path, self._name, self._args, self._where = path, name, args, where
        self._launch: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._errors = b""

    async def run(self, session: Session, base_url: str) -> Mapping[str, Any]:
        """Call the function.

        Raises:
            ProgramFailed: its process ended without saying why.
            RunError: its file cannot be imported.
        """
        process = await self._started(base_url, session)
        number = next(self._numbers)
        ended = self._waiting[number] = asyncio.get_running_loop().create_future()
        given = {"base_url": base_url, "api_key": session.token, "model": MODEL}
        try:
            self._send(process, {"start": number, "row": task_of(session.row), "args": dict(self._args), **given})
            status = await ended
        finally:
            self._waiting.pop(number, None)
            if ended.cancelled():
                self._send(process, {"kill": number})
        if status and "error" not in session.given:
            raise ProgramFailed(
                said("{where}: its process ended with status {status}", where=self._where, status=status)
            )
        return {}  # it was posted to the endpoint

    def _send(self, process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _started(self, base_url: str, session: Session) -> asyncio.subprocess.Process:
        """The process, started by the first trajectory that needs it and not stopped by the time limit of any."""
        if self._launch is None or _has_ended(self._launch):
            self._launch = asyncio.create_task(self._launched(base_url, session))
        return await asyncio.shield(self._launch)

    async def _launched(self, base_url: str, session: Session) -> asyncio.subprocess.Process:
        # The modules beside program_child.py must not hide those beside the program.
        child = own_python.file(program_child.__file__, self._path, self._name)
        process = await asyncio.create_subprocess_exec(
            *own_python.bare(str(REAPER), "--", *child),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=variables(base_url, session, {}),
            limit=LINE_BYTES,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(self._keep_errors(process.stderr))
        try:
            is_ready = bool(await process.stdout.readline())
        except asyncio.CancelledError:
            await _ended(process)
            raise
        if not is_ready:
            await errors
            raise RunError(
                said(
                    "{where} cannot be imported:\n{errors}",
                    where=self._where,
                    errors=_shown(self._errors.decode(errors="replace")),
                ),
                hint=said("run python {path} to see why", path=quoting.word(self._path)),
            )
        self._reading = asyncio.create_task(self._read(process))
        return process

    async def _keep_errors(self, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(KEPT_BYTES):
            self._errors = (self._errors + data)[-KEPT_BYTES:]
            sys.stderr.write(data.decode(errors="replace"))  # the worker's log

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            told = json.loads(line)
            future = self._waiting.get(told["ended"])
            if future is not None and not future.done():
                future.set_result(told["status"])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    ProgramFailed(said("{where}: the process that starts its calls has ended", where=self._where))
                )

    async def close(self) -> None:
        """End the process and all calls."""
        if self._launch is not None:
            self._launch.cancel()  # where it has not ended
            with suppress(asyncio.CancelledError, RunError, OSError):
                await _ended(await self._launch)
        if self._reading is not None:
            self._reading.cancel()


@dataclass
class Program:
    """Starts a program for each trajectory and serves the model to it."""

    config: ProgramAgent
    chat: Chat
    tool_format: str | None
    launcher: Launcher
    endpoint: Endpoint
    chat_of: Renderer
    gate: asyncio.Semaphore

    async def run(self, row: Prompt, model: Model) -> Ended:
        """Run the program for a row.

        Raises:
            ProgramFailed: it crashed before a limit ended its trajectory, or made no call.
        """
        async with self.gate:
            return await self._run(row, model)

    async def _run(self, row: Prompt, model: Model) -> Ended:
        session = Session(
            row,
            model,
            self.chat,
            self.tool_format,
            agent=self.config.name,
            max_turns=self.config.max_turns,
            max_turn_tokens=self.config.max_turn_tokens,
        )
        base_url = await self.endpoint.open(session)
        given: Mapping[str, Any] = {}
        try:
            async with model.within_time():
                given = await self.launcher.run(session, base_url)
            if "error" in session.given:
                printed = _shown(session.given["error"])
                raise ProgramFailed(
                    said("the program of the agent {name!r} failed:\n{printed}", name=self.config.name, printed=printed)
                )
        except ProgramFailed:
            # A program that a limit stopped may well end with an error: the trajectory is as long as it may be.
            if not session.ended_by or not model.recorder.calls:
                raise
        finally:
            self.endpoint.shut(session)
        if not model.recorder.calls:
            raise NoCall(
                said(
                    "the program of the agent {name!r} made no call for prompt {index} of {source}; it must send requests "
                    "to OPENAI_BASE_URL, or to the base_url that it is given, with its token",
                    name=self.config.name,
                    index=row.index,
                    source=row.source,
                )
            )
        given = {**session.given, **given}
        counts = {**session.counts, "token_drift": float(session.drifted())}
        return Ended(given.get("text", session.text), session.messages(), counts, reward=given.get("reward"))

    async def close(self) -> None:
        """End programs, and stop serving."""
        await self.launcher.close()
        await self.endpoint.close()


def make_program(agent: ProgramAgent, chat: Chat) -> Program:
    """The agent of a config, checked; nothing is started before the first trajectory.

    Raises:
        RunError: its code cannot be loaded, its command is not there, or its tool format is not that of the chat template.
    """
    where = said("the program of the agent {name!r}", name=agent.name)
    gate = asyncio.Semaphore(agent.max_concurrent or PER_CORE * len(os.sched_getaffinity(0)))
    return Program(
        agent,
        chat,
        format_of(chat, agent.tool_format, [LOOKUP], agent=agent.name, needed=agent.tool_format != AUTO),
        _launcher(agent.program, where),
        Endpoint(_address(agent)),
        Renderer(chat, None, agent=agent.name),
        gate,
    )


def _launcher(program: Any, where: str) -> Launcher:
    if isinstance(program, CommandProgram):
        folder = None if program.folder is None else str(expanded(program.folder))
        check_command(program.command, folder, where)
        return Command(program.command, program.env_vars, folder, where=where)
    if isinstance(program, UrlProgram):
        return Url(program.url, where=where)
    assert isinstance(program, FunctionProgram), f"programs of type {program.choice} are refused before"
    function = load_object(program.path, program.function, where=where)
    if not callable(function):
        raise RunError(
            said(
                "{where}: {path}:{function} is not callable", where=where, path=program.path, function=program.function
            ),
            hint="name a function",
        )
    path = program.path if program.path.startswith(PACKAGE) else str(Path(program.path).expanduser().resolve())
    return Function(path, program.function, program.args, where=where)


def _address(agent: ProgramAgent) -> str:
    if agent.listen == "loopback":
        return LOOPBACK
    from rlctl.runtime.processes.ray_access import address_of_this_machine

    return address_of_this_machine()


def check_command(command: Sequence[str], folder: str | None, where: str) -> None:
    """Refuse a command that cannot be started.

    Raises:
        RunError: there is no such command or folder.
    """
    import shutil

    if not command:
        raise RunError(
            said("{where} has no command", where=where), hint="set program.command to the command and its arguments"
        )
    if folder is not None and not Path(folder).is_dir():
        raise RunError(
            said("{where}: there is no folder {folder}", where=where, folder=folder),
            hint="set program.folder to an existing folder",
        )
    at = folder if folder is not None and "/" in command[0] else None
    found = shutil.which(command[0] if at is None else str(Path(at) / command[0]))
    if found is None:
        raise RunError(
            said("{where}: there is no command {command}", where=where, command=command[0]),
            hint="set program.command to an installed program",
        )
