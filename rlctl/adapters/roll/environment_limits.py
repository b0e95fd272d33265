"""What ROLL refuses of the environments that its managers name: settings of each, tools, and classes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.class_paths import class_fault
from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.roll.devices import DevicesError, parse_devices
from rlctl.adapters.roll.requirement_values import is_agentic
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.report import Level

Environment = Mapping[str, Any]
AGENTIC = "roll/pipeline/agentic"
MANAGERS = ("train_env_manager", "val_env_manager")
PER_WORKER = "max_env_num_per_worker"
SOKOBAN = ("sokoban", "sokoban_native_env", "sokoban_tool_call")
TOOLS = ("python_code", "search", "mcp")
"""Tools that ROLL registers."""
BASES = ("RolloutCache", "BaseEnvManager", "TrajEnvManager")
RUNNERS = ("AgentRunner", "GEMRunner", "ToolCallRunner")
OWN: Mapping[str, tuple[str, ...]] = {
    **{
        f"roll.pipeline.agentic.env_manager.{module}": (*BASES, *names)
        for module, names in {
            "base_env_manager": (),
            "traj_env_manager": (),
            "step_env_manager": ("StepEnvManager",),
            "step_concat_env_manager": ("StepEnvManager", "StepConcatEnvManager"),
            "vl_traj_env_manager": ("VLTrajEnvManager",),
            "agent_native_env_manager": ("AgentNativeStepEnvManager", "GroupFilter"),
            "proxy_env_manager": ("ProxyEnvManager",),
        }.items()
    },
    **{f"roll.pipeline.agentic.agent_runner.{module}": RUNNERS for module in ("base", "gem_runner")},
    **{
        f"roll.pipeline.agentic.agent_runner.rock{module}": ("RockAgentRunner", "PullModeRunner", "PushModeRunner")
        for module in ("", ".rock_agent_runner", ".pull_runner", ".push_runner")
    },
}
"""Classes of ROLL's that environments name, by module, with those that the module imports."""


@record
class Setting:
    """A setting of an environment that ROLL tests."""

    key: str
    """Below the environment."""
    concerns: Callable[[Environment], bool]
    """The environments that read it."""
    refused: Callable[[Any], object]
    expected: str
    source: str


def value_in(environment: Environment, key: str) -> Any:
    """A setting of an environment; None if it lacks it."""
    value: Any = environment
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def used_environments(values: Values) -> Iterator[tuple[str, Environment]]:
    """The environments that the managers name, each with its settings."""
    known = values["custom_envs"] or {}
    tags = [
        str(tag) for manager in MANAGERS if values.written(f"{manager}.tags") for tag in values[f"{manager}.tags"] or ()
    ]
    for tag in dict.fromkeys(tags):
        if isinstance(known.get(tag), Mapping):
            yield tag, known[tag]


def _of_type(*types: str) -> Callable[[Environment], bool]:
    return lambda environment: environment.get("env_type") in types


def _among(*names: str) -> Callable[[Any], object]:
    return lambda value: value is not None and value not in names


def _of_rock(environment: Environment) -> bool:
    return "agent_runner.rock" in str(environment.get("agent_runner_cls") or "")


def _no_indexes(value: Any) -> bool:
    """Whether ``idx_range`` is neither a list of numbers nor Python text for one."""
    if value is None:
        return False
    if not isinstance(value, str):
        return not isinstance(value, list | tuple) or any(not _is_index(item) for item in value)
    try:
        parse_devices(value)
    except DevicesError:
        return _is_no_list(value)
    return False


def _is_index(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and value.lstrip("-").isdigit())


def _is_no_list(text: str) -> bool:
    """Whether a text is no Python, or a plain value other than a list."""
    try:
        return not isinstance(ast.literal_eval(text), list | tuple)
    except SyntaxError:
        return True
    except (ValueError, TypeError, RecursionError):
        return False  # an expression that is not evaluated here


