"""Any checkpoint of a run becomes weights in Hugging Face format: those of its end are the ones that the run itself leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlctl import runs
from rlctl.cli import app
from rlctl.common.errors import ExitCode, RunError
from rlctl.runs import serving
from tests.runtime.local import launch_here


def test_weights_of_any_checkpoint(task: Any, tmp_path: Path) -> None:
    config = task.config(tmp_path, objective="sft", schedule={"total_steps": 2}, checkpoint={"every": 1})
    assert launch_here(config).status == "finished"
    run = runs.find("demo", tmp_path)
    left = (run.folder / "checkpoints" / "main" / "hf" / "model.safetensors").read_bytes()

    newest = runs.export(run).folder
    assert newest == run.folder / "export" / "main-step-000002"
    assert (newest / "model.safetensors").read_bytes() == left
    assert {"config.json", "tokenizer.json"} <= {path.name for path in newest.iterdir()}

    told = CliRunner().invoke(
        app, ["export", "demo", "--folder", str(tmp_path), "--step", "1", "--to", str(tmp_path / "one"), "--json"]
    )
    assert json.loads(told.stdout) == {"folder": str(tmp_path / "one"), "step": 1, "skipped": []}
    assert (tmp_path / "one" / "model.safetensors").read_bytes() != left

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(RunError, match="exists and is not empty"):
        runs.export(run, step=1, to=tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()
    assert runs.export(run, step=1, to=tmp_path / "mine", force=True).step == 1

    with pytest.raises(RunError, match="stage main of demo has no complete checkpoint of step 3") as missing:
        runs.export(run, step=3)
    assert missing.value.hint == "there are steps 1, 2"
    (run.folder / "checkpoints" / "main" / "step-000010").mkdir()
    with pytest.raises(RunError) as missing:
        runs.export(run, step=3)
    assert missing.value.hint == "there are steps 1, 2, 10"
    with pytest.raises(RunError, match="no stage 'mian'"):
        runs.export(run, stage="mian")
    (run.folder / "checkpoints" / "main" / "step-000010").rmdir()

    damaged = run.folder / "checkpoints" / "main" / "step-000002"
    cut = damaged / "policy" / "checksums.json"
    cut.write_text(cut.read_text().replace("1", "2"))
    told = CliRunner().invoke(app, ["export", "demo", "--folder", str(tmp_path), "--json"])
    assert told.exit_code == ExitCode.FINDINGS
    assert json.loads(told.stdout) == {
        "folder": str(run.folder / "export" / "main-step-000001"),
        "step": 1,
        "skipped": [str(damaged)],
    }
    assert f"{damaged} is damaged; exported the checkpoint of step 1" in told.stderr
    with pytest.raises(RunError, match="no complete checkpoint of step 2"):
        runs.export(run, step=2)

    warnings: list[str] = []
    source = serving._Source(run, None, tmp_path / "served", warnings.append)
    assert source.first() is not None
    assert warnings == [f"{damaged} is damaged; serving the checkpoint of step 1"]
    assert source.newer(1) is None
    shutil.rmtree(damaged.with_name("step-000001"))
    with pytest.raises(RunError, match=r"no whole checkpoint\n  those of steps 2 are damaged"):
        serving._Source(run, None, tmp_path / "served", warnings.append).first()
