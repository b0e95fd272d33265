"""A config scaled down to CPU: what a step computes stays, what is spread over GPUs does not, and every change is listed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlctl.checks import check
from rlctl.common.report import Level
from rlctl.config import config_from
from rlctl.config.inspect import settings
from rlctl.planning import arithmetic
from rlctl.planning.plan import Cluster, make_plan
from rlctl.planning.scaling import scaled_to_cpu

LAPTOP = Cluster(1, 2, "cpu", cpus_per_node=2)
EIGHT = {
    "rlctl": 1,
    "model": {"path": "some/model", "attention": "flash_attention_2"},
    "data": {"train": [{"path": "owner/data"}]},
    "rewards": [{"type": "rule", "workers": 16}],
    "batch": {"prompts_per_step": 128, "responses_per_prompt": 8, "mini_batch_responses": 256, "ppo_epochs": 2},
    "schedule": {"total_steps": 3},
    "placement": {"nodes": 2, "devices_per_node": 8, "device": "cuda"},
    "runtime": {"ray": {"address": "auto"}},
}


def made(**sections: Any) -> Any:
    return config_from({**EIGHT, **sections})


@pytest.mark.parametrize(
    "engine",
    [
        {"type": "fsdp2", "ulysses_sequence_parallel_size": 4, "offload": "both", "fsdp_size": 8},
        {
            "type": "megatron",
            "tensor_parallel_size": 4,
            "pipeline_parallel_size": 2,
            "virtual_pipeline_parallel_size": 2,
            "offload": "optimizer",
        },
    ],
    ids=["fsdp2", "megatron"],
)
def test_an_eight_gpu_config_plans_on_two_cores_and_its_batch_is_the_same(engine: dict[str, Any]) -> None:
    rollout = {"engine": {"type": "vllm", "args": {"max_num_seqs": 8}}, "parallel": {"tensor_parallel_size": 4}}
    full = made(train={"engine": engine}, rollout={**rollout, "memory": {"gpu_memory_utilization": 0.6}})
    small, changes = scaled_to_cpu(full, workers=2)
    assert not [found for found in check(small, cluster=LAPTOP) if found.level is Level.ERROR]
    plan = make_plan(small, cluster=LAPTOP)
    before = make_plan(full, cluster=Cluster(2, 8, "cuda"))
    assert plan.device == "cpu"
    assert {role.processes for role in plan.stages[0].roles} <= {1, 2}
    assert replace(plan.stages[0].batch, responses_per_replica=0) == replace(
        before.stages[0].batch, responses_per_replica=0
    )
    assert small.batch == full.batch
    assert (small.algorithm, small.data, small.schedule) == (full.algorithm, full.data, full.schedule)
    told = {change.key: (change.old, change.new) for change in changes}
    assert told["placement.devices_per_node"] == (8, 2)
    assert told["rollout.memory.gpu_memory_utilization"] == (0.6, None)
    assert told["rollout.engine"] == ("vllm", "auto")
    assert told["runtime.ray.address"] == ("auto", None)
    assert all(change.why for change in changes)


def test_every_key_that_differs_is_listed_and_no_other() -> None:
    full = made(
        train={"engine": {"type": "megatron", "tensor_parallel_size": 8}, "precision": {"parameters": "bfloat16"}}
    )
    small, changes = scaled_to_cpu(full, workers=2)
    was, now = ({setting.pattern: setting.value for setting in settings(config)} for config in (full, small))
    differing = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
    listed = {change.key for change in changes}
    assert listed
    for key in differing:
        plain = key.replace("[]", "[0]").replace("<megatron>", "").replace("<rule>", "")
        assert plain in listed or any(each.startswith((f"{plain}.", f"{plain}[")) for each in listed), key


@pytest.mark.parametrize(
    ("placement", "layout", "rollout"),
    [
        ({"layout": "split", "devices_per_node": 8, "rollout_devices": 6}, "split", 1),
        ({"layout": "split", "devices_per_node": 8}, "split", 1),
        (
            {
                "layout": "explicit",
                "devices_per_node": 8,
                "roles": {"policy": {"devices": [0, 1, 2, 3]}, "rollout": {"devices": [4, 5, 6, 7]}},
            },
            "split",
            1,
        ),
        (
            {
                "layout": "explicit",
                "devices_per_node": 8,
                "roles": {"policy": {"devices": [0, 1]}, "rollout": {"devices": [0, 1]}},
            },
            "colocated",
            2,
        ),
    ],
)
def test_who_shares_devices_stays(placement: dict[str, Any], layout: str, rollout: int) -> None:
    small, _ = scaled_to_cpu(made(placement=placement), workers=2)
    assert small.placement.layout == layout
    assert arithmetic.rollout_devices(small) == rollout
    make_plan(small, cluster=LAPTOP)


def test_a_config_that_fits_keeps_its_workers() -> None:
    small, _ = scaled_to_cpu(made(placement={"nodes": 1, "devices_per_node": 1}), workers=2)
    assert arithmetic.devices(small) == 1


def test_stages_are_scaled_each_and_stay_stages() -> None:
    stages = [{"name": "sft", "algorithm": {"objective": "sft"}}, {"name": "rl"}]
    small, changes = scaled_to_cpu(made(stages=stages), workers=2)
    assert [stage.name for stage in make_plan(small, cluster=LAPTOP).stages] == ["sft", "rl"]
    assert len([change for change in changes if change.key == "placement.devices_per_node"]) == 1
