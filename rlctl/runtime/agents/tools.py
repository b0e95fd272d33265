"""The tools of an agent: where they come from, what the model is told of them, and how a call is answered.

    function   any Python function, also a coroutine; its schema comes from its signature and docstring
    mcp        the tools of an MCP server (``mcp_tools.py``)
    file       the tools that a file of verl's form lists (``tool_files.py``)
    class      an object for each trajectory: ``execute`` is called, ``create`` (with the row) before and ``release`` after,
               if it has them

Functions and classes run in the sandbox (``confined.py``) unless the config says that they are trusted.

Whatever goes wrong in a call is the text of its answer, so the model can react; it is counted by kind.

A tool may return a reward with its answer, as verl's do: ``(answer, reward)`` or ``(answer, reward, metrics)``.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl import sandbox
from rlctl.common.errors import RunError, SandboxUnavailable
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.config.sections.agents import McpTool, PythonTool, Tool, ToolFile, ToolsAgent, TrajectoryAgent
from rlctl.runtime.agents.confined import ConfinedFunction, ConfinedObject, Raised, code_of
from rlctl.runtime.agents.formats import Schema, ToolCall, Unreadable
from rlctl.runtime.agents.mcp_tools import offered
from rlctl.runtime.agents.tool_files import listed_tools
from rlctl.runtime.data.chat import AgentPrompt
from rlctl.runtime.types import Prompt
from rlctl.runtime.user_code import PACKAGE, Escaped, contained, encodable, load_object

CUT = "(truncated)"


@dataclass(frozen=True)
class LoadedTool:
    """A tool of the config with its code."""

    name: str
    schema: Schema
    run: Callable[..., Any]
    """The function, or the class."""
    args: Mapping[str, Any]
    is_class: bool
    reward: float = 0.0
    """Of a call that succeeds, besides what the code returns."""
    close: Callable[[], Awaitable[None]] | None = None
    """Ends what outlives trajectories; tools of one server share it."""
    gate: asyncio.Semaphore | None = None
    """Entered for each call before its time begins."""
    in_turn: bool = False
    """Whether calls of an object follow one another."""


def load_tools(agent: ToolsAgent) -> list[LoadedTool]:
    """Import the tools of an agent.

    Raises:
        RunError: one cannot be imported, has no schema, or two have one name.
    """
    if not agent.tools:
        raise RunError(
            said("the agent {name!r} has no tools", name=agent.name),
            hint="list tools of the agent, or set rollout.default_agent to null",
        )
    found = [
        each
        for place, tool in enumerate(agent.tools)
        for each in _loaded(tool, said("tools[{place}] of the agent {name!r}", place=place, name=agent.name))
    ]
    names = Counter(tool.name for tool in found)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise RunError(
            said(
                "{names} tools of the agent {name!r} are called {twice}; a call would not say which",
                names=names[twice[0]],
                name=agent.name,
                twice=twice[0],
            ),
            hint="rename one of the functions",
        )
    return found


def _loaded(tool: Tool, where: str) -> list[LoadedTool]:
    if isinstance(tool, McpTool):
        return [
            LoadedTool(schema["function"]["name"], schema, call, {}, False, tool.reward, server.close)
            for schema, call, server in offered(tool, where)
        ]
    if isinstance(tool, ToolFile):
        return [
            LoadedTool(each.schema["function"]["name"], each.schema, each.run, {}, each.is_class, tool.reward)
            for each in listed_tools(tool, where)
        ]
    assert isinstance(tool, PythonTool), f"tools of type {tool.choice} do not exist"
    return [_load(tool, where)]


def _load(tool: PythonTool, where: str) -> LoadedTool:
    run = load_object(tool.path, tool.name, where=where)
    is_class = inspect.isclass(run)
    if not callable(run) or (is_class and not callable(getattr(run, "execute", None))):
        raise RunError(
            said(
                "{where}: {path}:{name} is {value}",
                where=where,
                path=tool.path,
                name=tool.name,
                value="a class without execute" if is_class else "not callable",
            ),
            hint="name a function, or a class with a method execute",
        )
    if tool.args and not is_class:
        raise RunError(
            said(
                "{where} has args, but {name} is a function; only a class is made with args",
                where=where,
                name=tool.name,
            ),
            hint="remove args, or write a class with execute",
        )
    schema = dict(tool.schema) if tool.schema else _schema_of(run, tool.name, where)
    name = str(schema["function"]["name"])
    if tool.trusted:
        return LoadedTool(name, schema, run, tool.args, is_class, tool.reward)
    file = tool.path if tool.path.startswith(PACKAGE) else str(Path(tool.path).expanduser().resolve())
    code = code_of(file, tool.name, "class" if is_class else "function", tool.memory_limit_mib)
    if is_class:
        return LoadedTool(
            name, schema, lambda **args: ConfinedObject(code, args), tool.args, True, tool.reward, in_turn=True
        )
    confined = ConfinedFunction(code)
    return LoadedTool(name, schema, confined.call, {}, False, tool.reward, confined.close, confined.gate)


def check_sandbox(agent: ToolsAgent) -> None:
    """Refuse an agent whose tools cannot be confined on this machine.

    Raises:
        RunError: they cannot.
    """
    confined = [tool.name for tool in agent.tools if isinstance(tool, PythonTool) and not tool.trusted]
    if not confined:
        return
    try:
        sandbox.find_bwrap()
    except SandboxUnavailable as error:
        raise RunError(
            said(
                "the tool {confined} of the agent {name!r} is to run in the sandbox: {message}",
                confined=confined[0],
                name=agent.name,
                message=error.message,
            ),
            hint=said("{hint}; or set trusted: true for tools that may do whatever you may", hint=error.hint),
        ) from error


def _schema_of(run: Any, name: str, where: str) -> Schema:
    from transformers.utils import get_json_schema
    from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException

    called: Any = types.MethodType(vars(run)["execute"], object()) if inspect.isclass(run) else run
    try:
        schema: dict[str, Any] = get_json_schema(called)
    except (DocstringParsingException, TypeHintParsingException, TypeError, ValueError) as error:
        raise RunError(
            said(
                "{where}: no schema can be made from the signature and docstring of {name}: {error}",
                where=where,
                name=name,
                error=error,
            ),
            hint="give every parameter a type and a line under Args: in the docstring, or set schema of the tool",
        ) from error
    shown = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).lower() if inspect.isclass(run) else name
    return {**schema, "function": {**schema["function"], "name": shown.rpartition(".")[2]}}


def agent_prompts(agents: Mapping[str, TrajectoryAgent]) -> dict[str, AgentPrompt]:
    """What prompts show of each agent, by name; nothing of agents that call no tools.

    Raises:
        RunError: a tool cannot be loaded.
    """
    return {
        name: AgentPrompt(
            [tool.schema for tool in load_tools(agent)],
            agent.system_prompt,
            agent.tool_selection_key,
            agent.tool_args_key,
        )
        for name, agent in agents.items()
        if isinstance(agent, ToolsAgent)
    }


@dataclass(slots=True)
class Toolbox:
    """The tools of one trajectory."""

    agent: ToolsAgent
    tools: Mapping[str, LoadedTool]
    threads: ThreadPoolExecutor
    """Runs functions that are not coroutines."""
    counts: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)
    """Of the calls that were run, in their order; 0 for one that failed."""
    _objects: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    """Classes of the trajectory by name; calls of one generation may ask for one at the same time."""
    _made: list[Any] = field(default_factory=list)
    """All objects, to release them, whether or not their ``create`` succeeded."""
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    """Of objects whose calls follow one another."""

    async def answer(self, calls: Sequence[ToolCall | Unreadable], row: Prompt) -> list[dict[str, Any]]:
        """The tool messages that answer the calls of one generation, in their order.

        Up to ``max_parallel_calls`` run at the same time; each of the others is answered with an error.
        """
        answers = await asyncio.gather(*(self._answered(place, call, row) for place, call in enumerate(calls)))
        self.rewards += [reward for _, reward in answers if reward is not None]
        return [message for message, _ in answers]

    async def _answered(
        self, place: int, call: ToolCall | Unreadable, row: Prompt
    ) -> tuple[dict[str, Any], float | None]:
        """The message that answers a call, and its reward; None if it was not run."""
        reward = None
        name = call.name if isinstance(call, ToolCall) else "unknown"
        self.counts["calls"] += 1
        most = self.agent.max_calls
        if most is not None and self.counts["calls"] > most:
            text = self._failed("surplus_calls", f"only {most} calls are run in a trajectory")
        elif place >= self.agent.max_parallel_calls:
            text = self._failed("surplus_calls", f"only {self.agent.max_parallel_calls} calls are run in a turn")
        elif isinstance(call, Unreadable):
            text = self._failed("unreadable_calls", f"the call could not be read: {call.why}")
        elif call.name not in self.tools:
            known = ", ".join(self.tools) or "none"
            text = self._failed("unknown_tools", f"no tool {call.name}; there are {known}")
        else:
            text, reward = await self._run(self.tools[call.name], call.arguments, row)
        return {"role": "tool", "name": name, "content": self._cut(encodable(text))}, reward

    def _failed(self, kind: str, why: str) -> str:
        self.counts[kind] += 1
        return f"Error: {why}"

    async def _run(self, tool: LoadedTool, arguments: Mapping[str, Any], row: Prompt) -> tuple[str, float]:
        async with self._turn(tool):
            limit = asyncio.timeout(self.agent.tool_timeout)
            try:
                async with limit:
                    function = await self._function(tool, row)
                    text, reward = told(await self._called(function, **arguments))
                    return text, reward + tool.reward
            except (RunError, SandboxUnavailable):
                raise  # it can never be called
            except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the model reads it
                if limit.expired():
                    why = f"{tool.name} took longer than {self.agent.tool_timeout:g} s"
                    return self._failed("tool_timeouts", why), 0.0
                return self._failed("tool_errors", _reason(error)), 0.0

    def _turn(self, tool: LoadedTool) -> AbstractAsyncContextManager[Any]:
        """What a call waits for before its time begins."""
        if tool.in_turn:
            return self._locks.setdefault(tool.name, asyncio.Lock())
        return tool.gate or nullcontext()

    async def _function(self, tool: LoadedTool, row: Prompt) -> Callable[..., Any]:
        if not tool.is_class:
            return tool.run
        if tool.name not in self._objects:
            self._objects[tool.name] = asyncio.create_task(self._object(tool, row))
        # Shielded: the time limit of one call must not take the object from the others.
        execute: Callable[..., Any] = (await asyncio.shield(self._objects[tool.name])).execute
        return execute

    async def _object(self, tool: LoadedTool, row: Prompt) -> Any:
        made = await self._called(tool.run, **tool.args)
        self._made.append(made)
        if hasattr(made, "create"):
            await self._called(made.create, row, **row.extra.get("tool_args", {}).get(tool.name, {}))
        return made

    async def _called(self, function: Callable[..., Any], *args: Any, **arguments: Any) -> Any:
        with contained():
            if inspect.iscoroutinefunction(function):
                return await function(*args, **arguments)
            loop = asyncio.get_running_loop()
            value = await loop.run_in_executor(self.threads, contained()(lambda: function(*args, **arguments)))
            return await value if inspect.isawaitable(value) else value

    def _cut(self, text: str) -> str:
        limit = self.agent.max_tool_response_characters
        if len(text) <= limit:
            return text
        self.counts["cut_answers"] += 1
        if self.agent.tool_truncation == "left":
            return f"{CUT}...{text[-limit:]}"
        if self.agent.tool_truncation == "right":
            return f"{text[:limit]}...{CUT}"
        first = limit // 2
        return f"{text[:first]}...{CUT}...{text[len(text) - (limit - first) :]}"

    async def release(self) -> None:
        """End the objects of the trajectory; what they raise is dropped, as nothing can be done about it."""
        for task in self._objects.values():
            task.cancel()
        await asyncio.gather(*self._objects.values(), return_exceptions=True)
        for made in self._made:
            if hasattr(made, "release"):
                with suppress(Exception):
                    async with asyncio.timeout(self.agent.tool_timeout):
                        await self._called(made.release)
        self._objects.clear()
        self._made.clear()


def _reason(error: Exception) -> str:
    """What a tool raised, as the model reads it."""
    if isinstance(error, Raised):
        return str(error)
    return error.text if isinstance(error, Escaped) else f"{type(error).__name__}: {error}"


def told(value: Any) -> tuple[str, float]:
    """The answer and the reward in what a tool returned; 0 if it returned no reward.

    Raises:
        ValueError: the reward is not finite.
    """
    reward: Any = None
    if isinstance(value, tuple) and 2 <= len(value) <= 3 and isinstance(value[0], str) and _may_reward(value[1]):
        value, reward = value[:2]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if reward is not None and not math.isfinite(reward):
        raise ValueError(f"the reward of the call is {reward}")
    return text, float(reward or 0.0)


def _may_reward(value: Any) -> bool:
    return value is None or is_number(value)
