"""The agents of a config, made and checked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import (
    SINGLE_TURN,
    EnvironmentAgent,
    FunctionAgent,
    ProgramAgent,
    ToolsAgent,
    TrajectoryAgent,
)
from rlctl.config.sections.model import Model
from rlctl.runtime.agents.acting import Acting, make_acting
from rlctl.runtime.agents.conversation import Renderer
from rlctl.runtime.agents.formats import format_of, stop_tokens
from rlctl.runtime.agents.kinds import Agent, Function, SingleTurn, Tools
from rlctl.runtime.agents.programs import make_program
from rlctl.runtime.agents.tools import check_sandbox, load_tools
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.user_code import load_object


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """What the agents of a run are made from."""

    agents: Mapping[str, TrajectoryAgent]
    """By name."""
    default_agent: str
    """Of rows that name none."""
    model: Model
    """The policy."""
    trust_tokenizer_code: bool
    retries: int
    """Of a trajectory that is lost."""
    seed: int
    """Of the run."""


def make_agent(agent: TrajectoryAgent, chat: Chat, threads: ThreadPoolExecutor, seed: int) -> Agent:
    """An agent of a config, checked. ``seed``: of the run, for its environments.

    Raises:
        RunError: its code cannot be loaded, or its tool format is not that of the chat template.
    """
    if isinstance(agent, ProgramAgent):
        return make_program(agent, chat)
    if isinstance(agent, ToolsAgent):
        check_sandbox(agent)
        tools = load_tools(agent)
        schemas = [tool.schema for tool in tools]
        renderer = Renderer(chat, schemas, agent=agent.name)
        tool_format = format_of(chat, agent.tool_format, schemas, agent=agent.name)
        assert tool_format is not None, "it is needed"
        renderer.between([{"role": "tool", "name": tools[0].name, "content": "answer"}], [])
        return Tools(agent, tools, tool_format, stop_tokens(chat, tool_format), renderer, threads)
    if isinstance(agent, EnvironmentAgent):
        return make_acting(agent, chat, threads, seed)
    assert isinstance(agent, FunctionAgent), f"agents of type {agent.choice} are refused before"
    function = load_object(agent.path, agent.function, where=f"the agent {agent.name!r}")
    if not inspect.iscoroutinefunction(function):
        raise RunError(
            said(
                "{path}:{function}, the agent {name!r}, is not a coroutine function",
                path=agent.path,
                function=agent.function,
                name=agent.name,
            ),
            hint="define it with async def",
        )
    return Function(agent, function, Renderer(chat, None, agent=agent.name))


def make_agents(spec: AgentSpec, chat: Chat, threads: ThreadPoolExecutor) -> dict[str, Agent]:
    """All agents that rows may use, by name, and ``single_turn``.

    Raises:
        RunError: see ``make_agent``.
    """
    plain = FunctionAgent(name=SINGLE_TURN, path="")
    agents: dict[str, Agent] = {SINGLE_TURN: SingleTurn(plain, Renderer(chat, None, agent=SINGLE_TURN))}
    for name, agent in spec.agents.items():
        agents[name] = make_agent(agent, chat, threads, spec.seed)
    return agents


def check_agent_code(spec: AgentSpec, tokenizer: Any) -> None:
    """Check the agents of a config with its tokenizer, before workers start.

    Raises:
        RunError: see ``make_agent``; or an environment cannot be made and reset.
    """
    chat = Chat(tokenizer, template_args=spec.model.chat_template_args)
    with ThreadPoolExecutor(1) as threads:
        for agent in make_agents(spec, chat, threads).values():
            if isinstance(agent, Acting):
                asyncio.run(_probed(agent))


async def _probed(agent: Acting) -> None:
    try:
        await agent.probe()
    finally:
        await agent.close()
