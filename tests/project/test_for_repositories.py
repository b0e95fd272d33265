"""Other repositories check their configs with the pre-commit hook and the GitHub Action: both are tried on one made on the spot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
GOOD = """
data: {train_files: data/train.parquet, train_batch_size: 64}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-0.5B-Instruct}
  actor: {ppo_mini_batch_size: 64, use_dynamic_bsz: true}
  rollout: {name: vllm, n: 8}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1, total_epochs: 1}
"""
BAD = GOOD.replace("train_batch_size", "train_batchsize")
OTHER = "services: {web: {image: nginx}}\n"
WORKFLOW = "on: push\njobs: {}\n"
"""``on`` is True to YAML 1.1, so rlctl cannot read it."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with a config that has only a warning, one with a typo, and files of other tools."""
    files = {
        "configs/good.yaml": GOOD,
        "configs/bad.yaml": BAD,
        "compose.yaml": OTHER,
        "run.sh": "echo hello\n",
        ".github/workflows/ci.yml": WORKFLOW,
        "chart.yaml": "a: {{ b }}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what git sets in hooks, and with rlctl on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"} | variables


Hook = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hook(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Hook:
    """Runs the hook with pre-commit on some files; it is taken from its manifest, and rlctl from this environment."""
    (manifest,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    config = {"repos": [{"repo": "local", "hooks": [manifest | {"language": "system"}]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    home = str(tmp_path_factory.mktemp("pre-commit"))

    def run(*files: str) -> subprocess.CompletedProcess[str]:
        which = ["--files", *files] if files else ["--all-files"]
        command = [sys.executable, "-m", "pre_commit", "run", *which]
        return subprocess.run(
            command,
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment(PRE_COMMIT_HOME=home),
        )

    return run


def test_the_hook_stops_a_commit_with_a_typo(hook: Hook) -> None:
    done = hook()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "configs/bad.yaml:2: error: " in done.stdout
    assert "train_batch_size" in done.stdout


@pytest.mark.parametrize(
    "files",
    [["configs/good.yaml", "run.sh"], ["compose.yaml"], [".github/workflows/ci.yml", "chart.yaml"]],
    ids=" ".join,
)
def test_the_hook_lets_warnings_and_files_of_other_tools_pass(hook: Hook, files: list[str]) -> None:
    done = hook(*files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout


Action = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def action(repository: Path) -> Action:
    """Runs the last step of the action as GitHub does, with inputs over their defaults."""
    definition = yaml.safe_load((ROOT / "action.yml").read_text())
    step = definition["runs"]["steps"][-1]
    defaults = {name: each["default"] for name, each in definition["inputs"].items()}

    def run(**inputs: str) -> subprocess.CompletedProcess[str]:
        values = {f"inputs.{name}": value for name, value in (defaults | inputs).items()}
        variables = {"RLCTL": str(PROGRAMS / "rlctl"), "GITHUB_ACTION_PATH": str(ROOT)}
        for name, text in step["env"].items():
            if name not in variables:
                variables[name] = values[text.removeprefix("${{ ").removesuffix(" }}")]
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment(**variables),
        )

    return run


def test_the_action_annotates_the_line(action: Action) -> None:
    done = action()
    assert done.returncode == 1, done.stderr
    assert "::error file=configs/bad.yaml,line=2" in done.stdout
    assert "compose.yaml" not in done.stdout


def test_the_action_checks_the_paths_that_it_is_given(action: Action) -> None:
    done = action(paths="\n  configs/good.yaml\n")
    assert done.returncode == 0, done.stderr
    assert "::warning file=configs/good.yaml" in done.stdout
    missing = action(paths="configs/good.yaml\nconfigs/no-such.yaml", **{"fail-on": "warning"})
    assert missing.returncode not in (0, 3)
    assert "configs/no-such.yaml" in missing.stderr


def test_the_action_checks_for_a_cluster_and_for_a_framework(action: Action) -> None:
    small = action(paths="configs/good.yaml", cluster="1x4:H100", runner="verl", **{"fail-on": "warning"})
    assert small.returncode in (1, 3), small.stderr
    assert "cluster" in small.stdout


def test_the_action_writes_a_sarif_log(action: Action, repository: Path) -> None:
    assert action(sarif="rlctl.sarif").returncode == 1
    (run,) = json.loads((repository / "rlctl.sarif").read_text())["runs"]
    assert {result["ruleId"] for result in run["results"]} >= {"mistyped-key"}


def test_every_step_of_the_action_is_pinned_or_ours() -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    assert [step.get("uses", "").split("@")[0] for step in steps] == ["actions/setup-python", "", ""]
    assert all(step["shell"] == "bash" for step in steps if "run" in step)
