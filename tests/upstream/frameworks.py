"""A framework's own Python as a process that answers questions: one import of torch and transformers for a whole test session."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv-upstream"


class Framework:
    """A driver that runs in a framework's environment and answers a line of JSON with a line of JSON."""

    def __init__(self, environment: str, driver: str, *, checkout: Path | None = None) -> None:
        python = ENVIRONMENTS / environment / "bin" / "python"
        folder = tempfile.mkdtemp(prefix=f"rlctl-upstream-{environment}-")
        self.log = Path(folder) / "stderr.txt"
        paths = [str(checkout)] if checkout else []
        variables = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": os.pathsep.join(paths),
        }
        self._start = lambda: subprocess.Popen(
            [str(python), str(Path(__file__).parent / driver)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            cwd=folder,
            env=variables,
            text=True,
        )
        self._process = self._start()

    def ask(self, **question: Any) -> dict[str, Any]:
        """The framework's answer.

        Raises:
            AssertionError: the driver itself ended; a refusal by the framework is an answer.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code, told = self._process.wait(), self.log.read_text()[-4000:]
            self._process = self._start()
            raise AssertionError(f"the driver ended with {code}:\n{told}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@cache
def framework(environment: str, driver: str) -> Framework:
    """The framework of an environment that ``make test-upstream`` made; the test is skipped where there is none."""
    if not (ENVIRONMENTS / environment / ".ready").exists():
        pytest.skip(f"no {environment} here: make test-upstream installs it")
    return Framework(environment, driver)
