"""Tools of MCP servers: real servers, over standard streams and over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.agents.tools import load_tools
from rlctl.runtime.types import Response
from tests.runtime.agents import made
from tests.runtime.agents.made import call, config_of, ids, saying, trajectory

SERVER = '''
import os, sys
from mcp.server import MCPServer

server = MCPServer("numbers")

@server.tool()
def calculate(expression: str) -> str:
    """Multiply two numbers."""
    left, right = expression.split("*")
    return f"{int(left) * int(right)}{os.environ.get('UNIT', '')}"

@server.tool()
def dies(expression: str) -> str:
    """End the server."""
    os._exit(3)

if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run()
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("mcp") / "server.py"
    file.write_text(SERVER)
    return file


@pytest.fixture
def url(server: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(server), str(port)])
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/mcp"
    process.terminate()
    process.wait(20)


def answers(tool: dict[str, Any], *texts: str) -> Response:
    """A trajectory whose model calls tools of one server."""
    tools = [{"type": "mcp", **tool}]
    config = config_of({"type": "tools", "tools": tools, "credit": {"tool_rewards": "add"}})
    schemas = [each.schema for each in load_tools(config.rollout.agents[0])]  # type: ignore[arg-type]
    return trajectory(config, saying(*texts), made.prompt(tools=schemas))[0]


def test_a_server_is_started_and_its_tools_are_called(server: Path) -> None:
    response = answers(
        {"command": [sys.executable, str(server)], "env_vars": {"UNIT": " m"}, "reward": 0.5},
        call("12*34") + "<end>",
        call("x") + "<end>",
        call("", name="dies") + "<end>",
        call("2*3") + "<end>",
        "done<end>",
    )
    said = [message["content"] for message in response.messages if message["role"] == "tool"]
    assert said[0] == "408 m"
    assert said[1].startswith("Error: ToolError: ")
    assert said[2].startswith("Error: ")
    assert said[3] == "6 m", "a server that ended is started again"
    assert response.counts["tool_errors"] == 2
    assert [turn.reward for turn in response.turns] == [0.5, 0.0, 0.0, 0.5, 0.0]
    assert response.turns[1].inserted == ids("<tool>408 m<assistant>")


def test_a_server_is_reached_by_its_address_and_some_of_its_tools_are_shown(url: str) -> None:
    response = answers(
        {"url": url, "tools": ["calculate"]}, call("12*34") + "<end>", call("1", name="dies") + "<end>", "done<end>"
    )
    said = [message["content"] for message in response.messages if message["role"] == "tool"]
    assert said == ["408", "Error: no tool dies; there are calculate"]


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({}, "an MCP server with neither command nor url"),
        ({"command": ["a"], "url": "http://b"}, "an MCP server with both command and url"),
        ({"command": [sys.executable, "-c", "raise SystemExit(4)"]}, "does not list its tools"),
        ({"url": "http://127.0.0.1:9/mcp"}, "http://127.0.0.1:9/mcp does not list its tools"),
    ],
)
def test_a_server_that_cannot_be_used_is_an_error_before_the_run(tool: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        answers(tool)


def test_a_tool_that_the_server_does_not_have(server: Path) -> None:
    with pytest.raises(RunError, match="the MCP server has no tool 'calculat'; it has calculate, dies") as refused:
        answers({"command": [sys.executable, str(server)], "tools": ["calculat"]})
    assert "calculate" in refused.value.hint
