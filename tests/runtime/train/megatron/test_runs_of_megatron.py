"""Whole runs on Megatron: the controller does not know, so the numbers of every step are those of a run on FSDP2, and it learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.runtime.conftest import Ran, Task
from tests.runtime.learning import check_that_it_learns
from tests.runtime.local import run_here

RATES = {"precision": {"compute": "float32"}, "optimizer": {"lr": 1e-3, "epsilon": 1e-4}}
TAKES = ("seconds", "time", "per_second", "memory", "mfu", "share")
"""Parts of the names of what depends on the machine."""
STAGES = {"pipeline_parallel_size": 2, "transformer": {"num_layers_in_last_pipeline_stage": 1}}
"""The quickstart's model has three layers."""
LAYOUTS = pytest.mark.parametrize("sizes", [{"tensor_parallel_size": 2}, STAGES], ids=["tensor", "pipeline"])


def numbers(ran: Ran) -> dict[tuple[str, int], dict[str, float]]:
    return {
        step: {name: value for name, value in metrics.items() if not any(part in name for part in TAKES)}
        for step, metrics in ran.numbers.items()
    }


def two_stages(task: Task, folder: Path, train: dict[str, Any], devices: int) -> Any:
    return task.two_stages(
        folder,
        train={**RATES, **train},
        placement={"devices_per_node": devices, "device": "cpu"},
    )


@pytest.mark.ray
@pytest.mark.soak
@LAYOUTS
def test_a_run_has_the_numbers_of_fsdp2(
    sizes: dict[str, Any], task: Task, run: Callable[..., Ran], tmp_path: Path
) -> None:
    expected = numbers(run(two_stages(task, tmp_path / "fsdp2", {"engine": {"type": "fsdp2"}}, 1)))
    found = numbers(run(two_stages(task, tmp_path / "megatron", {"engine": {"type": "megatron", **sizes}}, 2)))
    assert found.keys() == expected.keys()
    for step, metrics in expected.items():
        for name in metrics.keys() & found[step].keys():
            assert found[step][name] == pytest.approx(metrics[name], rel=1e-3, abs=1e-4), (step, name)


@pytest.mark.ray
@pytest.mark.soak
@LAYOUTS
def test_it_learns(sizes: dict[str, Any], task: Task, run: Callable[..., Ran], tmp_path: Path) -> None:
    """GRPO, as ``test_algorithms_learn.py`` has it for FSDP2."""
    check_that_it_learns(
        task,
        run,
        tmp_path,
        per_micro_batch=32,
        placement={"devices_per_node": 2, "device": "cpu"},
        train={
            "engine": {"type": "megatron", **sizes},
            "precision": {"compute": "float32"},
            "optimizer": {"lr": 1e-3},
        },
    )


@pytest.mark.soak
def test_a_run_with_adapters_has_the_numbers_of_fsdp2(task: Task, tmp_path: Path) -> None:
    """The reference is the policy without its adapters; what is saved is an adapter that peft reads."""

    def steps(engine: str) -> list[dict[str, float]]:
        config = task.config(
            tmp_path / engine,
            model={
                "path": str(task.folder / "model"),
                "lora": {"rank": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]},
            },
            train={**RATES, "engine": {"type": engine}, "optimizer": {"lr": 3e-2, "epsilon": 1e-4}},
            algorithm={"kl_in_loss": {"coefficient": 0.1}, "entropy_coefficient": 0.01},
            schedule={"total_steps": 2, "evaluate_every": 2},
            placement={"devices_per_node": 1, "device": "cpu"},
        )
        seen = run_here(config, tmp_path / engine)
        return [event["metrics"] for event in seen if event["kind"] == "step"]

    expected, found = steps("fsdp2"), steps("megatron")
    assert len(found) == len(expected) == 2
    assert expected[1]["policy/kl_loss"] > 0
    for mine, theirs in zip(found, expected, strict=True):
        for name in mine.keys() & theirs.keys():
            if not any(part in name for part in TAKES):
                assert mine[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-4), name
    adapters = {
        engine: next((tmp_path / engine).rglob("adapter/adapter_model.safetensors")) for engine in ("fsdp2", "megatron")
    }
    mine, theirs = (load_file(adapters[engine]) for engine in ("megatron", "fsdp2"))
    assert mine.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(mine[name], tensor, rtol=1e-3, atol=1e-4)
