"""Tools in files of verl's form: classes that a YAML file lists with their schemas, and functions that a decorator marks.

Such code imports verl (``verl.tools.base_tool``, ``verl.tools.schemas``, ``verl.tools.function_tool``). Where verl is not
installed, modules of these names with the same classes stand in for it, so that the files run as they are.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import uuid4

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import ToolFile
from rlctl.runtime.agents.formats import Schema
from rlctl.runtime.types import Prompt
from rlctl.runtime.user_code import PACKAGE, import_file, load_object

MARKED = "_rlctl_tool"
"""The attribute of a marked function: its name and schema."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One tool of a file."""

    schema: Schema
    run: Callable[..., Any]
    """A function, or a class with ``create``, ``execute`` and ``release`` for one trajectory."""
    is_class: bool


def listed_tools(tool: ToolFile, where: str) -> list[Listed]:
    """The tools of a file.

    Raises:
        RunError: the file is missing or has no tools, or the code of one cannot be loaded.
    """
    file = Path(tool.path).expanduser().resolve()
    if not file.is_file():
        raise RunError(
            said("{where}: there is no file {file}", where=where, file=file),
            hint="relative paths start at the working folder",
        )
    _stand_in_for_verl()
    found = _functions(file, where) if file.suffix == ".py" else _classes(file, where)
    if not found:
        expected = "functions marked with @function_tool" if file.suffix == ".py" else "a list 'tools'"
        raise RunError(
            said("{where}: {file} has no tools; expected {expected}", where=where, file=file, expected=expected)
        )
    return found


# Functions


def _functions(file: Path, where: str) -> list[Listed]:
    before = set(_verls_registry())
    module = import_file(file, prefix="rlctl_tools", what=f"{file}, of {where},")
    marked = [value for value in vars(module).values() if hasattr(value, MARKED)]
    new = [entry for name, entry in _verls_registry().items() if name not in before]
    return [Listed(getattr(value, MARKED), _answering(value), False) for value in marked] + [
        Listed(_plain(entry.tool_schema), _answering(entry.fn), False) for entry in new
    ]


def _verls_registry() -> Mapping[str, Any]:
    """The functions that verl's own decorator has marked; nothing if verl is not installed."""
    registry: Mapping[str, Any] = getattr(sys.modules.get("verl.tools.function_tool"), "FUNCTION_TOOL_REGISTRY", {})
    return registry


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result is an answer and its reward."""
    if inspect.iscoroutinefunction(function):

        async def awaited(**arguments: Any) -> Rewarded:
            return rewarded(await function(**arguments))

        return awaited

    def called(**arguments: Any) -> Rewarded:
        return rewarded(function(**arguments))

    return called


Rewarded = tuple[str, float | None]
"""The text of a tool's answer, and the reward of the call."""


def rewarded(result: Any) -> Rewarded:
    """What a tool of verl's form returned: ``ToolResponse``, ``(response, reward, metrics)``, or a plain value.

    Raises:
        ValueError: the answer has an image or a video.
    """
    reward = None
    if isinstance(result, tuple):
        if not 1 <= len(result) <= 3:
            raise ValueError(f"the tool returned {len(result)} values; expected (response, reward, metrics)")
        result, reward = result[0], result[1] if len(result) > 1 else None
    return _text(result), None if reward is None else float(reward)


def _text(result: Any) -> str:
    if hasattr(result, "text"):
        if getattr(result, "image", None) or getattr(result, "video", None):
            raise ValueError("images and videos in answers of tools are not supported")
        return result.text or ""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


# Classes


def _classes(file: Path, where: str) -> list[Listed]:
    try:
        values = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise RunError(said("{where}: {file} cannot be read: {error}", where=where, file=file, error=error)) from error
    tools = values.get("tools") if isinstance(values, Mapping) else None
    entries = tools if isinstance(tools, list) else []
    return [_class(entry, f"{where}: tools[{place}] of {file}") for place, entry in enumerate(entries)]


