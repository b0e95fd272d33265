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
CHECKOUT = os.environ.get("ROLL", "")
"""A checkout of ROLL, which is not on the package index."""
ROLL_COMMIT = "8eb27cc2dc34c4d1310b169d9b86d339004d811a"
"""The commit that the numbers and tables of these tests are of."""


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


@cache
def of_roll(driver: str) -> Framework:
    """ROLL of the checkout; the test is skipped if there is none, and fails at another commit.

    Raises:
        AssertionError: the checkout is at another commit.
    """
    if not CHECKOUT or not (ENVIRONMENTS / "roll" / ".ready").exists():
        pytest.skip("no checkout of ROLL: make test-upstream ROLL=/path/to/checkout")
    done = subprocess.run(["git", "-C", CHECKOUT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    found = done.stdout.strip()
    assert found == ROLL_COMMIT, (
        f"{CHECKOUT} is at {found or 'no commit'}; these tests are of ROLL {ROLL_COMMIT}: git checkout {ROLL_COMMIT[:8]}"
    )
    return Framework("roll", driver, checkout=Path(CHECKOUT))
