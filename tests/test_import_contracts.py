"""Imports point down: the contracts in pyproject.toml hold, and no package or dialect is left out of them."""

from __future__ import annotations

import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
from importlinter import cli as linter

ROOT = Path(__file__).parents[1]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["name"].split()[0]: contract for contract in SETTINGS["contracts"]}


def folders() -> set[str]:
    """Every package directly below rlctl."""
    return {f"rlctl.{path.parent.name}" for path in (ROOT / "rlctl").glob("*/__init__.py")}


def test_no_module_lies_loose_on_the_top_level() -> None:
    assert {path.name for path in (ROOT / "rlctl").glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_contracts_hold() -> None:
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_every_folder_has_its_layer() -> None:
    layers = " ".join(CONTRACTS["imports"]["layers"]).replace("|", " ").split()
    assert {*folders(), "rlctl.__main__"} == set(layers)


def test_every_folder_but_the_runtime_and_the_app_is_kept_from_torch() -> None:
    assert folders() - set(CONTRACTS["torch,"]["source_modules"]) == {"rlctl.runtime", "rlctl.tui"}


def test_every_dialect_is_independent() -> None:
    packages = {f"rlctl.adapters.{path.parent.name}" for path in (ROOT / "rlctl" / "adapters").glob("*/__init__.py")}
    assert packages - {"rlctl.adapters.engine", "rlctl.adapters.verl_trainer"} == set(CONTRACTS["dialects"]["modules"])


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor for types only, outside the app, whose screens open each other."""
    graph = grimp.build_graph("rlctl", cache_dir=None)
    modules = {module for module in graph.modules if not module.startswith("rlctl.tui")}
    assert len(modules) > 300
    TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    ).prepare()