def _class(entry: Any, where: str) -> Listed:
    name = entry.get("class_name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or "." not in name:
        raise RunError(
            said(
                "{where}: class_name is {name!r}; expected an import path, such as package.module.Class",
                where=where,
                name=name,
            )
        )
    config = dict(entry.get("config") or {})
    if config.get("type", "native") != "native":
        raise RunError(
            said("{where}: config.type is {config!r}; expected native", where=where, config=config["type"]),
            hint="list an MCP server as a tool of type mcp in rollout.agents",
        )
    module, _, found = name.rpartition(".")
    cls = load_object(f"{PACKAGE}{module}", found, where=where)
    given = entry.get("tool_schema")
    schemas = sys.modules.get("verl.tools.schemas")
    schema = schemas.OpenAIFunctionToolSchema.model_validate(given) if given and schemas is not None else given
    try:
        tool = cls(config=config, tool_schema=schema)
    except Exception as error:  # whatever the user's class raises is shown to the user
        raise RunError(
            said(
                "{where}: {name} cannot be made: {kind}: {error}",
                where=where,
                name=name,
                kind=type(error).__name__,
                error=error,
            )
        ) from error
    return Listed(_plain(tool.tool_schema), _instances_of(tool), True)


def _instances_of(tool: Any) -> type:
    """The class of a tool for one trajectory: each call creates and releases an instance, as in verl."""

    class Instance:
        def __init__(self) -> None:
            self._arguments: Mapping[str, Any] = {}

        def create(self, _: Prompt, **arguments: Any) -> None:
            self._arguments = arguments

        async def execute(self, **arguments: Any) -> Rewarded:
            instance, _ = await tool.create(create_kwargs=dict(self._arguments))
            try:
                return rewarded(await tool.execute(instance, arguments))
            finally:
                await tool.release(instance)

    return Instance


def _plain(schema: Any) -> dict[str, Any]:
    if isinstance(schema, Mapping):
        return dict(schema)
    found: dict[str, Any] = schema.model_dump(exclude_unset=True, exclude_none=True)
    return found


# What replaces verl


class ToolResponse:
    """An answer of a tool."""

    def __init__(self, text: str | None = None, image: Any = None, video: Any = None) -> None:
        self.text, self.image, self.video = text, image, video


class OpenAIFunctionToolSchema:
    """A schema in OpenAI's form."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.type = values.get("type", "function")
        self.function = SimpleNamespace(**values.get("function", {}))

    @classmethod
    def model_validate(cls, values: Any) -> OpenAIFunctionToolSchema:
        return values if isinstance(values, cls) else cls(**dict(values))

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(self.values)


class BaseTool:
    """A tool with instances."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None) -> None:
        self.config = config
        self.tool_schema = tool_schema or self.get_openai_tool_schema()
        self.name = self.tool_schema.function.name

    def get_openai_tool_schema(self) -> OpenAIFunctionToolSchema:
        return self.tool_schema

    async def create(self, instance_id: str | None = None, **_: Any) -> tuple[str, ToolResponse]:
        return instance_id or str(uuid4()), ToolResponse()

    async def execute(self, instance_id: str, parameters: dict[str, Any], **_: Any) -> tuple[ToolResponse, float, Any]:
        raise NotImplementedError(f"{type(self).__name__} has no execute for {instance_id} and {parameters}")

    async def calc_reward(self, _: str, **__: Any) -> float:
        return 0.0

    async def release(self, instance_id: str, **_: Any) -> None:
        """Drop the state of an instance; there is none here."""


def function_tool(name: Any = None, *, schema: Any = None) -> Any:
    """Mark a function as a tool, under its own name or another one."""
    if callable(name):
        return _marked(name, None, schema)
    return lambda function: _marked(function, name, schema)


def _marked(function: Callable[..., Any], name: str | None, schema: Any) -> Callable[..., Any]:
    from transformers.utils import get_json_schema

    made = _plain(schema) if schema is not None else get_json_schema(function)
    named = {**made, "function": {**made["function"], "name": name or function.__name__}}
    setattr(function, MARKED, named)
    return function


def _stand_in_for_verl() -> None:
    """Put modules in the place of verl's, if it is not installed."""
    if "verl" in sys.modules or importlib.util.find_spec("verl") is not None:
        return
    modules: Mapping[str, Mapping[str, Any]] = {
        "verl": {},
        "verl.tools": {},
        "verl.tools.base_tool": {"BaseTool": BaseTool},
        "verl.tools.schemas": {
            "ToolResponse": ToolResponse,
            "OpenAIFunctionToolSchema": OpenAIFunctionToolSchema,
        },
        "verl.tools.function_tool": {"function_tool": function_tool},
        "verl.utils": {},
        "verl.utils.rollout_trace": {"rollout_trace_op": lambda function: function},
    }
    for name, values in modules.items():
        module = ModuleType(name, "Replaces verl, which is not installed: rlctl/runtime/agents/tool_files.py")
        module.__path__, module.__spec__ = [], ModuleSpec(name, None, is_package=True)
        vars(module).update(values)
        sys.modules[name] = module
        above, _, last = name.rpartition(".")
        if above:
            setattr(sys.modules[above], last, module)
