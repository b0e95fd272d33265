"""Packages that share no environment with rlctl's: where ``make test-external`` installs them."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import waiting

ROOT = Path(__file__).parents[2]


def python_of(name: str) -> Path:
    """The interpreter of an environment; skips the test if it is not installed."""
    found = ROOT / ".venv-external" / name / "bin/python"
    if not found.exists():
        pytest.skip(f"{name} is not installed: make test-external installs it")
    return found


@contextmanager
def served(name: str, script: Path, log: Path, *options: str) -> Iterator[int]:
    """A server of an environment on a free port, which is its last argument, while it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    line = [python_of(name), script, *options, str(port)]
    with log.open("w") as out, subprocess.Popen(line, stdout=out, stderr=out) as server:
        try:
            waiting.until(lambda: server.poll() is not None or _answers(port), f"{name} does not answer", seconds=120)
            assert server.poll() is None, log.read_text()
            yield port
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
