"""A config for the processes of a run: paths at home, wherever they are in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.config import config_from, revealed, stages_of
from rlctl.runs.folder import folder_of
from rlctl.runtime.agents.making import make_agent
from rlctl.runtime.checkpoints.checkpoint import place_of

KEYS: dict[str, Any] = {
    "run": {"folder": "~/runs", "name": "r"},
    "model": {"path": "~/m", "tokenizer": "$HOME/t", "lora": {"adapter_path": "~/a"}},
    "checkpoint": {"folder": "$HOME/c"},
    "rewards": [{"type": "model", "path": "~/r", "tokenizer": "~/t"}],
    "rollout": {
        "auxiliary_models": [{"path": "~/x"}],
        "default_agent": "p",
        "agents": [
            {"type": "program", "name": "p", "program": {"type": "command", "command": ["cat"], "folder": "~/p"}}
        ],
        "sampling": {"stop": ["~/no path"]},
    },
}


def test_paths_of_a_run_are_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    written = config_from(KEYS)
    config = revealed(written)
    program: Any = config.rollout.agents[0]
    reward: Any = config.rewards[0]
    assert config.model.lora is not None
    paths = (
        (config.run.folder, "runs"),
        (config.model.path, "m"),
        (config.model.tokenizer, "t"),
        (config.model.lora.adapter_path, "a"),
        (config.checkpoint.folder, "c"),
        (reward.path, "r"),
        (reward.tokenizer, "t"),
        (config.rollout.auxiliary_models[0].path, "x"),
        (program.program.folder, "p"),
    )
    for found, name in paths:
        assert found == str(tmp_path / name)
    assert config.rollout.sampling.stop == ("~/no path",)
    assert written.model.path == "~/m", "as written elsewhere"
    assert folder_of(written) == tmp_path / "runs" / "r"
    assert place_of(stages_of(written)[0], tmp_path / "r") == (tmp_path / "c" / "r" / "main")


def test_the_folder_of_a_program_may_be_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.runtime.agents.made import chat

    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "p").mkdir()
    agent: Any = make_agent(config_from(KEYS).rollout.agents[0], chat(), None, 1)  # type: ignore[arg-type]
    assert agent.launcher._folder == str(tmp_path / "p")
