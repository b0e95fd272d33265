"""What a job does first on the cluster: its files are on the shared disk, and it works there, before it is ``rlctl``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def unpacked(tmp_path: Path, config_file: Path) -> Path:
    """The folder that Ray unpacks for a job."""
    folder = tmp_path / "unpacked"
    (folder / "files" / "0").mkdir(parents=True)
    (folder / "files" / "0" / "reward.py").write_text("X = 1\n")
    config_file.rename(folder / "run.yaml")
    return folder


def arrive(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rlctl", "--job", *words],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_files_are_placed_and_the_command_runs_beside_them(unpacked: Path, tmp_path: Path) -> None:
    home = tmp_path / "shared" / ".files" / "123"
    home.parent.mkdir(parents=True)
    (home.parent / "train.jsonl").write_text("{}\n")
    ended = arrive(unpacked, str(home), "check", "run.yaml", "--json")
    assert (home / "0" / "reward.py").read_text() == "X = 1\n"
    assert str(unpacked / "run.yaml") in ended.stdout
    assert "path-missing" not in ended.stdout, "train.jsonl is in the folder that the job works in"


def test_a_disk_that_cannot_be_written_is_told(unpacked: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").touch()
    ended = arrive(unpacked, str(tmp_path / "shared" / ".files" / "123"), "version")
    assert ended.returncode == 1
    assert "the run's files cannot be written to" in ended.stderr
    assert "run.folder must be on a disk" in ended.stderr


def test_a_python_without_the_packages_is_told_what_to_install(unpacked: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "rlctl", "--job", "home", "launch", "run.yaml"],
        cwd=unpacked, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[0].startswith(f"error: {sys.executable} cannot import ")
    assert "rlctl[runtime]" in ended.stderr
    assert "Traceback" not in ended.stderr
