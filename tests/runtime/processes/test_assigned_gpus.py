"""Which GPUs a worker sees, if the cluster leaves that to the worker."""

from __future__ import annotations

import os

import pytest
import ray

from rlctl.runtime.processes.environment import LEFT_ALONE, _show_assigned_gpus


@pytest.mark.parametrize(
    ("setting", "assigned", "seen"), [("1", [5], "5"), ("1", [], "0,1"), ("", [5], "0,1")], ids=["left", "none", "set"]
)
def test_a_worker_sees_the_gpus_that_ray_assigned(
    monkeypatch: pytest.MonkeyPatch, setting: str, assigned: list[int], seen: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv(LEFT_ALONE, setting)
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: assigned)
    _show_assigned_gpus()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen
