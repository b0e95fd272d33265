"""A test that skips where that is not expected fails the run in CI, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("reason", "in_ci", "code"),
    [("there is no GPU", "1", 0), ("no reason that is known", "1", 1), ("no reason that is known", "", 0)],
)
def test_an_unexpected_skip_fails_in_ci(reason: str, in_ci: str, code: int, tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(f"import pytest\ndef test_it(): pytest.skip({reason!r})\ndef test_that(): pass\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "-p", "no:cacheprovider", str(test)],
        cwd=ROOT, env={**os.environ, "CI": in_ci}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ("skipped unexpectedly: " in ended.stdout) == (code == 1)
