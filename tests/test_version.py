"""The version is said in one more place than ``pyproject.toml``, and says the same there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import rlctl

ROOT = Path(__file__).parents[1]


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert rlctl.__version__ == project["version"]


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, rlctl; print(sorted(name for name in sys.modules if name.startswith('rlctl.')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