def _is_crowded(environment: Environment) -> bool:
    """Whether a room of Sokoban has too few places inside its walls for the player and the boxes, however it is made."""
    boxes = value_in(environment, "env_config.num_boxes")
    is_one = environment.get("env_type") in SOKOBAN
    return is_one and _places(environment) <= (4 if boxes is None else int(boxes)) + 1


def _places(environment: Environment) -> int:
    """Places inside the walls of a room of Sokoban."""
    wide, high = (int(size) for size in value_in(environment, "env_config.dim_room") or (10, 10))
    return max(wide - 2, 0) * max(high - 2, 0)


def _tools(environment: Environment) -> list[Mapping[str, Any]]:
    return [item for item in value_in(environment, "tool_wrapper.tool_configs") or () if isinstance(item, Mapping)]


def _unknown_tool(environment: Environment) -> str:
    return next((str(name) for item in _tools(environment) if (name := item.get("tool_id")) not in TOOLS), "")


def _without_server(environment: Environment) -> bool:
    given = [item.get("tool_args") or {} for item in _tools(environment) if item.get("tool_id") == "mcp"]
    return any(not (item.get("server_url") or item.get("client")) for item in given)


ROCK = _of_type("rock_tb_native_env")
SETTINGS: tuple[Setting, ...] = (
    Setting(
        "env_config.render_mode",
        _of_type("frozen_lake", *SOKOBAN),
        _among("text", "rgb_array"),
        "text or rgb_array",
        f"{AGENTIC}/env/sokoban/env.py, SokobanEnv.render",
    ),
    Setting(
        "env_config.reward_reduction",
        _of_type("openreward_env"),
        _among("sum", "mean", "max", "min"),
        "sum, mean, max or min",
        f"{AGENTIC}/env/openreward/tool_utils.py, reduce_rewards",
    ),
    Setting(
        "env_config.agent_config.agent_type",
        lambda each: ROCK(each) and isinstance(value_in(each, "env_config.agent_config"), Mapping),
        lambda value: value not in ("default", "swe-agent", "iflow-cli"),
        "default, swe-agent or iflow-cli",
        f"{AGENTIC}/env/rock/agent_manager.py, AgentManager.__init__",
    ),
    *(
        Setting(
            f"env_config.{name}",
            ROCK,
            _no_indexes,
            said("a list of numbers, or text such as list(range(0,8))"),
            f"{AGENTIC}/env/sandbox/rock_tb_native_env.py, RockTBNativeEnv._parse_idx_range",
        )
        for name in ("train_idx_range", "val_idx_range")
    ),
    Setting(
        "env_config.dataset_name",
        _of_rock,
        lambda value: value is None,
        said("the file with the tasks"),
        f"{AGENTIC}/agent_runner/rock/rock_agent_runner.py, RockAgentRunner.__init__",
    ),
)


def _crowds_shops(manager: str) -> Callable[[Values], bool]:
    """Whether a manager runs several environments of WebShop as threads of one worker."""

    def crowds(values: Values) -> bool:
        tags = values[f"{manager}.tags"] if is_agentic(values) and values.written(f"{manager}.tags") else ()
        known = values["custom_envs"] or {}
        shops = [tag for tag in tags or () if _of_type("webshop")(known.get(tag) or {})]
        return bool(shops) and _environments(values, manager) > 1 and values.number(f"{manager}.{PER_WORKER}", 0) != 1

    return crowds


def _environments(values: Values, manager: str) -> int:
    return values.number(f"{manager}.num_env_groups", 1) * values.number(f"{manager}.group_size", 1)


def _of_shops(manager: str) -> Requirement:
    return Requirement(
        f"{manager}.{PER_WORKER}",
        _crowds_shops(manager),
        said(
            "a worker of {manager} runs several environments of WebShop as threads, whose servers conflict: {key} has to be 1",
            manager=manager,
            key=PER_WORKER,
        ),
        "examples/qwen2.5-7B-agentic_megatron/agentic_val_webshop.yaml",
        said("set {manager}.{key} to 1", manager=manager, key=PER_WORKER),
        level=Level.WARNING,
        when="rollout",
    )


