"""verl: agents. The tool agent, agent loops of the user's, and what chooses between them, which changed between releases.

Up to 0.6, SGLang's synchronous rollout runs turns and tools itself if ``multi_turn.enable`` is true. Otherwise verl only logs
that key and runs the agent loop that the row's ``agent_name`` or ``agent.default_agent_loop`` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from rlctl.adapters.engine.agents import (
    AGENTS,
    OfAgent,
    is_played,
    lost_agent,
    of_other_agents,
    sources_of_rows,
    tools_agent,
)
from rlctl.adapters.engine.conditions import always
from rlctl.adapters.engine.one_sided_rows import ReadOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Reading,
    Rule,
    Same,
    Version,
    Writing,
    split,
    version_of,
)
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.verl.requirements import TOOL_FORMATS
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, finding
from rlctl.config import Config
from rlctl.config.sections.agents import SINGLE_TURN, OtherAgent, ToolFormat, ToolsAgent
from rlctl.planning.column_types import column_types

R = "actor_rollout_ref.rollout"
M = f"{R}.multi_turn"
LOOP, ENABLE, LOOPS = f"{R}.agent.default_agent_loop", f"{M}.enable", f"{R}.agent.agent_loop_config_path"
FORMAT = f"{M}.format"
CLASSES, FUNCTIONS = f"{M}.tool_config_path", f"{M}.function_tool_path"
FIRST_WITH = {CLASSES: "0.4", FUNCTIONS: "0.8"}
SINGLE, TOOLS = "single_turn_agent", "tool_agent"
COLUMN = "agent_name"
BY_ENGINE = "SGLang runs turns and tools itself"
UNUSED = "only the tool agent reads it, and responses have one turn"


class ToolFormats(Same):
    """Formats of tool calls, of which verl parses fewer and derives none from the chat template."""

    def write(self, value: Any, view: Writing) -> Any:
        if value == "auto":
            raise InexpressibleError("verl does not detect the format of tool calls: it reads hermes; set tool_format")
        if value not in TOOL_FORMATS:
            raise InexpressibleError("verl cannot parse tool calls of this format: no call of the model would run")
        return value


SETTINGS: tuple[Rule, ...] = (
    Key(
        f"{M}.max_assistant_turns",
        "max_turns",
        also=(DialectKey(f"{M}.max_turns"),),
    ),
    Key(f"{M}.max_user_turns", "max_observations"),
    Key(
        f"{M}.max_parallel_calls",
        "max_parallel_calls",
        note="verl removes further calls from the message, rlctl answers them with an error",
    ),
    Key(f"{M}.max_tool_response_length", "max_tool_response_characters"),
    Key(f"{M}.tool_response_truncate_side", "tool_truncation"),
    Key(FORMAT, "tool_format", convert=ToolFormats()),
)


def _by_engine(version: Version, enabled: Any, engine: Any, mode: Any) -> bool:
    """Whether the engine runs turns and tools, whatever the agent loop is."""
    return version < (0, 7) and bool(enabled) and engine == "sglang" and mode == "sync"


def loop_of(view: Reading) -> str:
    """The agent loop of rows that name none."""
    if _by_engine(view.version, view.get(ENABLE), view.get(f"{R}.name"), view.get(f"{R}.mode", "sync")):
        return TOOLS
    return str(view.get(LOOP) or SINGLE)


def agent_of(view: Reading) -> str:
    """The agent that is read: of rows that name none, or the tool agent of rows that name it."""
    loop = loop_of(view)
    return TOOLS if loop == SINGLE and any(view.get(key) for key in (CLASSES, FUNCTIONS)) else loop


def has_tools(view: Reading) -> bool:
    """Whether there is a tool agent that rlctl has; one with a parser of the user's is an agent that only verl has."""
    return agent_of(view) == TOOLS and view.get(FORMAT, "hermes") in get_args(ToolFormat)


