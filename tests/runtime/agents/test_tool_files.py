"""Tools in files of verl's form, without verl."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config.sections.agents import ToolFile
from rlctl.runtime.agents.tool_files import listed_tools
from rlctl.runtime.types import Prompt
from tests.runtime.agents.made import config_of, saying, trajectory

FUNCTIONS = '''
from verl.tools.function_tool import function_tool

@function_tool
def double(number: int):
    """Double a number.

    Args:
        number: The number.
    """
    return {"double": 2 * number}, 0.5, {"calls": 1}

@function_tool("half_of")
async def half(number: int) -> str:
    """Halve a number.

    Args:
        number: The number.
    """
    return str(number // 2)
'''
CLASS = """
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

RELEASED = []

class Counter(BaseTool):
    def __init__(self, config: dict, tool_schema: OpenAIFunctionToolSchema):
        super().__init__(config, tool_schema)
        self.states = {}

    async def create(self, instance_id=None, **kwargs):
        instance_id, response = await super().create(instance_id)
        self.states[instance_id] = self.config["start"] + kwargs["create_kwargs"].get("more", 0)
        return instance_id, response

    async def execute(self, instance_id, parameters, **kwargs):
        return ToolResponse(text=str(self.states[instance_id] + parameters["by"])), 0.0, {}

    async def release(self, instance_id, **kwargs):
        RELEASED.append(self.states.pop(instance_id))
"""
LIST = """
tools:
  - class_name: counters_of_the_test.Counter
    config: {type: native, start: 10}
    tool_schema:
      type: function
      function:
        name: count
        description: Count on.
        parameters: {type: object, properties: {by: {type: integer, description: How far.}}, required: [by]}
"""


def tool_file(folder: Path, name: str, text: str) -> ToolFile:
    (folder / name).write_text(text)
    return ToolFile(path=str(folder / name))


def test_marked_functions_are_tools_with_the_schema_of_their_signature(tmp_path: Path) -> None:
    double, half = listed_tools(tool_file(tmp_path, "functions.py", FUNCTIONS), "tools[0]")
    assert [each.schema["function"]["name"] for each in (double, half)] == ["double", "half_of"]
    assert double.schema["function"]["parameters"]["required"] == ["number"]
    assert double.run(number=4) == ('{"double": 8}', 0.5)
    assert asyncio.run(half.run(number=4)) == ("2", None)


def test_a_tool_file_rewards_calls_as_it_says_and_as_it_returns(tmp_path: Path) -> None:
    file = tool_file(tmp_path, "functions.py", FUNCTIONS).path
    agent = {"type": "tools", "tools": [{"type": "file", "path": file, "reward": 0.25}]}
    twice = '<tool_call>{"name": "double", "arguments": {"number": 4}}</tool_call><end>'
    half = '<tool_call>{"name": "half_of", "arguments": {"number": 4}}</tool_call><end>'
    config = config_of({**agent, "credit": {"tool_rewards": "add"}})
    response, _ = trajectory(config, saying(twice, half, "8<end>"))
    assert [message["content"] for message in response.messages if message["role"] == "tool"] == ['{"double": 8}', "2"]
    assert response.info == {"tool_rewards": [0.75, 0.25]}
    assert response.reward == 1.0


def test_a_class_is_made_with_its_config_and_each_call_has_an_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counters_of_the_test.py").write_text(CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    [count] = listed_tools(tool_file(tmp_path, "tools.yaml", LIST), "tools[0]")
    assert count.schema["function"]["description"] == "Count on."
    made: Any = count.run()
    made.create(Prompt(0, "a", (), ""), more=5)
    assert asyncio.run(made.execute(by=2)) == ("17", 0.0)
    import counters_of_the_test  # type: ignore[import-not-found]

    assert counters_of_the_test.RELEASED == [15]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("empty.py", "x = 1\n", "functions marked with @function_tool"),
        ("empty.yaml", "tools: []\n", "a list 'tools'"),
        ("mcp.yaml", "tools: [{class_name: a.B, config: {type: mcp}}]\n", "expected native"),
    ],
)
def test_a_file_without_tools_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(RunError) as error:
        listed_tools(tool_file(tmp_path, name, text), "tools[0]")
    assert said in str(error.value)
