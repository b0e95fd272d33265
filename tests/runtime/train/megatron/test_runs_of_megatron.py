"""Whole runs on Megatron: the controller does not know, so the numbers of every step are those of a run on FSDP2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.conftest import Ran, Task

RATES = {"precision": {"compute": "float32"}, "optimizer": {"learning_rate": 1e-3, "epsilon": 1e-4}}
TAKES = ("seconds", "time", "per_second", "memory", "mfu", "share")
"""Parts of the names of what depends on the machine."""


def numbers(ran: Ran) -> dict[tuple[str, int], dict[str, float]]:
    return {
        step: {name: value for name, value in metrics.items() if not any(part in name for part in TAKES)}
        for step, metrics in ran.numbers.items()
    }


def learning(task: Task, folder: Path, train: dict[str, Any], devices: int) -> Any:
    return task.two_stages(
        folder,
        train={**RATES, **train},
        placement={"devices_per_node": devices, "device": "cpu"},
    )


@pytest.mark.ray
@pytest.mark.soak
@pytest.mark.parametrize("sizes", [{"tensor": 2}, {"pipeline": 2}], ids=["tensor", "pipeline"])
def test_a_run_has_the_numbers_of_fsdp2(
    sizes: dict[str, int], task: Task, run: Callable[..., Ran], tmp_path: Path
) -> None:
    expected = numbers(run(learning(task, tmp_path / "fsdp2", {"engine": {"name": "fsdp2"}}, 1)))
    found = numbers(run(learning(task, tmp_path / "megatron", {"engine": {"name": "megatron", **sizes}}, 2)))
    assert found.keys() == expected.keys()
    for step, metrics in expected.items():
        for name in metrics.keys() & found[step].keys():
            assert found[step][name] == pytest.approx(metrics[name], rel=1e-3, abs=1e-4), (step, name)
