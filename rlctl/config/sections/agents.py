"""Agents that call the model several times in a trajectory: the list ``rollout.agents``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Fraction, Local, Range, Seconds, Tokens, Unit, section

SINGLE_TURN = "single_turn"
"""The name under which data and ``rollout.default_agent`` mean one generation per response, without an agent."""
ToolFormat = Literal[
    "auto",
    "hermes",
    "qwen3_coder",
    "glm",
    "seed",
    "minimax",
    "kimi",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v4",
    "gemma4",
    "gpt-oss",
    "mistral",
    "llama3_json",
    "pythonic",
]
"""Names of ``rlctl/runtime/agents/formats.py``."""
Framework = Literal["verl", "trinity", "roll"]
AtLimit = Literal["train", "mask", "zero_reward"]


@section
class Credit:
    """How a trajectory is rewarded."""

    reward: Literal["auto", "function", "sum", "last"] = "auto"
    """Reward of a trajectory. function: ``rewards`` score it, or the agent returns its reward. sum, last: all rewards of its
    turns, or that of its last turn, plus the scores of ``rewards`` that apply. auto = sum for environments and with
    ``tool_rewards: add``, function otherwise."""
    turns: Literal["broadcast", "own"] = "broadcast"
    """Place of the reward. broadcast: at the trajectory's end. own: each turn's reward at the end of that turn, for advantages
    that discount; ``rewards`` stay at the trajectory's end."""
    tool_rewards: Literal["ignore", "add"] = "ignore"
    """Whether rewards of tools are rewards of the turns that called them. ignore: only a reward function sees them, as in verl.
    A tool gives a reward by its ``reward``, or by returning ``(answer, reward)``."""


@section
class Tool(Choice):
    """A tool that the model can call."""


@section
class PythonTool(Tool, type="python"):
    """A Python function, or a class with an object for each trajectory."""

    path: str
    """Python file with the tool, or ``pkg://`` and an installed module."""
    name: str
    """Function or class in that file. A function's schema comes from its signature and docstring. A class has
    ``execute``, and optionally ``create`` and ``release`` around each trajectory."""
    args: dict[str, Any] = {}
    """Constructor arguments of a class."""
    schema: dict[str, Any] = {}
    """JSON schema shown to the model, in OpenAI's form. Empty = derived from the code."""
    trusted: bool = False
    """Run it in the agent worker, with your permissions, instead of in the sandbox. The sandbox has no network; it sees Python,
    its packages, and the modules in the folder of the file."""
    memory_limit_mib: Annotated[int, Unit("MiB"), Range(at_least=64)] = 1024
    """Memory of a sandbox; a call that needs more is answered with an error."""
    reward: float = 0.0
    """Reward of a call that succeeds, added to what the tool itself returns as reward; see ``credit.tool_rewards``."""


@section
class ToolFile(Tool, type="file"):
    """The tools that a file of verl's form lists."""

    path: str
    """YAML file with classes and their schemas (verl's ``tool_config_path``), or Python file whose functions
    ``@function_tool`` marks (``function_tool_path``)."""
    reward: float = 0.0
    """Reward of a call that succeeds, added to what the tool itself returns as reward; see ``credit.tool_rewards``."""


@section
class McpTool(Tool, type="mcp"):
    """The tools of an MCP server: started by a command, or reached by URL."""

    command: tuple[str, ...] = ()
    """Command that starts a server which communicates over standard input and output. Empty if ``url`` is set."""
    url: str | None = None
    """Address of a running server. null = start ``command``."""
    env_vars: dict[str, str] = {}
    """Environment variables of the command."""
    tools: tuple[str, ...] = ()
    """Tools of the server that the model can call. Empty = all of them."""
    reward: float = 0.0
    """Reward of a call that succeeds; see ``credit.tool_rewards``."""


@section
class Environment(Choice):
    """Where an agent acts: ``reset(seed)`` and ``step(action)``, as gymnasium defines them."""


@section
class RunningEnvironment(Environment):
    """Settings of every environment that rlctl runs."""

    args: dict[str, Any] = {}
    """Arguments for creating the environment."""
    seed: Literal["group", "row", "fixed"] = "group"
    """Seed of ``reset``. group: the same for the responses to one prompt, different in each step. row: the same for a
    data row whenever it is used. fixed: the same for all. All derive from ``run.seed``."""
    isolation: Literal["process", "thread"] = "process"
    """Where the environment runs. process: each in its own process, forked from one that has imported its code; a crash or hang
    fails only its own trajectory. thread: in the agent worker; steps are faster, but a crash loses all trajectories of the
    worker."""
    timeout: Seconds = 60.0
    """Seconds that a reset or step may take. A longer one fails the trajectory."""
    max_concurrent_steps: Count | None = None
    """Steps that run at the same time in one agent worker. null = no limit besides its threads."""
    memory_limit_mib: Annotated[int, Unit("MiB"), Range(at_least=64)] | None = None
    """Memory of an environment's process. One that needs more is ended, and its trajectory fails. null = no limit.
    ``isolation: thread`` has no limit."""


