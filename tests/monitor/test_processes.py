"""A process tells of itself in the run folder, and whoever watches sees what it uses and when it was last heard of."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlctl.monitor.processes import Gpu, alive, processes_of
from rlctl.runtime.processes import vitals
from rlctl.runtime.processes.vitals import Gpus, Vitals


def test_a_process_tells_what_it_uses_and_does(tmp_path: Path) -> None:
    told = Vitals(tmp_path, "policy-1", every=0.05)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        told.look()
        busy_until = time.process_time() + 0.1
        while time.process_time() < busy_until:
            pass
        assert told.look()["cpu"] > 1
        told.start()
        with told.doing("train_step"):
            deadline = time.monotonic() + 30
            while (found := processes_of(tmp_path, time.time())) == [] or found[0].doing != "train_step":
                assert time.monotonic() < deadline
                time.sleep(0.02)
    finally:
        told.stop()
        child.kill()
        child.wait()
    [process] = found
    assert (process.name, process.role, process.pid, process.node) == ("policy-1", "policy", os.getpid(), socket.gethostname())  # fmt: skip
    assert process.memory > 20 << 20
    assert process.children >= 1
    assert process.gpus == ()
    assert (process.late, alive(found)) == (False, 1)


def test_who_does_not_tell_is_late_and_who_was_ended_is_gone(tmp_path: Path) -> None:
    for name in ("rollout-10", "rollout-9", "controller", "policy-0"):
        told = Vitals(tmp_path, name)
        told._write(told.look())
    found = processes_of(tmp_path, time.time() + 100)
    assert [process.name for process in found] == ["controller", "policy-0", "rollout-9", "rollout-10"]
    assert all(process.late for process in found)
    assert alive(found) == 0
    vitals.forget(tmp_path, "rollout-9")
    (tmp_path / "processes" / "rollout-10.json").write_text('{"name": "roll')
    assert [process.name for process in processes_of(tmp_path, time.time())] == ["controller", "policy-0"]


def test_another_start_of_the_run_forgets_the_processes_before(tmp_path: Path) -> None:
    before = Vitals(tmp_path, "policy-3")
    before._write(before.look())
    with vitals.controller(tmp_path):
        pass
    assert [process.name for process in processes_of(tmp_path, time.time())] == ["controller"]


def test_a_folder_that_cannot_be_written_disturbs_nothing(tmp_path: Path) -> None:
    (tmp_path / "processes").write_text("in the way")
    told = Vitals(tmp_path, "policy-0", every=0.01).start()
    time.sleep(0.05)
    told.stop()


def test_the_gpus_of_a_process_are_those_that_it_computes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for NVIDIA's library, as it answers for three GPUs of which the process may use two."""
    running: dict[int, list[Any]] = {0: [SimpleNamespace(pid=1)], 2: [SimpleNamespace(pid=7)]}
    library = SimpleNamespace(
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: running[handle],
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=5, total=8),
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=90),
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert [Gpu(**gpu) for gpu in Gpus(library).used_by({7})] == [Gpu(2, used=5, total=8, busy=90)]
    assert Gpus(library).used_by({99}) == []