def _read(view: Reading) -> Iterator[Flow]:
    loop, agent, to = loop_of(view), agent_of(view), (*view.to(AGENTS), 0)
    used = tuple(view.path(key) for key in (LOOP, ENABLE) if view.written(key))
    if has_tools(view):
        note = BY_ENGINE if loop == TOOLS and view.get(LOOP) in (None, SINGLE) else ""
        yield Flow((*to, "type"), "tools", used, "derived" if note else "mapped", note)
        yield Flow((*to, "name"), TOOLS, used)
        files = [key for key in (CLASSES, FUNCTIONS) if view.get(key)]
        for index, key in enumerate(files):
            yield Flow((*to, "tools", index, "type"), "file", (view.path(key),))
            yield Flow((*to, "tools", index, "path"), view.get(key), (view.path(key),), same=True)
    elif agent != SINGLE:
        yield Flow((*to, "type"), "other", used)
        yield Flow((*to, "framework"), "verl", used)
        yield Flow((*to, "name"), agent, used, same=True)
        yield Flow((*to, "kind"), agent, used, same=True)
        for key in (LOOPS, *(key.name for rule in SETTINGS for key in rule.keys), CLASSES, FUNCTIONS):
            if view.get(key) is not None and view.written(key):
                name = key.removeprefix(f"{R}.").removeprefix("agent.")
                yield Flow((*to, "args", name), view.get(key), (view.path(key),), same=True)
    elif view.written(ENABLE):
        yield Flow((), None, (view.path(ENABLE),), "dead", said("{name} decides", name=LOOP))
    yield Flow(view.to("rollout.default_agent"), loop if loop != SINGLE else None, used if loop != SINGLE else used[:1])
    if agent != SINGLE:
        for kind, key in (("train", "data.train_files"), ("eval", "data.val_files")):
            for index in range(len(files_of(view.get(key)))):
                yield Flow(("data", kind, index, "agent_key"), COLUMN, ())


def written_agent(config: Config) -> int | None:
    """The place of the agent that is written: verl's own loop or class if it is the default, or the one with tools."""
    for place, agent in enumerate(config.rollout.agents):
        names = config.rollout.default_agent, TOOLS
        if isinstance(agent, OtherAgent) and agent.framework == "verl" and agent.name in names:
            return place
    return _shown_tools(config)


def _shown_tools(config: Config) -> int | None:
    """The place of the agent with tools; one without any is read again only if it is the default."""
    place = tools_agent(config)
    if place is None:
        return None
    agent = config.rollout.agents[place]
    assert isinstance(agent, ToolsAgent)
    return place if agent.tools or agent.name == config.rollout.default_agent else None


NO_TOOLS = "it has no tools, and the default agent is another one"
NO_ENVIRONMENTS = "verl has no environments"
NOT_VERLS = "verl needs an agent loop class for it; the written run answers each row once and scores the answer"


def _write(view: Writing) -> Iterator[Out]:
    chosen, default = written_agent(view.config), view.config.rollout.default_agent
    for place, agent in enumerate(view.config.rollout.agents):
        if place == chosen:
            continue
        reason = NOT_VERLS
        if isinstance(agent, ToolsAgent):
            reason = "verl has one list of tools for all rows" if chosen is not None else NO_TOOLS
        played = is_played(agent)
        yield from lost_agent(view, place, NO_ENVIRONMENTS if played else reason, implies=not played)
    used = (view.to("rollout.default_agent"),)
    if chosen is None:
        if default in (None, SINGLE_TURN):
            yield Flow((), None, used, "mapped", "one answer for each row")
        return
    agent, root = view.config.rollout.agents[chosen], (*view.to(AGENTS), chosen)
    if isinstance(agent, OtherAgent):
        yield from _write_loop(view, agent, root)
        return
    assert isinstance(agent, ToolsAgent)
    yield from _write_tools(view, agent, root)
    named = (*used, (*root, "type"))
    if agent.name == TOOLS:
        yield Flow((), None, ((*root, "name"),), "mapped", "verl's name for it")
    else:
        yield Inexpressible(((*root, "name"), *used), said("verl calls it {name}", name=TOOLS), idle=True)
    if default in (None, SINGLE_TURN):
        yield Flow((), None, named, "mapped", said("rows name it in the column {column}", column=COLUMN))
    elif _by_engine(view.version, default, view.get("rollout.engine.type"), "sync"):
        yield Flow(view.path(ENABLE), True, named, always=True)
    elif view.version < (0, 6):
        yield Inexpressible(
            named, said("this release has no {key}; name it in the column {column}", key=LOOP, column=COLUMN)
        )
    else:
        yield Flow(view.path(ENABLE), True, named, always=True)
        yield Flow(view.path(LOOP), TOOLS, named, always=True)


def _write_loop(view: Writing, agent: OtherAgent, root: tuple[Any, ...]) -> Iterator[Out]:
    used = (view.to("rollout.default_agent"), *((*root, name) for name in ("type", "kind", "name", "framework")))
    if view.config.rollout.default_agent != agent.name:
        yield Flow((), None, used, "mapped", said("rows name it in the column {column}", column=COLUMN))
    elif view.version < (0, 6):
        yield Inexpressible(used, said("this release has no {key}", key=LOOP))
    else:
        yield Flow(view.path(LOOP), agent.kind, used, always=True)
    for name, value in agent.args.items():
        key = f"{R}.{name}" if name.startswith("multi_turn.") else f"{R}.agent.{name}"
        yield Flow(view.path(key), value, ((*root, "args", name), (*root, "args")), same=True, always=True)