@section
class GymnasiumEnvironment(RunningEnvironment, type="gymnasium"):
    """An environment of gymnasium's registry."""

    id: str
    """Id of the environment (``FrozenLake-v1``), or ``module:id`` if importing the module registers it."""


@section
class PythonEnvironment(RunningEnvironment, type="python"):
    """A class or function of yours that makes an environment."""

    path: str
    """Python file with the class or function, or ``pkg://`` and an installed module."""
    name: str
    """Class or function in that file, called with ``args``. The environment has ``reset(seed=...)`` and
    ``step(action)``, and optionally ``close``."""


@section
class OtherEnvironment(Environment, type="other"):
    """An environment that only one framework has. rlctl converts it but cannot run it."""

    framework: Framework
    """Framework that it belongs to."""
    kind: str
    """Name of the environment in that framework (``webshop``)."""
    args: dict[str, Any] = {}
    """Settings in that framework, by name."""


@section
class Program(Choice):
    """A program that calls the model over an OpenAI-compatible endpoint."""


@section
class FunctionProgram(Program, type="python"):
    """A Python function in a separate process, called with the row and the address of the endpoint."""

    path: str
    """Python file with the function, or ``pkg://`` and an installed module."""
    function: str = "run"
    """Function in that file that runs a trajectory."""
    args: dict[str, Any] = {}
    """Further keyword arguments of the function."""


@section
class CommandProgram(Program, type="command"):
    """A command, in any environment or container."""

    command: tuple[str, ...]
    """Command and arguments. It reads the row as JSON from standard input and the endpoint's address from
    environment variables."""
    env_vars: dict[str, str] = {}
    """Environment variables of the command. They override those of the agent worker."""
    folder: Annotated[str | None, Local()] = None
    """Folder in which the command is started. null = the folder from which the run was started."""


@section
class UrlProgram(Program, type="url"):
    """A service that runs elsewhere. rlctl sends one POST per trajectory, with the row and the endpoint's address."""

    url: str
    """Address of the service."""


@section
class TrajectoryAgent(Choice):
    """A program that turns a prompt into a trajectory."""

    name: str
    """Name by which ``rollout.default_agent`` and ``data`` select it."""


@section
class RunningAgent(TrajectoryAgent):
    """Settings of every agent that rlctl runs."""

    model: str = "policy"
    """Model that generates the trajectory: ``policy``, or ``random``, which generates random tokens without an engine, to try
    an agent. The agent's code calls ``rollout.auxiliary_models`` by name."""
    max_turns: Count | None = None
    """Generations per trajectory. Calls in the last one are not run. null = no limit but the token limit."""
    max_turn_tokens: Tokens | None = None
    """Longest generation. null = the rest of ``rollout.max_response_tokens``, which limits the trajectory."""
    time_limit: Seconds | None = None
    """Longest duration of a trajectory, including waiting. A longer one ends after its last complete turn. null = no
    limit."""
    on_token_limit: AtLimit = "train"
    """What happens to a trajectory that reaches the token limit. train: train on it. mask: don't train on it, but
    count its reward in the group. zero_reward: train on it with reward 0."""
    on_turn_limit: AtLimit = "train"
    """What happens to a trajectory that reaches ``max_turns`` or ``time_limit``: train, mask or zero_reward, as for
    ``on_token_limit``."""
    samples: Literal["branch", "trajectory", "turn"] = "branch"
    """Training sequences of a trajectory. branch: a call whose prompt starts with all tokens of an earlier call
    continues its sequence. trajectory: one sequence; an agent that rewrites its context fails. turn: one sequence
    per call."""
    tokens: Literal["exact", "retokenized"] = "exact"
    """Which tokens are trained on: the generated ones, or the final conversation tokenized again, as Trinity does."""
    credit: Credit = Credit()
    """How a trajectory is rewarded."""
    on_failure: Literal["retry", "drop_response", "drop_group", "zero"] = "retry"
    """What happens to a failed trajectory. retry: run it again, up to ``rollout.timeouts.retries`` times, then drop
    its group. drop_response: drop it. drop_group: drop its group and sample another. zero: keep what it has, with
    reward 0."""
    stop_run_above_failures: Fraction = 0.5
    """The run stops if a larger share of a step's trajectories fails. 1 = never."""


