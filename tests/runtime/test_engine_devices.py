"""An engine over several GPUs: its own workers take them, by the variables that vLLM's Ray executor reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.config import config_from
from rlctl.planning.plan import make_plan
from rlctl.runtime.processes import placement
from rlctl.runtime.processes.placement import Placement


def spawned(monkeypatch: pytest.MonkeyPatch, device: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The variables and the Ray options of every rollout process of a run with two engines of two devices."""
    config = config_from(
        {
            "data": {"train": [{"path": "a.parquet"}]},
            "rollout": {"engine": "vllm", "parallel": {"tensor_parallel_size": 2}},
            "schedule": {"total_steps": 1},
            "placement": {"device": device, "devices_per_node": 4},
            "rewards": [{"type": "rule", "rule": "gsm8k"}],
        }
    )
    plan = make_plan(config)
    found: list[tuple[dict[str, str], dict[str, Any]]] = []
    monkeypatch.setattr(placement, "PlacementGroupSchedulingStrategy", lambda group, **bundle: bundle)
    monkeypatch.setattr(placement, "spawn", lambda environment, log, **options: found.append((environment, options)))
    role = plan.stages[0].role("rollout")
    assert role is not None
    made = object.__new__(Placement)
    made.plan, made.bundles, made.order = plan, None, range(4)  # type: ignore[assignment]
    for index in range(role.processes):
        made._spawn(role, index, {"A": "1"}, Path("log"))
    return found


def test_its_workers_get_the_share_of_each_gpu_and_the_process_itself_none(monkeypatch: pytest.MonkeyPatch) -> None:
    found = spawned(monkeypatch, "cuda")
    assert [variables["VLLM_RAY_BUNDLE_INDICES"] for variables, _ in found] == ["0,1", "2,3"]
    shares = {float(variables["VLLM_RAY_PER_WORKER_GPUS"]) for variables, _ in found}
    assert len(shares) == 1
    assert 0 < shares.pop() < 1
    assert [options["num_gpus"] for _, options in found] == [0, 0]
    hidden = [options["runtime_env"]["env_vars"]["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] for _, options in found]
    assert hidden == ["0", "0"], "on a running cluster too, whose settings are not the run's"
    assert [options["scheduling_strategy"]["placement_group_bundle_index"] for _, options in found] == [0, 2]


def test_on_cpus_there_is_nothing_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    found = spawned(monkeypatch, "cpu")
    assert [variables for variables, _ in found] == [{"A": "1"}] * 2
    assert all("runtime_env" not in options for _, options in found)
    assert [options["scheduling_strategy"]["placement_group_bundle_index"] for _, options in found] == [0, 2]
