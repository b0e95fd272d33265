"""The installed package has the version that its code says."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import rlctl

ROOT = Path(__file__).parents[1]


def test_the_version_is_that_of_the_installed_package() -> None:
    assert rlctl.__version__ == metadata.version("rlctl")


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, rlctl; print(sorted(name for name in sys.modules if name.startswith('rlctl.')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
