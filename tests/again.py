"""Tests that failed among others, tried once more alone: time limits and waits may break on a machine that is too busy.

``make test`` does it where at most three have failed. A test that fails alone too fails the run; one that passes alone is named,
so that somebody makes it steady.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .skips import skipped_unexpectedly

FILE = "RLCTL_FAILED_TESTS"
"""The environment variable that names the file where a run writes what failed, a line for each test."""
FEW = 3
"""More are no accident."""

_failed: dict[str, str] = {}
"""Of each test that failed, in which part: ``setup``, ``call`` or ``teardown``."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = report.when or ""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what may be tried again: nothing where a test left something behind, or was skipped unexpectedly."""
    path = os.environ.get(FILE)
    if hasattr(session.config, "workerinput") or path is None or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    if "teardown" not in _failed.values() and not skipped_unexpectedly():
        Path(path).write_text("\n".join(_failed))


def main(path: Path) -> int:
    """Try the tests that a file names; returns the status to end with."""
    if not path.is_file():
        return 1
    # pytest-xdist writes a test's group behind its name.
    tests = [
        line.rpartition("@")[0] if "@" in line.rpartition("]")[2] else line for line in path.read_text().splitlines()
    ]
    path.unlink()
    if not 0 < len(tests) <= FEW:
        return 1
    print(f"\ntrying alone what failed among others: {', '.join(tests)}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != FILE}
    if status := subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", *tests], env=environment).returncode:
        return status
    print(f"\nNOT STEADY: passed alone, but failed among others: {', '.join(tests)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
