"""Python tools in the sandbox: what they can reach, and what a call that goes wrong costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl import sandbox
from rlctl.common.errors import RunError, SandboxUnavailable
from rlctl.runtime.agents.tools import check_sandbox
from rlctl.runtime.types import Response
from tests.runtime.agents.made import config_of, saying, trajectory

TOOLS = '''
import os, socket, time
from pathlib import Path
from beside import greeting

KEPT = []

def work(what: str) -> str:
    """Do something.

    Args:
        what: what.
    """
    KEPT.append(what)
    if what == "beside":
        return f"{greeting()} {len(KEPT)}"
    if what == "reach":
        seen = []
        for act in (
            lambda: socket.create_connection(("127.0.0.1", 22), 1),
            lambda: Path("/etc/shadow").read_text(),
            lambda: Path(__file__).write_text(""),
            lambda: os.kill(1, 9) if os.getppid() != 1 else 1 / 0,
        ):
            try:
                act()
                seen.append("yes")
            except Exception as error:
                seen.append(type(error).__name__)
        return ",".join(seen) + f" {sorted(os.environ)}"
    if what == "memory":
        return str(len(bytearray(4 << 30)))
    if what == "exit":
        os._exit(5)
    if what == "hang":
        time.sleep(600)
    raise ValueError("no such work")


class Counter:
    """Counts."""

    def __init__(self, start: int) -> None:
        self.count = start

    def create(self, row) -> None:
        self.answer = row.answer

    async def execute(self, by: int) -> dict:
        """Count.

        Args:
            by: how much.
        """
        self.count += by
        return {"count": self.count, "answer": self.answer, "pid": os.getpid() < 50}
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confined")
    (folder / "beside.py").write_text("def greeting():\n    return 'hello'\n")
    (folder / "tools.py").write_text(TOOLS)
    return folder / "tools.py"


def calls(file: Path, name: str, shown: str, *arguments: dict[str, Any], **options: Any) -> tuple[list[str], Response]:
    """The answers to calls of one trajectory."""
    limits = {"max_tool_response_characters": 4000, "tool_timeout": options.pop("tool_timeout", 60.0)}
    tool = {"type": "python", "path": str(file), "name": name, "trusted": False, **options}
    texts = [
        f'<tool_call>{{"name": "{shown}", "arguments": {json.dumps(each)}}}</tool_call><end>' for each in arguments
    ]
    config = config_of({"type": "tools", "tools": [tool], **limits})
    response, _ = trajectory(config, saying(*texts, "done<end>"), max_tokens=8000)
    return [message["content"] for message in response.messages if message["role"] == "tool"], response


def test_a_confined_function_reaches_its_folder_and_nothing_else(file: Path) -> None:
    said, response = calls(file, "work", "work", *({"what": each} for each in ("beside", "beside", "reach", "other")))
    assert said[:2] == ["hello 1", "hello 1"], "no call finds what another one left"
    assert said[2].startswith("ConnectionRefusedError,FileNotFoundError,OSError,") or said[2].startswith(
        "OSError,FileNotFoundError,OSError,"
    )
    assert "yes" not in said[2].split(" ")[0]
    assert "SSH" not in said[2]
    assert said[3] == "Error: ValueError: no such work"
    assert response.counts["tool_errors"] == 1


def test_a_call_that_passes_a_limit_costs_only_itself(file: Path) -> None:
    said, response = calls(
        file,
        "work",
        "work",
        *({"what": each} for each in ("exit", "memory", "beside", "hang", "beside")),
        memory_limit_mib=256,
        tool_timeout=6.0,
    )
    assert said[0] == "Error: RuntimeError: the tool ended its process with status 5"
    assert said[1].startswith("Error: ")
    assert said[2] == said[4] == "hello 1"
    assert said[3] == "Error: work took longer than 6 s"
    assert response.counts["tool_errors"] == 2
    assert response.counts["tool_timeouts"] == 1


def test_an_object_keeps_its_state_for_its_trajectory(file: Path) -> None:
    for _ in range(2):
        said, _ = calls(file, "Counter", "counter", {"by": 2}, {"by": 3}, args={"start": 10})
        assert [json.loads(each) for each in said] == [
            {"count": 12, "answer": None, "pid": True},
            {"count": 15, "answer": None, "pid": True},
        ]


def test_a_machine_without_a_sandbox_refuses_tools_that_are_not_trusted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise SandboxUnavailable("the sandbox needs bubblewrap", hint="install it")

    monkeypatch.setattr(sandbox, "find_bwrap", none)
    tool = {"type": "python", "path": str(file), "name": "work", "trusted": False}
    agent: Any = config_of({"type": "tools", "tools": [tool]}).rollout.agents[0]
    with pytest.raises(RunError, match="is to run in the sandbox: the sandbox needs bubblewrap") as refused:
        check_sandbox(agent)
    assert "trusted: true" in refused.value.hint
