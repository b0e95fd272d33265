"""The files of the current folder are never executed: every Python that rlctl starts is started by ``rlctl.common.own_python``."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlctl.common import own_python

ROOT = Path(__file__).parents[2]
OWN = "rlctl/common/own_python.py"
NAMED = {
    "rlctl/__main__.py": 1,  # in a message
    "rlctl/cli/cluster.py": 1,  # its folder
    "rlctl/cli/doctor.py": 1,  # shown
    "rlctl/sandbox/profile.py": 1,  # its folder
    "rlctl/runtime/juicer/client.py": 1,  # the default of a key: runs a file, in an empty folder
}
"""Where Python's name is needed, but no process of rlctl's is started with it, and how often."""
STARTED_ELSEWHERE = {"rlctl/cli/jobs.py": 1}  # on a cluster, whose Python has another name
POOLS = {"ProcessPoolExecutor", "Process", "get_context", "set_start_method", "Pool"}
ALLOWED_POOLS = {"rlctl/runtime/data/parallel.py"}


TELLING = re.compile(r"executable|python|Process|Pool|get_context|start_method")


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules of rlctl that could start one."""
    for path in sorted((ROOT / "rlctl").rglob("*.py")):
        if TELLING.search(text := path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(text)


def executables(tree: ast.AST) -> int:
    """How often a tree names the Python that runs it, however ``sys`` was imported."""
    return sum(
        (isinstance(node, ast.Attribute) and node.attr in ("executable", "_base_executable") and ast.unparse(node.value) == "sys")
        or (isinstance(node, ast.ImportFrom) and node.module == "sys" and any(a.name == "executable" for a in node.names))
        for node in ast.walk(tree)
    )  # fmt: skip


def pythons(tree: ast.AST) -> list[int]:
    """Lines with a command of Python in words: ``"python", "-m"`` or one text that begins so."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple) and node.elts and isinstance(first := node.elts[0], ast.Constant):
            words = [str(each.value) for each in node.elts if isinstance(each, ast.Constant)]
            if str(first.value) in ("python", "python3") and {"-m", "-c", "-P", "-I"} & set(words):
                found.append(node.lineno)
    return found


def pools(tree: ast.AST) -> set[str]:
    """What starts processes of ``multiprocessing``: they look for it in the current folder first."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("multiprocessing", "concurrent", "torch")
        for alias in node.names
        if alias.name in POOLS
    }  # fmt: skip


def test_every_python_is_started_in_one_place() -> None:
    trees = dict(sources())
    assert {path: count for path, tree in trees.items() if path != OWN and (count := executables(tree))} == NAMED
    assert {path: len(lines) for path, tree in trees.items() if (lines := pythons(tree))} == STARTED_ELSEWHERE
    assert {path for path, tree in trees.items() if pools(tree)} == ALLOWED_POOLS


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run([sys.executable, '-m', 'rlctl'])",
        "from sys import executable",
        "os.execv(sys.executable, words)",
        "command = ('python', '-m', 'rlctl')",
        "from multiprocessing import Process",
        "from concurrent.futures import ProcessPoolExecutor",
    ],
)
def test_another_way_is_found(text: str) -> None:
    tree = ast.parse(text)
    assert executables(tree) or pythons(tree) or pools(tree)


def test_the_python_of_a_cluster_is_safe_too() -> None:
    from rlctl.cli.jobs import PYTHON

    assert "-P" in PYTHON


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with a file for every module that could be imported, each of which leaves a mark."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions()} - {"__main__"}
    assert len(names) > 300
    for name in filter(str.isidentifier, names):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'marks')!r}, 'a').write('{name} ')\n")
    (folder / "run.yaml").write_text(
        "rlctl: 1\nrun: {name: x}\nmodel: {path: ./none}\ndata: {train: [{path: train.jsonl}]}\n"
        "batch: {prompts_per_step: 8, responses_per_prompt: 4}\nschedule: {total_epochs: 1}\nrewards: [{type: rule}]\n"
        "placement: {device: cpu, nodes: 1, devices_per_node: 2}\n"
    )
    (folder / "train.jsonl").write_text('{"prompt": "1 + 1", "answer": "2"}\n')
    (folder / "run.sh").write_text("python3 -m verl.trainer.main_ppo data.train_batch_size=8\n")
    return folder


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


COMMANDS = [
    ["check", "run.yaml"],
    ["check", "--data", "run.yaml"],
    ["plan", "run.yaml"],
    ["convert", "run.sh", "--to", "rlctl"],
    ["convert", "--trace", "run.sh", "--to", "rlctl"],
    ["diff", "run.yaml", "run.yaml"],
    ["port", "run.yaml", "--to", "verl", "-o", "ported"],
    ["set", "run.yaml", "run.seed=1"],
    ["batch", "run.yaml"],
    ["data", "inspect", "run.yaml"],
    ["launch", "run.yaml"],
    ["runs", "list"],
    ["cluster", "slurm", "run.yaml"],
    ["doctor"],
    ["schema"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_imports_the_modules_of_the_current_folder(hostile: Path, words: list[str]) -> None:
    done = run_in(hostile, str(Path(sys.executable).with_name("rlctl")), *words)
    marks = hostile.parent / "marks"
    assert not marks.exists(), f"{marks.read_text()}\n{done.stderr}"
    assert "Traceback" not in done.stderr


POOL = """
from rlctl.runtime.data.parallel import over_ranges
import operator
if __name__ == "__main__":
    print(list(over_ranges(operator.sub, 4, 2, processes=2, key="x")))
"""


def test_no_process_imports_the_modules_of_the_current_folder(hostile: Path, tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    commands = [
        own_python.module("rlctl", "version"),
        own_python.isolated("-c", "import yaml, numpy"),
        own_python.bare("-c", "import json"),
        own_python.file(str(tmp_path / "pool.py")),
        [
            sys.executable,
            str(tmp_path / "pool.py"),
        ],  # whose own children are safe even if it was started in another way
    ]
    for words in commands:
        done = run_in(hostile, *words)
        assert done.returncode == 0, done.stderr
    assert done.stdout == "[-2, -2]\n"
    assert not (tmp_path / "marks").exists(), (tmp_path / "marks").read_text()


def test_the_variable_for_children_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(own_python.SAFE_PATH, raising=False)
    with own_python.safe_children():
        assert os.environ[own_python.SAFE_PATH] == "1"
    assert own_python.SAFE_PATH not in os.environ
    monkeypatch.setenv(own_python.SAFE_PATH, "x")
    with own_python.safe_children():
        pass
    assert os.environ[own_python.SAFE_PATH] == "x"
