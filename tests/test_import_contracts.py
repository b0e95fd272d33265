"""Imports point down: the contracts in pyproject.toml hold, and no package or dialect is left out of them."""

from __future__ import annotations

import ast
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


ASSEMBLY = {"build", "launch", "sourcing", "specs", "stage_inputs", "stage_run", "start_workers"}
"""Modules of the runtime that put a stage together: they read the config, and make specs of it."""
BESIDE = {
    "checkpoints.checkpoint", "checkpoints.inputs", "checkpoints.resume_path", "endpoints", "processes.environment",
    "remote.inputs", "rollout.sglang_arguments", "rollout.vllm_arguments",
    "tracking.make", "train.preflight",
}  # fmt: skip
"""Those that check, translate or record a config before anything starts."""


def takes_the_config(path: Path) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlctl.config")
        and any(alias.name == "Config" for alias in node.names)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )  # fmt: skip


def test_only_the_assembly_of_a_stage_sees_the_whole_config() -> None:
    """What workers run is made from specs: a part that takes the config can come to read any key of it."""
    runtime = ROOT / "rlctl" / "runtime"
    found = {
        ".".join(path.relative_to(runtime).with_suffix("").parts)
        for path in runtime.rglob("*.py")
        if takes_the_config(path)
    }
    assert {name for name in found if name.partition(".")[0] not in ASSEMBLY} == BESIDE
