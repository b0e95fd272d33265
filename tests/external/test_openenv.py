"""An environment of a real OpenEnv server, as an agent plays it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.runtime.agents.openenv import OpenEnv
from tests.external.environments import served
from tests.runtime.agents.made import config_of, saying, trajectory

pytestmark = pytest.mark.external
SERVER = Path(__file__).parent / "servers/guess.py"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> object:
    with served("openenv", SERVER, tmp_path_factory.mktemp("openenv") / "log") as port:
        yield f"http://127.0.0.1:{port}"


def test_an_episode_of_a_server_is_a_trajectory(url: str) -> None:
    args = {"url": url, "observation_key": "text"}
    environment = {"type": "python", "path": "pkg://rlctl.runtime.agents.openenv", "name": "OpenEnv", "args": args}
    # Which number a seed stands for is the server's: all nine are tried.
    texts = [f"{number}<end>" for number in range(1, 10)]
    response, _ = trajectory(
        config_of({"type": "environment", "environment": environment}), saying(*texts), max_tokens=400
    )
    assert response.stop == "done"
    turns = sum(message["role"] == "assistant" for message in response.messages)
    assert response.reward == pytest.approx(1.0 - 0.1 * (turns - 1))


def test_sessions_are_apart_and_a_refused_action_says_why(url: str) -> None:
    one, two = OpenEnv(url, observation_key="text"), OpenEnv(url)
    assert one.reset(seed=12)[0] == "Guess a number from 1 to 9."
    assert two.reset(seed=13)[0]["text"] == "Guess a number from 1 to 9."
    assert one.step("4")[1:4] == (1.0, True, False)
    assert two.step("4")[:3] == ({"text": "Wrong.", "metadata": {}}, -0.1, False)
    one.close()
    assert two.step("5")[2]
    refused = OpenEnv(url, action_key="mess")
    refused.reset()
    with pytest.raises(RuntimeError, match=r"refuses step: Invalid message .*Field required"):
        refused.step("4")
