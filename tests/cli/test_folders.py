"""``convert`` on folders: names are kept, what is no config is skipped with a reason, the exit code is the worst."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VERL = "data: {train_files: a.parquet, train_batch_size: 64}\nactor_rollout_ref: {model: {path: org/model}}\n"
SCRIPT = (
    "#!/usr/bin/env bash\npython3 -m verl.trainer.main_ppo data.train_batch_size=32 actor_rollout_ref.model.path=x\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Configs of two dialects, a script, and what is none."""
    files = {
        "a.yaml": VERL,
        "deep/er/b.yml": "rlctl: 1\nmodel: {path: m}\n",
        "deep/run.sh": SCRIPT,
        "deep/run.yaml": VERL,
        "README.md": "# Configs\n",
        "deep/docker.yaml": "services: {web: {image: nginx, ports: [80]}}\n",
        "deep/clean.sh": "rm -rf build\n",
        ".git/config.yaml": VERL,
    }
    for name, text in files.items():
        path = tmp_path / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "configs"


def test_every_config_is_converted_under_its_name(rlctl: Any, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = rlctl("convert", str(folder), "--to", "rlctl", "-o", str(out))
    assert shown.code == 0, shown.err
    assert shown.out == ""
    written = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert written == {"a.yaml", "deep/er/b.yml", "deep/run.yaml", "deep/run.sh.yaml"}
    assert "prompts_per_step: 64" in (out / "a.yaml").read_text()
    assert f"skipped: {folder}/README.md: not a config by its name" in shown.err
    assert f"skipped: {folder}/deep/docker.yaml: this is not a config of" in shown.err
    assert f"skipped: {folder}/deep/clean.sh" in shown.err
    assert ".git" not in shown.err


def test_the_exit_code_is_the_worst(rlctl: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "lossy.yaml").write_text(VERL + "trainer: {no_such_key: 1}\n")
    assert rlctl("convert", str(folder), "--to", "trinity", "-o", str(tmp_path / "one")).code == 3
    strict = rlctl("convert", str(folder), "--to", "trinity", "-o", str(tmp_path / "two"), "--on-loss", "error")
    assert strict.code == 1
    assert f"failed: {folder}/lossy.yaml: keys would be lost" in strict.err
    assert not (tmp_path / "two" / "lossy.yaml").exists()
    (folder / "broken.yaml").write_text("a: [1\n")
    broken = rlctl("convert", str(folder), "--to", "trinity", "-o", str(tmp_path / "three"))
    assert broken.code == 1
    assert f"failed: {folder}/broken.yaml" in broken.err
    assert (tmp_path / "three" / "a.yaml").exists()


def test_nothing_is_overwritten_unasked_and_scripts_can_run(rlctl: Any, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("convert", str(folder), "--to", "verl", "--format", "sh", "-o", str(out))
    assert rlctl(*command).code in (0, 3)
    assert (out / "a.sh").stat().st_mode & 0o100
    again = rlctl(*command)
    assert again.code == 1
    assert "exists already" in again.err
    assert rlctl(*command, "--force").code in (0, 3)


def test_json_is_one_object_with_every_file(rlctl: Any, folder: Path, tmp_path: Path) -> None:
    shown = rlctl("convert", str(folder), "--to", "rlctl", "-o", str(tmp_path / "out"), "--json")
    found = {item["source"]: item for item in json.loads(shown.out)["files"]}
    assert found[f"{folder}/a.yaml"]["status"] == "written"
    assert found[f"{folder}/a.yaml"]["accounting"][0]["key"] == "data.train_files"
    assert found[f"{folder}/README.md"]["status"] == "skipped"


def test_a_folder_goes_into_a_folder_and_stands_alone(rlctl: Any, folder: Path, tmp_path: Path) -> None:
    assert rlctl("convert", str(folder), "--to", "verl").code == 2
    mixed = rlctl("convert", str(folder), "a=1", "--to", "verl", "-o", str(tmp_path / "out"))
    assert mixed.code == 2
    assert "is a folder" in mixed.err


def test_a_file_of_a_folder_has_the_hint_that_it_has_alone(rlctl: Any, tmp_path: Path) -> None:
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "a.yaml").write_text("rlctl: 1\nbatch: {prompts_per_stp: 3}\n")
    alone = rlctl("convert", str(folder / "a.yaml"), "--to", "verl")
    shown = rlctl("convert", str(folder), "--to", "verl", "-o", str(tmp_path / "out"))
    assert "did you mean" in alone.err
    assert "did you mean" in shown.err


def test_a_dash_is_standard_output(rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(
        "rlctl: 1\nmodel: {path: a/b}\nbatch: {prompts_per_step: 8}\nschedule: {total_steps: 1}\n"
    )
    for words in (("convert", "a.yaml", "--to", "trinity"), ("plan", "a.yaml")):
        shown = rlctl(*words, "-o", "-")
        assert shown.out, shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]
