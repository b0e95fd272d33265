"""Few tests that failed among others are tried once more alone; what fails alone, or is no accident, stays a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .again import FILE

ROOT = Path(__file__).parent.parent
UNSTEADY = """
from pathlib import Path
SEEN = Path(__file__).with_name("seen")
def test_that_passes_the_second_time():
    if not SEEN.exists():
        SEEN.touch()
        assert False
"""
FAILING = "def test_that_fails(): assert False\n"
LEAVING = """
import pytest
@pytest.fixture
def left():
    yield
    assert False
def test_that_leaves_something(left): pass
"""
MANY = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_that_fails(n): assert False\n"


def _ran(folder: Path, text: str) -> tuple[int, str]:
    """A run of a test, and what is tried after it: the status that `make test` ends with, and what it prints."""
    test, failed = folder / "test_it.py", folder / "failed"
    test.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p no:cacheprovider", FILE: str(failed)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    plugins = ["-p", "tests.skips", "-p", "tests.again"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-n1", "--dist", "loadgroup", str(test)]
    assert subprocess.run(command, env=environment, cwd=folder, capture_output=True).returncode == 1
    again = [sys.executable, "-m", "tests.again", str(failed)]
    done = subprocess.run(again, env=environment, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize("mark", ["", "import pytest\n@pytest.mark.xdist_group('one')\n"])
def test_a_test_that_passes_alone_is_named(tmp_path: Path, mark: str) -> None:
    text = UNSTEADY.replace("def test", f"{mark.partition(chr(10))[2]}def test")
    status, printed = _ran(tmp_path, ("import pytest\n" if mark else "") + text)
    assert status == 0
    assert "NOT STEADY" in printed
    assert printed.count("test_it.py::test_that_passes_the_second_time") >= 2


@pytest.mark.parametrize("text", [FAILING, LEAVING, MANY])
def test_what_is_no_accident_stays_a_failure(tmp_path: Path, text: str) -> None:
    status, printed = _ran(tmp_path, text)
    assert status == 1
    assert "NOT STEADY" not in printed
