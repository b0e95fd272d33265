"""A worker's process has the variables of its role, the controller's folder, its log, and what plug-ins register."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.runtime.processes.environment import (
    _copy_new,
    copies_of_logs,
    import_plugins,
    variables_by_role,
    worker_environment,
)
from rlctl.runtime.profiling.ray_timeline import ray_timeline

PROCESS = """
import json, logging, os, sys
from rlctl.runtime.processes.group import Host
host = Host(json.loads(sys.argv[1]), sys.argv[2])
built = host.build(lambda: type("Worker", (), {})())
logging.getLogger("any").info("informed")
logging.getLogger("any").warning("warned")
found = {"cwd": os.getcwd(), "error": built.error, "plugin": "plugin_noted" in sys.modules, "A": os.environ.get("A")}
open(sys.argv[3], "w").write(json.dumps(found))
"""


def config(**sections: Any) -> Config:
    return config_from({"model": {"path": "a/b"}, **sections})


def test_the_environment_of_workers_is_the_users_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    chosen = config(runtime={"env_vars": {"TOKENIZERS_PARALLELISM": "true"}})
    chosen = replace(chosen, placement=replace(chosen.placement, cpus_per_worker=3))
    found = worker_environment(chosen)
    assert found.items() >= {"OMP_NUM_THREADS": "3", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}.items()


def test_variables_of_a_role_stand_over_those_of_rollout() -> None:
    """rollout.env_vars is Trinity's explorer.env_vars, which its workflow runners generate and score with."""
    chosen = config(
        runtime={"role_env_vars": {"policy": {"A": "p"}, "reward": {"B": "r"}}},
        rollout={"env_vars": {"A": "x", "B": "x"}},
    )
    assert variables_by_role(chosen) == {
        "policy": {"A": "p"},
        "rollout": {"A": "x", "B": "x"},
        "agent": {"A": "x", "B": "x"},
        "auxiliary": {"A": "x", "B": "x"},
        "reward": {"A": "x", "B": "r"},
    }


def entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Config) -> tuple[dict[str, Any], str]:
    """What a worker's process finds, and its log."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    log, out = tmp_path / "logs" / "policy-0.log", tmp_path / "out.json"
    log.parent.mkdir()
    subprocess.run(
        [sys.executable, "-c", PROCESS, json.dumps(worker_environment(chosen)), str(log), str(out)],
        cwd=there, check=True, timeout=120, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    return json.loads(out.read_text()), log.read_text()


def test_a_process_enters_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "noted.py").write_text("print('registered')\n")
    chosen = config(runtime={"plugins": [str(tmp_path / "plugins")], "log_level": "warning", "env_vars": {"A": "1"}})
    found, log = entered(tmp_path, monkeypatch, chosen)
    assert found == {"cwd": str(tmp_path / "here"), "error": "", "plugin": True, "A": "1"}
    assert "registered" in log
    assert "WARNING any: warned" in log
    assert "informed" not in log


def test_a_plugin_that_fails_is_told_by_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, log = entered(tmp_path, monkeypatch, config(runtime={"plugins": ["no_such_plugin"]}))
    assert "runtime.plugins: no_such_plugin is not a folder" in found["error"]
    assert "INFO any: informed" in log


def test_a_module_is_a_plugin_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_mine.py").write_text("import os\nos.environ['NOTED'] = 'yes'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("NOTED", raising=False)
    import_plugins(["module_of_mine", ""])
    assert os.environ.pop("NOTED") == "yes"
    (tmp_path / "wrong.py").write_text("1 / 0\n")
    with pytest.raises(RunError, match="ZeroDivisionError"):
        import_plugins(["wrong"])


def test_logs_are_copied_as_they_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlctl.runtime.processes.environment.COPIED_EVERY_SECONDS", 0.05)
    logs = tmp_path / "run" / "logs"
    (logs / "10.0.0.1").mkdir(parents=True)
    (logs / "a.log").write_bytes(b"one\n")
    for _ in range(2):  # a run that is resumed goes on with its copies
        with copies_of_logs(logs, str(tmp_path / "copies"), "demo"):
            with (logs / "a.log").open("ab") as file:
                file.write(b"two\n")
            (logs / "10.0.0.1" / "b.log").write_bytes(b"b")
    copies = tmp_path / "copies" / "demo"
    assert (copies / "a.log").read_bytes() == (logs / "a.log").read_bytes() == b"one\ntwo\ntwo\n"
    assert (copies / "10.0.0.1" / "b.log").read_bytes() == b"b"
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="log_folder"), copies_of_logs(logs, str(tmp_path / "file"), "demo"):
        pass


def test_the_copy_of_a_log_that_was_full_is_kept_as_the_log_is(tmp_path: Path) -> None:
    logs, copies = tmp_path / "logs", tmp_path / "copies" / "demo"
    logs.mkdir()
    log = logs / "reward-mine.log"
    log.write_text("first, ")
    with copies_of_logs(logs, str(tmp_path / "copies"), "demo"):
        _copy_new(logs, copies)
        with log.open("a") as file:
            file.write("and more")
        log.rename(logs / "reward-mine.log.1")
        log.write_text("new")
    assert {path.name: path.read_text() for path in copies.iterdir()} == {
        "reward-mine.log": "new",
        "reward-mine.log.1": "first, and more",
    }


@pytest.mark.parametrize(("wanted", "name"), [(True, "ray_timeline.json"), ("there/t.json", "there/t.json")])
def test_a_timeline_is_written_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str | bool, name: str
) -> None:
    import ray

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray, "timeline", lambda filename: Path(filename).write_text("[]"))
    told: list[str] = []
    with pytest.raises(KeyError), ray_timeline(wanted, tmp_path, told.append):
        raise KeyError
    assert (tmp_path / name).read_text() == "[]"
    assert name in told[0]


def test_a_timeline_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    told: list[str] = []
    with ray_timeline(True, tmp_path, told.append):
        pass
    assert "was not written" in told[0]
    with ray_timeline(None, tmp_path, told.append), ray_timeline(False, tmp_path, told.append):
        pass
    assert len(told) == 1


def test_a_level_is_one_that_logging_knows() -> None:
    for level in ("debug", "info", "warning", "error"):
        found = worker_environment(config(runtime={"log_level": level}))
        assert logging.getLevelName(found["VLLM_LOGGING_LEVEL"]) == getattr(logging, level.upper())
