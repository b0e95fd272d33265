"""Runs whose environments and programs are killed, and that are stopped and resumed: they end as if nothing had happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.agents.test_runs import differing, short, steps
from tests.runtime.conftest import Task
from tests.runtime.local import Seen, launch_here

CODE = """
import os, signal
from pathlib import Path

def perhaps_die(marker):
    "Kill this process if the marker is there, once."
    try:
        Path(marker).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

class Counter:
    def __init__(self, marker):
        self.marker = marker
    def reset(self, seed=None):
        self.left, self.start = 3, seed % 7 + 1
        return f"{self.start}+1=", {}
    def step(self, action):
        perhaps_die(self.marker)
        self.left -= 1
        right = action.strip() == str(self.start + 1)
        self.start = self.start % 7 + 1
        return f"{self.start}+1=", right + len(action) / 4, not self.left, False, {"success": right}

def ask(row, marker):
    from openai import OpenAI

    client, messages = OpenAI(), list(row["messages"])
    for _ in range(2):
        answer = client.chat.completions.create(model="policy", messages=messages, max_tokens=4).choices[0].message
        perhaps_die(marker)
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "1+1="}]
    return float(len(answer.content))
"""


def rollout(folder: Path, kind: str) -> dict[str, Any]:
    """The settings of rollout with an agent that is killed once if ``folder`` has a marker."""
    (folder / "code.py").write_text(CODE)
    code, args = str(folder / "code.py"), {"marker": str(folder / "marker")}
    agents: dict[str, dict[str, Any]] = {
        "environment": {
            "environment": {"type": "python", "path": code, "name": "Counter", "args": args},
            "max_turn_tokens": 4,
        },
        "program": {"program": {"type": "python", "path": code, "function": "ask", "args": args}},
    }
    agent = {"type": kind, "name": "mine", "samples": "turn", **agents[kind]}
    return {"precision": "float32", "max_response_tokens": 48, "default_agent": "mine", "agents": [agent]}


@pytest.mark.parametrize("kind", ["environment", pytest.param("program", marks=pytest.mark.soak)])
def test_a_killed_and_resumed_run_is_the_one_that_was_not_interrupted(task: Task, tmp_path: Path, kind: str) -> None:
    schedule = {"total_steps": 2, "evaluate_at_start": False, "evaluate_at_end": False}
    found: dict[str, Seen] = {"whole": [], "again": []}
    for name, seen in found.items():
        (tmp_path / name).mkdir()
        config = short(
            task, tmp_path / name, rollout(tmp_path / name, kind), schedule=schedule, data={"eval": []}, rewards=[]
        )
        if name == "whole":
            launch_here(config, seen.append)
            continue
        for marked in (1, None):
            (tmp_path / name / "marker").touch()
            launch_here(replace(config, run=replace(config.run, max_steps_this_session=marked)), seen.append)
            assert not (tmp_path / name / "marker").exists()
    whole, again = steps(found["whole"]), steps(found["again"])
    assert sum(metrics.get("agent/retries", 0.0) for metrics in again.values()) > 0
    assert {name for name in differing(found["again"], found["whole"]) if not name.startswith("agent/retries")} == set()
    assert whole[2]["reward/mean"] > 0
