"""The devices of this machine are those that Ray will find on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlctl.common.errors import RunError
from rlctl.runs import local_cluster
from rlctl.runs import machine as module

GPUS = "GPU-aaaa, 81920\nGPU-bbbb, 40960\nGPU-cccc, 81920\n"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The driver's tool, which says what is written into the file beside it."""
    tool, said = tmp_path / "nvidia-smi", tmp_path / "said"
    tool.write_text(f"#!/bin/sh\nexec cat {said}\n")
    tool.chmod(0o755)
    said.write_text(GPUS)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return said


@pytest.mark.parametrize(
    ("named", "devices", "gib"),
    [
        (None, 3, 40),
        ("0,2", 2, 80),
        ("GPU-b", 1, 40),
        ("2,9,0", 1, 80),
        ("MIG-1,MIG-2", 2, None),
    ],
)
def test_gpus_are_those_that_the_process_may_use(
    driver: Path, monkeypatch: pytest.MonkeyPatch, named: str | None, devices: int, gib: float | None
) -> None:
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    found = local_cluster()
    assert (found.device, found.devices_per_node, found.gib_per_device) == ("cuda", devices, gib)


@pytest.mark.parametrize("named", ["", "-1", "NoDevFiles"])
def test_a_process_that_may_use_no_gpu_has_cores(driver: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert local_cluster().device == "cpu"


def test_a_gpu_whose_memory_nobody_knows_is_one(driver: Path) -> None:
    driver.write_text("GPU-dddd, [N/A]\n")
    assert (local_cluster().devices_per_node, local_cluster().gib_per_device) == (1, None)


def test_a_driver_that_hangs_is_told(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (driver.parent / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    with pytest.raises(RunError, match="did not list this machine's GPUs within"):
        local_cluster()
