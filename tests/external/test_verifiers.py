"""A task of a verifiers environment, played by a program in an environment of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.external.environments import python_of
from tests.runtime.agents.made import config_of, ids, prompt, saying, tokenizer
from tests.runtime.agents.test_programs import looping, request_of, run

pytestmark = pytest.mark.external
HERE = Path(__file__).parents[2] / "presets/verifiers"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("said", "reward"), [("6", 1.0), ("7", 0.0)])
def test_a_task_gives_its_reward_and_its_prompt_is_what_the_model_reads(said: str, reward: float) -> None:
    python = python_of("verifiers")
    variables = {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": str(HERE)}
    command = {"type": "command", "command": [str(python), str(HERE / "play.py"), "products"], "env_vars": variables}
    row = replace(prompt("unused"), index=1)
    with looping(config_of({"type": "program", "program": command})) as loop:
        response, asked = run(loop, saying(f"{said}<end>"), request_of(row=row), seconds=600)
    assert (response.failure, response.reward) == ("", reward)
    assert "2*3=" in tokenizer().decode(asked[0].token_ids)
    assert response.token_ids == ids(f"{said}<end>")
