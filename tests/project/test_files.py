"""Files for GitHub, Docker and contributors are valid: each is checked with the schema or the linter of its own tool."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pre_commit.clientlib import load_config, load_manifest

import rlctl

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCHEMAS = {
    "github-workflows": sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    "github-actions": [ROOT / "action.yml", ROOT / "comment" / "action.yml"],
    "github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
    "github-issue-forms": [p for p in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")) if p.stem != "config"],
    "dependabot": [ROOT / ".github" / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile*"))


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_of_github_fit_their_schemas(schema: str) -> None:
    assert SCHEMAS[schema]
    done = run(PROGRAMS / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_has_no_findings(file: Path) -> None:
    done = run(PROGRAMS / "hadolint", file)
    assert done.returncode == 0, done.stdout


def test_the_linter_of_dockerfiles_finds_something(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /opt && pip install x\n")
    assert {"DL3006", "DL3013", "DL3042"} <= set(
        re.findall(r"DL\d+", run(PROGRAMS / "hadolint", tmp_path / "Dockerfile").stdout)
    )


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_copies_and_installs_what_there_is(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    shipped = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    for names in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in names.split():
            assert (ROOT / name).exists()
            assert name in shipped, f".dockerignore leaves {name} out"
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    requirements = " ".join(line for group in PROJECT["optional-dependencies"].values() for line in group)
    for pin in re.findall(r"\b[a-z]+==\S+", text):
        assert pin in requirements
    commands = re.findall(r"rlctl:\w+ (\w+)", text)
    assert commands
    assert text.count("\nUSER 1000\n") == 1


def test_the_citation_has_the_version_of_the_package() -> None:
    assert read("CITATION.cff")["version"] == rlctl.__version__
    assert read("CITATION.cff")["license"] == PROJECT["license"]


def test_the_hooks_of_this_repository_run_what_make_setup_installs() -> None:
    (repo,) = load_config(str(ROOT / ".pre-commit-config.yaml"))["repos"]
    for hook in repo["hooks"]:
        folder, _, program = hook["entry"].split()[0].rpartition("/")
        assert folder == ".venv/bin"
        assert (PROGRAMS / program).exists(), f"{program} is not installed by rlctl[dev]"


def test_the_hooks_for_other_repositories_are_valid() -> None:
    assert [hook["id"] for hook in load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))] == [
        "rlctl-check",
        "rlctl-review",
    ]


def test_workflows_and_the_makefile_agree() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    jobs = [job for path in SCHEMAS["github-workflows"] for job in yaml.safe_load(path.read_text())["jobs"].values()]
    used = {
        words.split()[1] for job in jobs for step in job["steps"] if (words := step.get("run", "")).startswith("make ")
    }
    assert {"check", "test"} <= used <= targets


def test_classifiers_name_the_python_that_ci_tests() -> None:
    listed = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    tested = {
        version
        for path in SCHEMAS["github-workflows"]
        for job in yaml.safe_load(path.read_text())["jobs"].values()
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
        for version in step["with"]["python-version"].split()
    }
    assert listed == tested == {"3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert releases[0] == "[Unreleased]"
    for release in releases[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", release)
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for release in releases:
        assert re.search(rf"^{re.escape(release.split(' ')[0])}: https://", text, re.MULTILINE), "a link of the release"


def test_what_the_quick_tests_leave_out_is_there() -> None:
    """`make test-fast` names files; one that moved would be run, or its like missed."""
    listed = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/.ready", "test-fast"],
        capture_output=True, text=True, timeout=30, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    ignored = re.findall(r"--ignore=(\S+)", listed)
    assert len(ignored) > 10
    assert [path for path in ignored if not (ROOT / path).exists()] == []


def test_actions_are_named_by_the_commit_that_was_looked_at() -> None:
    """A tag can be moved to other code."""
    files = [*SCHEMAS["github-workflows"], *SCHEMAS["github-actions"]]
    used = [line for path in files for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert len(used) >= 5
    for line in used:
        assert re.search(r"uses: [\w-]+/[\w/-]+@[0-9a-f]{40} +# v\d+\.\d+\.\d+$", line), line
    versions = {line.split("uses: ")[1].strip() for line in used}
    assert len(versions) == len({version.partition("@")[0] for version in versions}), "one version of an action"


def test_the_action_installs_the_versions_that_are_tested() -> None:
    (install,) = [step["run"] for step in read("action.yml")["runs"]["steps"] if "pip" in step.get("run", "")]
    (line,) = [line for line in install.splitlines() if "/pip" in line]
    assert '-c "$GITHUB_ACTION_PATH/constraints.txt"' in line
    assert (ROOT / "constraints.txt").is_file()
