"""No secret is in anything that a run leaves: its folder, its events, its output, Ray's own logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl import runs
from rlctl.config import load, revealed, to_file
from rlctl.documents import read_yaml, write_yaml

ENVIRONMENT = {"TRACKER_SECRET": "swan-9f31c07a", "JUDGE_API_KEY": "judge-55d2e81b", "HF_TOKEN": "hf_77ab01cd"}
WRITTEN = "literal-2b60ffe4"


def files_with(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.mark.ray
def test_no_file_of_a_run_holds_a_secret(
    task: Any,
    run: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    plain = to_file(task.config(tmp_path / "runs", objective="sft", schedule={"total_steps": 1}))
    plain["tracking"] = [
        {"type": "swanlab", "mode": "disabled", "api_key": "${oc.env:TRACKER_SECRET}"},
        {"type": "mlflow", "uri": str(tmp_path / "mlruns"), "username": "me", "password": WRITTEN},
    ]
    plain["runtime"] = {"env_vars": {"JUDGE_API_KEY": "${oc.env:JUDGE_API_KEY}", "OTHER_API_KEY": WRITTEN}}
    source = tmp_path / "source.yaml"
    source.write_text(write_yaml(plain))
    loaded, report = load(read_yaml(source.read_text(), str(source)))
    assert loaded is not None, report
    sessions: list[Path] = []

    def watch(event: dict[str, Any]) -> None:
        import ray

        if event["kind"] == "stage_started":
            sessions.append(Path(ray._private.worker._global_node.get_session_dir_path()))

    done = run(loaded.config, watch=watch, expressions=loaded.expressions, files=(str(source),))
    assert done.result.status == "finished", done.result.cause
    folder = done.result.folder
    assert (folder / "source.yaml").exists()
    output = "".join(capfd.readouterr())
    for secret in (*ENVIRONMENT.values(), WRITTEN):
        assert files_with(folder, secret) == []
        assert files_with(sessions[0] / "logs", secret) == []
        assert secret not in repr(done.events)
        assert secret not in output
    monkeypatch.setenv("OTHER_API_KEY", "again")
    assert runs.read_config(folder).tracking[0].api_key == "${oc.env:TRACKER_SECRET}"
    read = revealed(runs.read_config(folder))
    assert read.tracking[0].api_key == ENVIRONMENT["TRACKER_SECRET"]
    assert read.tracking[1].password is None
    assert read.runtime.env_vars["OTHER_API_KEY"] == "again"
