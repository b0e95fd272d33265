"""The environment that ``make setup`` makes: what must agree does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = dict(
    line.lower().split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def pinned(requirement: str) -> tuple[str, str] | None:
    """Name and version of a requirement that is pinned exactly."""
    match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)", requirement.partition(";")[0])
    return (match[1], match[2]) if match else None


def test_exact_pins_are_the_versions_of_the_constraints() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    pins = [pin for group in groups for requirement in group if (pin := pinned(requirement))]
    here = [
        (name, version) for name, version in pins if name != "vllm"
    ]  # the GPU package; its CPU build is installed here
    assert here
    for name, version in here:
        assert CONSTRAINTS[name] == version


def test_every_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("vllm = [")]
    lines = [line for line in block.splitlines() if line.startswith('  "')]
    assert lines
    assert [line for line in lines if "#" not in line] == []
