"""Every preset reads, is planned, and is checked: what does not run yet is exactly what is listed here."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rlctl.checks import check
from rlctl.common.errors import UsageError
from rlctl.common.report import Level
from rlctl.config import Config, load, presets
from rlctl.documents import read_yaml
from rlctl.planning.plan import make_plan

NAMES = [preset.name for preset in presets.names()]
ROOT = Path(__file__).parents[2]

PROBLEMS: dict[str, set[tuple[str, str]]] = {
    "distill-1node": {("path-missing", "data.train[0].path")},
    "dpo-1node": {("path-missing", "data.train[0].path")},
    "mix-1node": {
        ("path-missing", "data.train[0].path"),
        ("path-missing", "data.eval[0].path"),
    },
    "grpo-1node": {
        ("path-missing", "data.train[0].path"),
        ("path-missing", "data.eval[0].path"),
    },
    "ppo-1node": {
        ("path-missing", "data.train[0].path"),
        ("path-missing", "data.eval[0].path"),
    },
    "sft-1node": {("path-missing", "data.train[0].path")},
}
"""Errors and warnings of each preset in a checkout, where its data is not."""


def read(name: str) -> Config:
    loaded, report = load(read_yaml(presets.text(name), f"{name}.yaml"))
    assert loaded is not None, report.findings
    assert report.findings == []
    return loaded.config


def test_every_preset_is_listed_here() -> None:
    assert set(PROBLEMS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_only_the_problems_that_are_known(name: str) -> None:
    findings = check(read(name))
    assert {(finding.code, finding.key) for finding in findings if finding.level is not Level.NOTE} == PROBLEMS[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_planned_for_one_node_of_8_gpus(name: str) -> None:
    plan = make_plan(read(name), rows=7473)
    assert (plan.nodes, plan.devices_per_node, plan.device) == (1, 8, "cuda")
    assert all(stage.schedule.total_steps for stage in plan.stages)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_what_it_is_what_it_needs_and_what_to_expect(name: str) -> None:
    lines = presets.text(name).splitlines()
    assert len(lines) <= 40
    assert lines[0].startswith("# ")
    assert lines[0].endswith(".")
    assert [line.split(":")[0] for line in lines[1:4]] == ["# needs", "# run", "# expect"]
    assert lines[2] == f"# run: rlctl launch {name}.yaml"
    assert read(name).run.name == name


def test_the_list_shows_the_head_of_each_file() -> None:
    listed = {preset.name: preset for preset in presets.names()}
    assert listed["sft-1node"].needs == "one node of 8 GPUs with 80 GB each"
    assert listed["sft-1node"].title.startswith("Supervised fine-tuning")


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no preset 'grpo-1nod'") as raised:
        presets.text("grpo-1nod")
    assert raised.value.hint == "did you mean 'grpo-1node'?"


def test_presets_are_found_in_an_installed_package(tmp_path: Path) -> None:
    """The layout of the wheel: the package with presets_data inside, and no checkout around it."""
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (ROOT / "rlctl").rglob("*.py"):
            file.write(path, path.relative_to(ROOT))
        for path in (ROOT / "presets").glob("*.yaml"):
            file.write(path, Path("rlctl/presets_data") / path.name)
    installed = tmp_path / "site"
    zipfile.ZipFile(archive).extractall(installed)
    code = "from rlctl.config import presets; print(*(preset.name for preset in presets.names()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=installed, capture_output=True, text=True, check=True, env={"PYTHONPATH": "."}
    )
    assert done.stdout.split() == NAMES
