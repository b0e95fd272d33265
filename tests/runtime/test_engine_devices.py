"""An engine over several GPUs: its own workers take them, by the variables that vLLM's Ray executor reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlctl.config import config_from
from rlctl.planning.plan import make_plan
from rlctl.runtime.processes import placement
from rlctl.runtime.processes.placement import Placement


def spawned(
    monkeypatch: pytest.MonkeyPatch, device: str, engine: str = "vllm"
) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The variables and the Ray options of every rollout process of a run with two engines of two devices."""
    config = config_from(
        {
            "data": {"train": [{"path": "a.parquet"}]},
            "rollout": {"engine": engine, "parallel": {"tensor_parallel_size": 2}},
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


def test_the_server_of_sglang_is_told_its_gpus_and_the_process_itself_holds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, float]] = []

    def gpus(bundles: Any, places: Any, share: float) -> list[str]:
        asked.append((places, share))
        return [str(7 - place) for place in places]

    monkeypatch.setattr(placement, "_gpus_of", gpus)
    found = spawned(monkeypatch, "cuda", "sglang")
    assert [variables["RLCTL_ENGINE_GPUS"] for variables, _ in found] == ["7,6", "5,4"]
    assert [places for places, _ in asked] == [[0, 1], [2, 3]]
    assert all(0 < share < 1 for _, share in asked), "the other roles of a GPU keep theirs"
    assert [options["num_gpus"] for _, options in found] == [0, 0]
    assert not any("VLLM_RAY_BUNDLE_INDICES" in variables for variables, _ in found)


@pytest.mark.ray
@pytest.mark.soak
def test_ray_says_which_gpu_a_bundle_has() -> None:
    """Of a machine that is said to have four; an actor has the other share of one."""
    ray.init(num_cpus=2, num_gpus=4, include_dashboard=False, log_to_driver=False)
    try:
        group = placement_group([{"GPU": 1.0, "CPU": 0.1}] * 4)
        assert group.wait(30)
        holds = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=2)

        @ray.remote(num_cpus=0, num_gpus=0.5, scheduling_strategy=holds)
        class Trainer:
            def gpus(self) -> list[str]:
                return [str(gpu) for gpu in ray.get_gpu_ids()]

        trainer = Trainer.remote()
        first, second = placement._gpus_of(group, [2, 3], 0.5)
        assert [first] == ray.get(trainer.gpus.remote())
        assert first != second
    finally:
        ray.shutdown()


def test_on_cpus_there_is_nothing_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    found = spawned(monkeypatch, "cpu")
    assert [variables for variables, _ in found] == [{"A": "1"}] * 2
    assert all("runtime_env" not in options for _, options in found)
    assert [options["scheduling_strategy"]["placement_group_bundle_index"] for _, options in found] == [0, 2]
