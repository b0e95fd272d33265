"""Imports point down: the contracts in pyproject.toml hold, and no package or dialect is left out of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from importlinter import cli as linter

ROOT = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["name"].split()[0]: contract for contract in SETTINGS["contracts"]}


def modules() -> set[str]:
    """Every module and package directly below rlctl."""
    found = {path.stem for path in (ROOT / "rlctl").glob("*.py")} | {
        path.parent.name for path in (ROOT / "rlctl").glob("*/__init__.py")
    }
    return {f"rlctl.{name}" for name in found - {"__init__"}}


def test_the_contracts_hold() -> None:
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_every_module_has_its_layer() -> None:
    layers = " ".join(CONTRACTS["imports"]["layers"]).replace("(", " ").replace(")", " ").replace("|", " ").split()
    assert modules() <= set(layers)


def test_every_module_but_the_runtime_is_kept_from_torch() -> None:
    light = set(CONTRACTS["torch,"]["source_modules"])
    assert modules() - light <= {"rlctl.runtime", "rlctl.tui", "rlctl.__main__"}


def test_every_dialect_is_independent() -> None:
    packages = {f"rlctl.adapters.{path.parent.name}" for path in (ROOT / "rlctl" / "adapters").glob("*/__init__.py")}
    assert packages == set(CONTRACTS["dialects"]["modules"])
