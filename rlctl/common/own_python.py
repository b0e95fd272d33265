"""Commands that start a Python of rlctl's own, which imports nothing from the current folder: anyone may have written its files.

``python -m`` and ``python -c`` look for modules in the current folder first, so a ``yaml.py`` there would be executed. All
commands that rlctl starts in Python are made here; ``tests/project/test_own_python.py`` finds any other. Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SAFE_PATH = "PYTHONSAFEPATH"
"""A variable that has the effect of ``-P``."""


def module(name: str, *words: str) -> list[str]:
    """The command that runs an installed module, with what ``PYTHONPATH`` names."""
    return [sys.executable, "-P", "-m", name, *words]


def file(path: str, *words: str) -> list[str]:
    """The command that runs a file; the modules next to it are not found."""
    return [sys.executable, "-P", path, *words]


def isolated(*words: str) -> list[str]:
    """The command that runs ``-c CODE`` with the installed modules alone: no variable of the environment has an effect."""
    return [sys.executable, "-I", *words]


def bare(*words: str) -> list[str]:
    """The command that runs a file, or ``-c CODE``, with the standard library alone."""
    return [sys.executable, "-I", "-S", *words]


@contextmanager
def safe_children() -> Iterator[None]:
    """Keep the current folder from processes that a library starts meanwhile, such as those of ``multiprocessing``."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