def _write_tools(view: Writing, agent: ToolsAgent, root: tuple[Any, ...]) -> Iterator[Out]:
    """Its tools: files of verl's form, and functions of one Python file, which verl wants marked."""
    taken: dict[str, str] = {}
    for index, tool in enumerate(view.get(AGENTS)[root[-1]]["tools"]):
        place = (*root, "tools", index)
        path = tool.get("path")
        is_function = tool["type"] == "python" and not path.startswith("pkg://") and not tool["args"]
        key = FUNCTIONS if is_function or (path or "").endswith(".py") else CLASSES
        places = tuple((*place, name) for name in tool)
        if tool["type"] == "mcp":
            yield Inexpressible(places, "verl has no MCP tools: the model is not shown these tools")
        elif taken.get(key, path) != path:
            yield Inexpressible(places, said("verl reads one file from {key}", key=key))
        elif tool["type"] == "python" and not is_function:
            yield Inexpressible(
                places, "verl reads classes from a YAML file: list it there with its schema, and name the file"
            )
        elif view.version < version_of(FIRST_WITH[key]):
            yield Inexpressible(places, said("this release has no {key}", key=key))
        else:
            yield Flow(view.path(key), path, ((*place, "path"), (*place, "type")), same=True, always=True)
            if tool["type"] == "python":
                reason = said("mark the functions of {path} with verl's @function_tool", path=path)
                yield Inexpressible(((*place, "name"), (*place, "schema")), reason)
            taken[key] = path
    if not agent.tools:
        yield Flow((), None, ((*root, "tools"),), "mapped", "no tools")


def _is_unused(view: Reading) -> bool:
    """Whether the settings of tools stand in a file whose responses have one turn."""
    return agent_of(view) == SINGLE


def _counted(key: str, own: str) -> ReadOnly:
    """A key that names the tools which the data's length filter counts, if these are the agent's."""
    return ReadOnly(
        key,
        "rlctl counts the tools that the agent shows",
        when=lambda view: view.get(key) in (None, view.get(own)),
    )


COUNTED = (("data.tool_config_path", CLASSES), ("data.function_tool_path", FUNCTIONS))
"""The keys, and those of the tools that the agent shows."""
RULES: list[Rule] = [
    CustomRule(
        "agent",
        (
            DialectKey(LOOP),
            DialectKey(ENABLE),
            *(DialectKey(key) for key, since in FIRST_WITH.items()),
            DialectKey(LOOPS),
        ),
        (
            "rollout.default_agent",
            AGENTS,
            *(f"{AGENTS}[].{name}" for name in ("type", "name", "kind", "framework", "args", "tools")),
            *(
                f"{AGENTS}[].tools[].{name}"
                for name in ("type", "path", "name", "args", "schema", "command", "url", "env_vars", "tools")
            ),
        ),
        _read,
        _write,
        "default_agent_loop, or the row's agent_name",
        by_key={
            LOOP: (AGENTS, "rollout.default_agent"),
            ENABLE: (AGENTS, "rollout.default_agent"),
            LOOPS: f"{AGENTS}[].args",
            **dict.fromkeys(FIRST_WITH, f"{AGENTS}[].tools[].path"),
        },
        why="A list of agents with their tools is one loop of verl's, chosen by its release, its engine and its rows.",
    ),
    OfAgent(SETTINGS, has_tools, _shown_tools, ""),
    *(
        ReadOnly(key.name, UNUSED, since=key.since, until=key.until, when=_is_unused, dead=always)
        for rule in SETTINGS
        for key in rule.keys
    ),
    *(_counted(key, own) for key, own in COUNTED),
    Key(f"{R}.agent.num_workers", "rollout.agent_workers"),
    *(sources_of_rows(kind, COLUMN, "verl") for kind in ("train", "eval")),
    *of_other_agents(),
]


def on_read(values: Mapping[str, Any], version: Version) -> Iterator[Finding]:
    """A warning of tools that no response uses, unless rows name the tool agent."""

    def value(key: str, default: Any) -> Any:
        found = find(values, split(key))
        return default if found in (ABSENT, None) else found

    enabled, loop = value(ENABLE, default=False), value(LOOP, SINGLE)
    named = next((key for key in (CLASSES, FUNCTIONS) if value(key, default=None)), None)
    asks = ENABLE if enabled is True else named
    mode = value(f"{R}.mode", "sync")
    if asks is None or loop != SINGLE or version < (0, 5) or (version < (0, 6) and mode != "async"):
        return
    if not _by_engine(version, enabled, value(f"{R}.name", "vllm"), mode):
        columns = _columns(value("data.train_files", default=None))
        if COLUMN not in columns:
            yield finding("tools-unused", Level.WARNING if columns else Level.NOTE, asks, loop=LOOP)


def _columns(files: Any) -> set[str]:
    """The columns of the training files that are here; empty if none is."""
    paths = [expanded(str(name).removeprefix("file://")) for name in files_of(files)]
    return {name for path in paths for name in column_types(path)}
