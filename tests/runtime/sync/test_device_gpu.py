"""Weights from GPU to GPU, on GPUs: in whole runs with vLLM. Skipped where there are none.

Both runs are deterministic: otherwise the bits of a response on a GPU depend on which others are in its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.told import numbers_of

pytestmark = [pytest.mark.gpu, pytest.mark.soak, pytest.mark.ray]


@pytest.mark.parametrize(
    ("way", "placement"),
    [
        pytest.param(
            "ipc",
            {"device": "cuda", "devices_per_node": 1, "layout": "colocated"},
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
        ),
        pytest.param(
            "ipc",
            {"device": "cuda", "devices_per_node": 2, "layout": "colocated"},
            marks=pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not 2 GPUs"),
        ),
        pytest.param(
            "nccl",
            {"device": "cuda", "devices_per_node": 2, "layout": "split"},
            marks=pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not 2 GPUs"),
        ),
    ],
)
def test_no_number_depends_on_the_way(
    task: Any, run: Callable[..., Any], tmp_path: Path, way: str, placement: dict[str, Any]
) -> None:
    rollout = {"engine": "vllm", "memory": {"gpu_memory_utilization": 0.3, "enforce_eager": True}}
    found = []
    for method in (way, "memory"):
        config = task.config(
            tmp_path,
            run={"name": method, "deterministic": True},
            weight_sync={"method": method, "bucket_mib": 1},
            placement=placement,
            rollout=rollout,
        )
        ran = run(config)
        assert ran.result.status == "finished", ran.result.cause
        (started,) = [event for event in ran.events if event["kind"] == "run_started"]
        assert not any("weight_sync.method" in note for note in started["not_used"]), started
        found.append(numbers_of(ran.events))
    assert found[0] == found[1]
