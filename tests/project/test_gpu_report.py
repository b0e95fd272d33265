"""``make gpu``: what it runs, what it says without a GPU, and the page that it writes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rlctl.checks import check
from rlctl.common.report import Level
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.plan import make_plan
from rlctl.planning.weight_transfer import way_of

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.sh"


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_benchmarks", ROOT / "benchmarks" / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def called(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *args], capture_output=True, text=True, env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"}
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_runs_nothing() -> None:
    found = called()
    assert found.returncode == 1
    assert "no GPU: PyTorch finds no CUDA device" in found.stderr
    listed = called("--list", "--only", "decode", "grpo")
    assert listed.returncode == 0
    assert "needs 2 GPUs, found 0" in listed.stdout
    assert "tests" not in listed.stdout
    unknown = called("--only", "nothing")
    assert (unknown.returncode, "no part is called nothing" in unknown.stdout) == (2, True)


def test_a_part_is_skipped_for_what_it_lacks_only(gpu: ModuleType) -> None:
    needs = {part.name: part for part in gpu.parts("0.5b", 1)}
    assert gpu.lacking(needs["train"], 1) == ""
    assert gpu.lacking(gpu.Part("x", (), ("no_such_module.inside",)), 8) == "no_such_module.inside not installed"
    assert "2 GPUs" in gpu.lacking(gpu.Part("x", (), (), 2), 1)
    assert {"grpo-fsdp2-nccl-2", "grpo-megatron-ipc-1", "grpo-fsdp2-ipc-2", "decode", "tests"} <= needs.keys()


def test_grpo_runs_on_all_gpus_too(gpu: ModuleType) -> None:
    assert {part.gpus for part in gpu.parts("0.5b", 2)} == {1, 2}
    assert {part.name for part in gpu.parts("0.5b", 8) if part.gpus == 8} == {"train-8"} | {
        f"grpo-{engine}-{way}-8" for engine in ("fsdp2", "megatron") for way in ("ipc", "nccl", "memory")
    }


@pytest.fixture(scope="module")
def folder(gpu: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("grpo")
    gpu.make_quickstart_of_size(made, "tiny")
    return made


NAMES = [
    f"grpo-{engine}-{way}"
    for engine in ("fsdp2", "megatron")
    for way in ("ipc-1", "ipc-2", "nccl-2", "memory-1", "memory-2", "checkpoint-1", "ipc-8", "nccl-8", "memory-8")
]


@pytest.mark.parametrize("name", NAMES)
def test_each_run_is_one_that_rlctl_runs_as_it_is_called(gpu: ModuleType, folder: Path, name: str) -> None:
    """Nothing of it is refused, and weights go the way that the part is named after, by as many GPUs."""
    *_, way, gpus = name.split("-")
    config = gpu.grpo_config(name, folder)
    cluster = Cluster(1, int(gpus), "cuda", gpu="NVIDIA H100 80GB HBM3")
    [stage] = make_plan(config, cluster=cluster).stages
    assert stage.fit is not None
    assert stage.fit.fits
    assert not stage.not_used
    found = way_of(config, "vllm", "cuda")
    assert (found.name, found.reason) == (way, "")
    told = {each.code for each in check(config, cluster=cluster) if each.level is not Level.NOTE}
    assert told == {"never-saved"}, "a benchmark keeps no weights"


def test_the_page_has_a_row_for_each_part_whether_it_ran_or_failed(gpu: ModuleType, tmp_path: Path) -> None:
    rows = []
    for name, code in (
        ("good", "print('noise'); print('gpu.py result: {\"sync s\": 0.5}')"),
        ("bad", "raise SystemExit('a|b')"),
    ):
        rows.append((name, *gpu.run(gpu.Part(name, ("-c", code)), tmp_path)))
    page = gpu.report([*rows, ("late", "skipped", "vllm not installed")], ["H100", "H100"])
    assert "2 x H100" in page
    assert f"torch {torch.__version__.partition('+')[0]}" in page
    good, bad, late = (
        next(line for line in page.splitlines() if line.startswith(f"| {each} |")) for each in ("good", "bad", "late")
    )
    assert good.endswith("| sync s 0.5 |")
    assert "failed (1)" in bad
    assert "a\\|b" in bad
    assert late == "| late | skipped | vllm not installed |"
