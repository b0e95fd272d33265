"""Devices that a cluster does not have are refused with what it has; roles keep their processes where nothing about them changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from rlctl.common.errors import RunError
from rlctl.planning.plan import Plan, RolePlan, make_plan
from rlctl.runtime.processes.calls import StopRequested
from rlctl.runtime.processes.placement import _bundle_of, reserve

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture
def plan(task: Any, tmp_path: Path) -> Plan:
    """SFT, then RL, on one device."""
    return make_plan(task.two_stages(tmp_path))


def test_devices_that_are_not_there(cluster: None, task: Any, tmp_path: Path) -> None:
    large = make_plan(task.config(tmp_path, placement={"devices_per_node": 3, "device": "cpu"}))
    with (
        pytest.raises(
            RunError,
            match=r"no devices after 1 s: the run needs 3 x \(1 CPU\); 1 CPU are missing: the cluster's 1 node has 2",
        ) as refused,
        reserve(large, timeout=1.0, logs=tmp_path, stop_requested=lambda: False),
    ):
        pass
    assert "placement.devices_per_node" in refused.value.hint
    began = time.monotonic()
    with (
        pytest.raises(StopRequested),
        reserve(large, timeout=60.0, logs=tmp_path, stop_requested=lambda: time.monotonic() > began + 1),
    ):
        pass
    assert time.monotonic() - began < 5


def test_hosts_are_kept_until_something_changes_and_engines_never(cluster: None, plan: Plan, tmp_path: Path) -> None:
    sft, grpo = plan.stages
    with reserve(plan, timeout=30.0, logs=tmp_path, stop_requested=lambda: False) as placement:
        with placement.stage(sft, {}) as groups:
            assert list(groups) == ["policy"]
            first = groups["policy"].processes()
        with placement.stage(grpo, {}) as groups:
            assert list(groups) == ["policy", "rollout", "reward"]
            assert groups["policy"].processes() == first
            engines = groups["rollout"].processes()
        with placement.stage(grpo, {"OMP_NUM_THREADS": "2"}) as groups:
            assert groups["policy"].processes() != first
            assert groups["rollout"].processes() != engines
    assert (tmp_path / "policy-0.log").exists()
    with pytest.raises(ValueError, match="something"), reserve(plan, timeout=30.0, logs=tmp_path, stop_requested=bool):
        raise ValueError("something")
    states = {group["state"] for group in ray.util.placement_group_table().values()}
    assert states == {"REMOVED"}, "whatever ends a run, its devices are given back"


def test_the_bundle_of_a_process_is_that_of_its_first_device() -> None:
    role = RolePlan("policy", "megatron", 2, 1, (4, 5, 6, 7), 1)
    assert [_bundle_of(role, index) for index in range(2)] == [4, 6]
    assert _bundle_of(replace(role, processes=4), 3) == 7
    assert _bundle_of(RolePlan("reward", "python", 1, 1, (), 1), 0) == 0
