"""Agents that call the model several times in a trajectory: the list ``rollout.agents``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Range, Seconds, Tokens, Unit, section


@section
class Tool:
    """A tool that the model can call."""

    path: str
    """Python file with it, or ``pkg://`` and an installed module."""
    name: str
    """Function or class in it. A function's schema comes from its signature and docstring; a class has ``execute``, and
    optionally ``create`` and ``release`` around each trajectory."""
    args: dict[str, Any] = {}
    """Arguments that a class is made with."""
    schema: dict[str, Any] = {}
    """JSON schema shown to the model, in OpenAI's form; empty derives it from the code."""


@section
class TrajectoryAgent(Choice):
    """A program that makes a trajectory of a prompt."""

    name: str
    """Name by which ``rollout.default_agent`` selects it."""


@section
class ToolsAgent(TrajectoryAgent, type="tools"):
    """The model calls tools until it answers without a call."""

    tools: tuple[Tool, ...] = ()
    """Tools that the model can call."""
    tool_format: Literal["hermes", "qwen3_coder"] = "hermes"
    """How the model writes calls. Before a run, rlctl renders a call with the chat template and parses it back."""
    max_turns: Count | None = None
    """Generations per trajectory; calls of the last one are not run. null = until the token limit."""
    max_turn_tokens: Tokens | None = None
    """Longest generation; null = what is left of ``rollout.max_response_tokens``, which limits the trajectory."""
    max_parallel_calls: Count = 1
    """Calls of one generation that run, at the same time; the others are answered with an error."""
    max_tool_response_characters: Annotated[int, Unit("characters"), Range(at_least=1)] = 256
    """Characters kept of a tool's answer. Higher values show the model more of it."""
    tool_truncation: Literal["left", "middle", "right"] = "middle"
    """Part that is cut from a longer answer."""
    tool_timeout: Seconds = 60.0
    """Longest call; a longer one is answered with an error."""


@section
class FunctionAgent(TrajectoryAgent, type="function"):
    """A Python coroutine that calls the model."""

    path: str
    """Python file with it, or ``pkg://`` and an installed module."""
    function: str = "run"
    """Coroutine in it, called with the row, the sampling and the model."""
    args: dict[str, Any] = {}
    """Further keyword arguments of the coroutine."""
