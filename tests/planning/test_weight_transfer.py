"""Which way weights take, and what is told of one that a config names and a run does not take."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.config import Config, config_from
from rlctl.planning.plan import make_plan
from rlctl.planning.support import not_used, unhonoured
from rlctl.planning.weight_transfer import way_of


def config(method: str, **sections: Any) -> Config:
    placement = {"device": "cuda", "devices_per_node": 4, "layout": "split", **sections.pop("placement", {})}
    made = {"model": {"path": "m"}, "weight_sync": {"method": method}, "placement": placement, **sections}
    return config_from({"rollout": {"engine": "vllm"}, **made})


@pytest.mark.parametrize(
    ("placement", "method", "way", "told"),
    [
        ({}, "auto", "nccl", ""),
        ({}, "nccl", "nccl", ""),
        ({}, "ipc", "memory", "no training worker is on"),
        ({"layout": "colocated"}, "auto", "ipc", ""),
        ({"layout": "colocated"}, "nccl", "memory", "NCCL needs different GPUs"),
        ({"layout": "colocated"}, "ipc", "ipc", ""),
        ({"layout": "colocated", "devices_per_node": 1}, "auto", "ipc", ""),
        ({"layout": "colocated", "devices_per_node": 1}, "ipc", "ipc", ""),
        ({"layout": "colocated", "devices_per_node": 1}, "nccl", "memory", "NCCL needs different GPUs"),
        ({"layout": "explicit", "roles": {"policy": {"devices": [0, 1]}, "rollout": {"devices": [1, 2]}}}, "auto", "nccl", ""),
        ({"layout": "explicit", "roles": {"policy": {"devices": [1, 2]}, "rollout": {"devices": [1]}}}, "auto", "ipc", ""),
        ({"layout": "explicit", "roles": {"policy": {"devices": [1, 2]}, "rollout": {"devices": [1, 3]}}}, "auto", "memory", ""),
        ({}, "checkpoint", "checkpoint", ""),
        ({}, "memory", "memory", ""),
        ({}, "in_place", "memory", "separate processes"),
        ({"device": "cpu"}, "auto", "memory", ""),
        ({"device": "cpu"}, "nccl", "memory", "there are no GPUs"),
    ],
)  # fmt: skip
def test_the_way_is_one_that_the_devices_can_take(placement: dict[str, Any], method: str, way: str, told: str) -> None:
    found = way_of(config(method, placement=placement), "vllm", None)
    assert found.name == way
    assert told in found.reason
    assert bool(told) == bool(found.reason)


def test_what_is_not_taken_is_told_with_its_reason() -> None:
    """Where the config does not say what devices are, what the machines have."""
    given = config("nccl", placement={"device": "auto"})
    assert [each.reason for each in unhonoured(given) if each.key == ("weight_sync", "method")] == []
    (told,) = not_used(given, "cpu")
    assert told == "weight_sync.method: there are no GPUs: rlctl syncs weights through host memory"
    other = config("ipc", rollout={"engine": "sglang"})
    assert [each.reason for each in unhonoured(other) if each.key == ("weight_sync", "method")] == [
        "sglang cannot receive weights from GPU to GPU; vLLM can: rlctl syncs weights through host memory"
    ]


@pytest.mark.parametrize(
    ("placement", "told"),
    [({}, "nccl (from GPU to GPU)"), ({"device": "cpu"}, "memory (through host memory)")],
)
def test_the_plan_says_what_auto_is(placement: dict[str, Any], told: str) -> None:
    (stage,) = make_plan(config("auto", placement=placement)).stages
    assert f"weight sync: rlctl chose {told}" in stage.notes
