"""Other repositories check their configs with the pre-commit hook and the GitHub Action: both are tried on one made on the spot."""

from __future__ import annotations

import json
import os
import re
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


@pytest.fixture
def branched(repository: Path) -> Path:
    """The repository with a branch that puts a typo into a config."""
    options = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["branch", "-M", "main"], ["commit", "--quiet", "-m", "a"], ["switch", "--quiet", "-c", "change"]):
        subprocess.run(["git", *options, *words], cwd=repository, check=True, env=environment())
    (repository / "configs/good.yaml").write_text(BAD)
    subprocess.run(
        ["git", *options, "commit", "--quiet", "-a", "-m", "b"], cwd=repository, check=True, env=environment()
    )
    return repository


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what git sets in hooks, and with rlctl on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"} | variables


Hook = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hook(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Hook:
    """Runs the hook with pre-commit on some files; it is taken from its manifest, and rlctl from this environment."""
    manifest = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    hooks = [hook | {"language": "system", "args": hook.get("args", [])} for hook in manifest]
    hooks[1]["args"] = ["main"]
    config = {"repos": [{"repo": "local", "hooks": hooks}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    home = str(tmp_path_factory.mktemp("pre-commit"))

    def run(*files: str, stage: str = "pre-commit") -> subprocess.CompletedProcess[str]:
        which = ["--files", *files] if files else ["--all-files"]
        which += ["--hook-stage", stage]
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


def test_the_hook_of_a_push_prints_the_review_and_stops_it(hook: Hook, branched: Path) -> None:
    done = hook(stage="pre-push")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "`configs/good.yaml`" in done.stdout
    assert "mistyped-key" in done.stdout


Action = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def action(repository: Path) -> Action:
    """Runs a step of the action as GitHub does, with inputs over their defaults; the last one unless another is named."""
    definition = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = {step.get("name", ""): step for step in definition["runs"]["steps"]}
    defaults = {name: each["default"] for name, each in definition["inputs"].items()}

    def run(
        name: str = "Check configs", event: dict[str, str] | None = None, **inputs: str
    ) -> subprocess.CompletedProcess[str]:
        step = steps[name]
        values = {f"inputs.{name}": value for name, value in (defaults | inputs).items()} | (event or {})
        variables = {"RLCTL": str(PROGRAMS / "rlctl"), "GITHUB_ACTION_PATH": str(ROOT)}
        for name, text in step["env"].items():
            if name not in variables:
                variables[name] = re.sub(r"\$\{\{ (.*?) \}\}", lambda match: values[match[1]], text)
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


def test_the_action_reviews_a_pull_request(action: Action, branched: Path) -> None:
    event = {
        "github.event.pull_request.base.sha": "main",
        "github.event.pull_request.head.sha": "change",
        "github.event.pull_request.head.repo.full_name": "o/n",
        "github.server_url": "https://github.com",
    }
    done = action("Review configs", event, review="review.md", paths="configs\n", cluster="1x8:H100")
    assert done.returncode == 0, done.stderr
    told = (branched / "review.md").read_text()
    assert "(https://github.com/o/n/blob/change/configs/good.yaml#L2)" in told
    assert " / 80 GiB" in told
    pushed = action("Review configs", dict.fromkeys(event, ""), review="none.md")
    assert pushed.returncode == 0, pushed.stderr
    assert not (branched / "none.md").exists()


WORKFLOWS = re.findall(
    r"```yaml\n(# (\.\S+)\n.*?)```", (ROOT / "docs/howto/review-pull-requests.md").read_text(), re.DOTALL
)


@pytest.mark.parametrize(("content", "name"), WORKFLOWS, ids=[name for _, name in WORKFLOWS])
def test_the_workflows_of_the_docs_are_valid(content: str, name: str, tmp_path: Path) -> None:
    schema = {".github": "vendor.github-workflows", ".gitlab-ci.yml": "vendor.gitlab-ci"}.get(name.partition("/")[0])
    if schema is None:
        return
    file = tmp_path / "workflow.yml"
    file.write_text(content)
    command = [PROGRAMS / "check-jsonschema", "--builtin-schema", schema, file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_of_the_docs_give_the_actions_inputs_that_they_have() -> None:
    seen = []
    for content, name in WORKFLOWS:
        for job in yaml.safe_load(content).get("jobs", {}).values() if name.startswith(".github") else ():
            for step in job["steps"]:
                action = step.get("uses", "").partition("@")[0]
                if action.startswith("rlctl/rlctl"):
                    inputs = yaml.safe_load(
                        (ROOT / action.removeprefix("rlctl/rlctl").strip("/") / "action.yml").read_text()
                    )
                    assert set(step["with"]) <= set(inputs["inputs"]), action
                    seen.append(action)
    assert seen == ["rlctl/rlctl", "rlctl/rlctl/comment"]


def test_the_workflow_that_writes_runs_nothing_of_a_pull_request() -> None:
    reading, writing = (yaml.safe_load(content) for content, name in WORKFLOWS if name.startswith(".github"))
    assert reading["permissions"] == {"contents": "read"}
    assert writing[True] == {"workflow_run": {"workflows": [reading["name"]], "types": ["completed"]}}
    steps = writing["jobs"]["comment"]["steps"]
    assert not any("run" in step or "checkout" in step["uses"] for step in steps)
    comment = yaml.safe_load((ROOT / "comment/action.yml").read_text())
    [step] = comment["runs"]["steps"]
    assert "${{" not in step["run"]
    assert (ROOT / "comment" / "../rlctl/cli/review/posting.py").is_file()


def test_every_step_of_the_action_is_pinned_or_ours() -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    assert [step.get("uses", "").split("@")[0] for step in steps] == ["actions/setup-python", "", "", ""]
    assert all(step["shell"] == "bash" for step in steps if "run" in step)
