"""What CLI tests share: the ``rlctl`` command run in this process, and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlctl import cli
from rlctl.common.language import VARIABLE

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """What a command left: its exit code and both streams."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def rlctl(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``rlctl`` with arguments, through its console-script entry."""

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["rlctl", *arguments])
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
        language = os.environ.get(VARIABLE)
        code = cli.main()
        if language is None:  # --language sets it for the process
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = language
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``python -m rlctl`` with arguments in a process of its own."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **options.pop("environment", {})}
        return subprocess.run(
            [sys.executable, "-m", "rlctl", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment,
            **options,
        )

    return run


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """A small canonical config that plans on anything."""
    path = tmp_path / "run.yaml"
    path.write_text(
        "rlctl: 1\n"
        "run: {name: small}\n"
        "model: {path: some/model}\n"
        "data: {train: [{path: train.jsonl}]}\n"
        "batch: {prompts_per_step: 8, responses_per_prompt: 4, mini_batch_responses: 16}\n"
        "schedule: {total_steps: 3}\n"
        "placement: {nodes: 1, devices_per_node: 2}\n"
    )
    return path
