"""Which files below a folder may be configs, and which folders are runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common import filenames
from rlctl.common.filenames import configs_and_runs


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def test_configs_and_runs_of_subfolders_are_found_the_nearest_first(tmp_path: Path) -> None:
    write(tmp_path, "b.yaml", "a.sh", "notes.txt", "conf/deep/c.yml", "x/runs/one/run.json", "x/runs/one/config.yaml")
    write(tmp_path, ".git/d.yaml", "node_modules/e.yaml", "1/2/3/4/5/far.yaml")
    configs, found_runs = configs_and_runs(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in configs] == ["a.sh", "b.yaml", "conf/deep/c.yml"]
    assert [str(path.relative_to(tmp_path)) for path in found_runs] == ["x/runs/one"]


def test_a_link_that_leads_back_up_and_a_folder_without_end_do_not_halt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a/a.yaml", "b/b.yaml")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert len(configs_and_runs(tmp_path)[0]) == 2
    monkeypatch.setattr(filenames, "MOST_LOOKED_AT", 1)
    assert configs_and_runs(tmp_path) == ([], [])
    assert configs_and_runs(tmp_path / "gone") == ([], [])
