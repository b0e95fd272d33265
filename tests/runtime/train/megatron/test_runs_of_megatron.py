"""Whole runs on Megatron: the controller does not know, so the numbers of every step are those of a run on FSDP2, and it learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.conftest import Ran, Task
from tests.runtime.learning import check_that_it_learns

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