def _first(values: Values, refused: Callable[[Environment], object]) -> str:
    """The first environment that something is wrong with."""
    environments = used_environments(values) if is_agentic(values) else ()
    return next((name for name, each in environments if refused(each)), "")


def _row(
    refused: Callable[[Environment], object],
    message: str,
    source: str,
    hint: str,
    shown: Callable[[Environment], object] = str,
) -> Requirement:
    """A row about one environment: ``{environment}`` is its name in the texts, ``{value}`` what ``shown`` gives of it."""

    def found(values: Values) -> str:
        return _first(values, refused)

    def value(values: Values) -> object:
        return shown(dict(used_environments(values))[found(values)])

    return Requirement("custom_envs", found, message, source, hint, numbers={"environment": found, "value": value})


def _of_setting(setting: Setting) -> Requirement:
    return _row(
        lambda each: setting.concerns(each) and setting.refused(value_in(each, setting.key)),
        said(
            "custom_envs.{{environment}}.{key} is {{value}}; expected {expected}",
            key=setting.key,
            expected=setting.expected,
        ),
        setting.source,
        said("change custom_envs.{{environment}}.{key}", key=setting.key),
        lambda each: value_in(each, setting.key),
    )


def _classes(values: Values) -> Iterator[tuple[str, str, str]]:
    """Keys that name a class, each with the path and what separates module and class."""
    for name, each in used_environments(values) if is_agentic(values) else ():
        yield f"custom_envs.{name}.env_manager_cls", str(each.get("env_manager_cls") or ""), "."
        if "proxy_env_manager" in str(each.get("env_manager_cls")):
            yield f"custom_envs.{name}.agent_runner_cls", str(each.get("agent_runner_cls") or ""), "."
        if each.get("env_type") == "atropos_env":
            path = value_in(each, "env_config.atropos_env_path")
            yield f"custom_envs.{name}.env_config.atropos_env_path", str(path or ""), ":"
    for key in (*(f"{manager}.group_filter_cls" for manager in MANAGERS), "user_defined_rollout_loop_cls"):
        if values.written(key):
            yield key, str(values[key] or ""), "."


def _missing_classes(values: Values) -> Iterator[tuple[str, str]]:
    """Keys whose class ROLL cannot import, each with the reason."""
    for key, path, separator in _classes(values):
        if path and (fault := class_fault(path, OWN, "roll", separator)):
            yield key, fault


def _missing(index: int) -> Callable[[Values], str]:
    return lambda values: next((found[index] for found in _missing_classes(values)), "")


ROWS: tuple[Requirement, ...] = (
    *map(_of_setting, SETTINGS),
    *map(_of_shops, MANAGERS),
    _row(
        _is_crowded,
        "a room of custom_envs.{environment} has at most {value} places inside its walls, too few for the boxes and the player: "
        "ROLL tries rooms without end",
        f"{AGENTIC}/env/sokoban/utils.py, place_boxes_and_player",
        "raise dim_room, or lower num_boxes",
        _places,
    ),
    _row(
        _unknown_tool,
        said("custom_envs.{{environment}} has the tool {{value}}; ROLL registers {names}", names=", ".join(TOOLS)),
        f"{AGENTIC}/tools/registration.py, make_tool",
        "change tool_id in custom_envs.{environment}.tool_wrapper.tool_configs",
        _unknown_tool,
    ),
    _row(
        _without_server,
        "the tool mcp of custom_envs.{environment} has no server_url in its tool_args",
        f"{AGENTIC}/tools/mcp_tool.py, MCPTool.__init__",
        "set server_url",
    ),
    Requirement(
        "custom_envs",
        _missing(0),
        "{key} names a class that ROLL cannot import: {fault}",
        "roll/utils/import_utils.py, safe_import_class",
        "correct {key}",
        numbers={"key": _missing(0), "fault": _missing(1)},
    ),
)
