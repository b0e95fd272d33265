"""Every preset is read, checked and planned for the cluster that it names: no error, no warning, and it fits."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rlctl.checks import RULES_OF_FILES, check
from rlctl.cli.arguments import cluster_of
from rlctl.common.errors import UsageError
from rlctl.common.report import Level
from rlctl.config import Config, load, presets
from rlctl.documents import read_yaml
from rlctl.planning.plan import Cluster, make_plan

NAMES = [preset.name for preset in presets.names()]
ROOT = Path(__file__).parents[2]


def cluster(name: str) -> Cluster:
    """The cluster that a preset names in its ``# plan`` line."""
    line = presets.text(name).splitlines()[5]
    return cluster_of(line.rpartition("--cluster ")[2])


def read(name: str) -> Config:
    loaded, report = load(read_yaml(presets.text(name), f"{name}.yaml"))
    assert loaded is not None, report.findings
    assert report.findings == []
    return loaded.config


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_no_error_and_no_warning_on_its_cluster(name: str) -> None:
    findings = check(read(name), cluster=cluster(name), more=RULES_OF_FILES)
    assert [finding.message for finding in findings if finding.level is not Level.NOTE] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_planned_for_its_cluster_and_fits(name: str) -> None:
    machines = cluster(name)
    plan = make_plan(read(name), rows=17_000, cluster=machines)
    assert (plan.nodes, plan.devices_per_node, plan.device) == (machines.nodes, machines.devices_per_node, "cuda")
    assert all(stage.schedule.total_steps for stage in plan.stages)
    for stage in plan.stages:
        assert stage.fit is not None, "the size of the model is not known"
        assert stage.fit.fits, stage.fit.problem


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_says_what_it_is_what_it_needs_and_what_to_expect(name: str) -> None:
    lines = presets.text(name).splitlines()
    assert len(lines) <= 48
    assert lines[0].startswith("# ")
    assert lines[0].endswith(".")
    assert [line.split(":")[0] for line in lines[1:6]] == ["# needs", "# run", "# expect", "# source", "# plan"]
    assert lines[2] == f"# run: rlctl launch {name}.yaml"
    assert lines[5].startswith(f"# plan: rlctl plan {name}.yaml --cluster ")
    assert read(name).run.name == name


def test_what_a_preset_needs_is_the_cluster_that_it_names() -> None:
    numbers = {"one": 1, "four": 4, "eight": 8}
    for preset in presets.names():
        machines = cluster(preset.name)
        if "node" in preset.needs:
            number, each = re.match(r"(\w+) nodes? of (\d+) GPUs", preset.needs).groups()
            assert (numbers[number], int(each)) == (machines.nodes, machines.devices_per_node)
        assert float(re.search(r"(\d+) GB", preset.needs)[1]) == machines.gib_per_device


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