@section
class ToolsAgent(RunningAgent, type="tools"):
    """The model calls tools until it answers without a call."""

    tools: tuple[Tool, ...] = ()
    """Tools that the model can call."""
    system_prompt: str | None = None
    """System message for rows that have none. null = none."""
    tool_format: ToolFormat = "auto"
    """How the model writes calls. auto = the format that the chat template writes. Before a run, rlctl renders a call with the
    chat template and parses it back."""
    tool_selection_key: str | None = "extra_info.tool_selection"
    """Column with the names of the tools that a row may call; dots lead into structures. A row without it may call all. null =
    all rows may call all tools."""
    tool_args_key: str | None = "extra_info.tools_kwargs"
    """Column with further arguments of ``create``, by tool name; dots lead into structures. null = none."""
    max_observations: Count | None = None
    """Turns with tool answers per trajectory. Calls of the next generation are not run. null = no limit."""
    max_parallel_calls: Count = 1
    """Calls of one generation that run at the same time. Further calls get an error as their answer."""
    max_calls: Count | None = None
    """Most calls per trajectory. Further calls get an error as their answer. null = no limit."""
    max_tool_response_characters: Annotated[int, Unit("characters"), Range(at_least=1)] = 256
    """Characters kept of a tool's answer. Higher values show the model more of it."""
    tool_truncation: Literal["left", "middle", "right"] = "middle"
    """Which part of a longer answer is cut."""
    tool_timeout: Seconds = 60.0
    """Longest call. A call that takes longer gets an error as its answer."""


@section
class EnvironmentAgent(RunningAgent, type="environment"):
    """The model acts in an environment: it reads observations and writes actions."""

    environment: Environment
    """The environment; each trajectory has its own."""
    system_prompt: str | None = None
    """System message for rows that have none. null = none."""
    opening_template: str | None = None
    """Text of the first message, after the row's prompt if it has one. Fields: ``{observation}``, ``{prompt}`` and those of
    ``template``. null = ``template``."""
    template: str = "{observation}"
    """Text of each observation. Fields: ``{observation}``, ``{turn}`` (from 1), ``{turns_done}``, ``{turns_left}``, ``{reward}``
    (of the last action), ``{history}`` (of ``history_turns``), ``{history_length}`` (turns in it), and ``{info[KEY]}`` of what
    the environment returned."""
    history_template: str = "{observation}\n{action}\n"
    """Text of one earlier turn in ``{history}``. Fields: ``{observation}``, ``{action}``, ``{reward}``, ``{turn}``."""
    history_turns: Annotated[int, Unit("turns"), Range(at_least=0)] | None = None
    """Number of earlier turns shown as ``{history}``. The conversation is then a single message, and each turn is a
    training sequence. null = keep the whole conversation; a trajectory is one sequence."""
    observation: Literal["auto", "value", "render"] = "auto"
    """Text of an observation: the environment's value, or what ``render()`` returns. auto = the value if it is text, else the
    rendering if ``render_mode`` is ansi, else the value."""
    action_pattern: str | None = None
    """Regular expression that finds the action: the last match in the generation, its first group if it has one.
    null = the whole text without surrounding spaces."""
    actions: dict[str, Any] = {}
    """Action for each text, ignoring case: ``{up: 3}``. Empty = pass the text on, or its number if the action space
    is discrete."""
    invalid_action_reward: float = 0.0
    """Reward of a turn without a valid action. The environment is not stepped."""
    invalid_action_text: str = "This is not a valid action. Valid actions: {actions}."
    """Observation after such a turn. Fields: ``{actions}``, ``{observation}`` (the last one)."""
    on_invalid_action: Literal["continue", "end"] = "continue"
    """Whether the trajectory continues after such a turn."""


@section
class ProgramAgent(RunningAgent, type="program"):
    """Any program that calls the model over an OpenAI-compatible endpoint, started for each trajectory."""

    program: Program
    """Program that is started for each trajectory."""
    tool_format: ToolFormat = "auto"
    """How the model writes the calls of tools that the program names in its requests. auto = the format that the chat template
    writes; if it writes none, requests with tools are refused."""
    max_concurrent: Count | None = None
    """Most programs that run at the same time in one agent worker. null = 16 per CPU core."""
    listen: Literal["loopback", "cluster"] = "loopback"
    """Where programs can reach the endpoint. loopback: only on the agent worker's machine. cluster: also from other
    machines and containers, at the machine's address in the Ray cluster; requests are not encrypted."""


@section
class FunctionAgent(RunningAgent, type="function"):
    """A Python coroutine that calls the model."""

    path: str
    """Python file with the coroutine, or ``pkg://`` and an installed module."""
    function: str = "run"
    """Coroutine in that file, called with the row, the sampling settings and the model."""
    args: dict[str, Any] = {}
    """Further keyword arguments of the coroutine."""


@section
class OtherAgent(TrajectoryAgent, type="other"):
    """An agent that only one framework has, such as a workflow class. rlctl converts it but cannot run it."""

    framework: Framework
    """Framework that it belongs to."""
    kind: str
    """Name or class of the agent in that framework (``alfworld_workflow``)."""
    args: dict[str, Any] = {}
    """Settings in that framework, by name."""
