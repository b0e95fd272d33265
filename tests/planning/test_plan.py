"""A plan holds the arithmetic of its config, resolves every ``auto``, survives being saved, and refuses what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import PlanError
from rlctl.config import config_from
from rlctl.planning.plan import Cluster, Plan, make_plan, plan_from, resolved_stages


def plan(values: dict[str, Any] | None = None, **arguments: Any) -> Plan:
    return make_plan(config_from({"schedule": {"total_steps": 10}, **(values or {})}), **arguments)


def model_folder(folder: Path) -> str:
    shape = {
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **shape}))
    return str(folder)


def test_the_batch_of_a_plan_is_the_batch_of_its_config() -> None:
    batch = {"prompts_per_step": 64, "responses_per_prompt": 4, "mini_batch_responses": 128, "ppo_epochs": 3}
    (stage,) = plan({"batch": batch}).stages
    assert (stage.batch.responses_per_step, stage.batch.mini_batches_per_epoch) == (256, 2)
    assert stage.batch.optimizer_steps_per_step == 6
    assert stage.batch.responses_per_replica == 16


def test_auto_is_resolved_from_the_config_or_the_cluster_and_never_from_this_machine() -> None:
    assert plan().device == "cuda"
    assert plan({"placement": {"device": "cpu"}}).device == "cpu"
    assert plan(cluster=Cluster(1, 8, "cpu")).device == "cpu"
    engines = {device: plan({"placement": {"device": device}}).stages[0].role("rollout") for device in ("cpu", "cuda")}
    assert {device: role.engine for device, role in engines.items() if role} == {"cpu": "transformers", "cuda": "vllm"}


def test_roles_follow_the_algorithm() -> None:
    def roles(values: dict[str, Any]) -> list[str]:
        return [role.role for role in plan(values).stages[0].roles]

    assert roles({}) == ["policy", "rollout", "reward"]
    assert roles({"algorithm": {"kl_in_loss": {}}}) == ["policy", "rollout", "reference", "reward"]
    assert roles({"algorithm": {"advantage": "gae"}, "critic": {}}) == ["policy", "rollout", "critic", "reward"]
    assert roles({"algorithm": {"objective": "sft"}}) == ["policy"]


def test_split_roles_have_devices_of_their_own() -> None:
    (stage,) = plan({"placement": {"layout": "split", "rollout_devices": 2}}).stages
    rollout, policy = stage.role("rollout"), stage.role("policy")
    assert rollout is not None
    assert policy is not None
    assert rollout.devices == (0, 1)
    assert policy.devices == (2, 3, 4, 5, 6, 7)


def test_stages_are_planned_one_by_one() -> None:
    stages = [
        {"name": "warm", "algorithm": {"objective": "sft"}, "schedule": {"total_steps": 3}},
        {"name": "rl", "batch": {"prompts_per_step": 16}},
    ]
    warm, rl = plan({"stages": stages}).stages
    assert (warm.name, warm.objective, warm.continues, warm.schedule.total_steps) == ("warm", "sft", False, 3)
    assert (rl.name, rl.objective, rl.continues, rl.schedule.total_steps) == ("rl", "rl", True, 10)
    assert rl.batch.prompts_per_step == 16


def test_a_saved_plan_is_the_same_plan(tmp_path: Path) -> None:
    cluster = Cluster(1, 8, "cuda", gpu="H100")
    made = plan({"model": {"path": model_folder(tmp_path)}, "algorithm": {"kl_in_loss": {}}}, cluster=cluster)
    assert made.stages[0].memory
    assert made.stages[0].cost is not None
    assert plan_from(json.loads(json.dumps(made.as_data()))) == made


def test_a_plan_of_another_version_and_a_damaged_one_are_refused() -> None:
    data = plan().as_data()
    with pytest.raises(PlanError, match="version 99"):
        plan_from({**data, "version": 99})
    with pytest.raises(PlanError, match="damaged"):
        plan_from({key: value for key, value in data.items() if key != "run"})


def test_a_cluster_without_what_the_config_asks_for_is_refused() -> None:
    with pytest.raises(PlanError, match="no GPU"):
        plan({"placement": {"device": "cuda"}}, cluster=Cluster(1, 8, "cpu"))
    with pytest.raises(PlanError, match=r"2 x 8 GPUs .* the cluster has 1 x 8"):
        plan({"placement": {"nodes": 2}}, cluster=Cluster(1, 8, "cuda"))


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ({"source": "fsdp"}, "fsdp runs as FSDP2, its closest equivalent"),
        ({"source": "deepspeed"}, "its closest equivalent: weights are gathered for each pass, as with ZeRO 3"),
        ({"source": "deepspeed", "reshard_after_forward": False}, "which is closest to ZeRO 1 and 2"),
    ],
)
def test_other_engines_run_as_fsdp2_and_the_plan_says_so(engine: dict[str, Any], told: str) -> None:
    (stage,) = plan({"train": {"engine": {"type": "fsdp2", **engine}}}).stages
    assert any(note.startswith("policy: ") and note.endswith(told) for note in stage.notes)


def test_what_is_not_used_is_in_the_plan_and_comes_back_with_it() -> None:
    values = {"rollout": {"memory": {"enforce_eager": True}}, "placement": {"device": "auto"}}
    on_cpu, on_gpu = (plan(values, cluster=Cluster(1, 8, device)) for device in ("cpu", "cuda"))
    assert on_cpu.stages[0].not_used == ("rollout.memory.enforce_eager: only vLLM and SGLang have this setting",)
    assert on_gpu.stages[0].not_used == ()
    assert plan_from(json.loads(json.dumps(on_cpu.as_data()))).stages[0].not_used == on_cpu.stages[0].not_used


def test_the_built_in_engine_has_one_device_each_and_vllm_its_data_parallel_ranks() -> None:
    parallel = {"tensor_parallel_size": 2, "data_parallel_size": 2}
    placement = {"device": "cpu", "devices_per_node": 4}
    (built_in,) = plan({"rollout": {"engine": "auto", "parallel": parallel}, "placement": placement}).stages
    (split,) = plan({"rollout": {"engine": "vllm", "parallel": parallel}, "placement": placement}).stages
    found = [stage.role("rollout") for stage in (built_in, split)]
    assert [(role.engine, role.processes) for role in found if role] == [("transformers", 4), ("vllm", 2)]
    assert [line.partition(":")[0] for line in built_in.not_used] == [
        "rollout.parallel.tensor_parallel_size",
        "rollout.parallel.data_parallel_size",
    ]


def test_the_plan_says_what_pads_and_what_the_reference_is() -> None:
    (stage,) = plan({"model": {"attention": "sdpa"}}).stages
    assert any("sdpa attention pads sequences" in note for note in stage.notes)
    kl = {"kl_in_loss": {"coefficient": 0.1}}
    (whole,) = plan({"algorithm": kl}).stages
    (adapted,) = plan({"algorithm": kl, "model": {"lora": {"rank": 4}}}).stages
    (apart,) = plan({"algorithm": kl, "model": {"lora": {}}, "reference": {"model": {"path": "a"}}}).stages
    assert [stage.role("reference") is None for stage in (whole, adapted, apart)] == [False, True, False]
    assert any("the policy with its adapters disabled" in note for note in adapted.notes)


AGREEING: dict[str, Any] = {
    "algorithm": {"old_log_probs": "auto"},
    "rollout": {"engine": "transformers", "precision": "bfloat16"},
    "placement": {"device": "cpu", "devices_per_node": 1},
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "rollout"),
        ({"rollout": {"engine": "auto", "precision": "bfloat16"}}, "rollout"),
        ({"batch": {"mini_batch_responses": 512}}, "recompute"),
        ({"batch": {"ppo_epochs": 2}}, "recompute"),
        ({"rollout": {"engine": "transformers"}}, "recompute"),  # float32 on CPU, and training in bfloat16
        ({"rollout": {"engine": "transformers"}, "train": {"precision": {"compute": "float32"}}}, "rollout"),
        ({"rollout": {"engine": "vllm", "precision": "bfloat16"}}, "recompute"),
        ({"algorithm": {"old_log_probs": "auto", "train_temperature": "one"}}, "rollout"),
        (
            {
                "algorithm": {"old_log_probs": "auto", "train_temperature": "one"},
                "rollout": {"engine": "transformers", "precision": "bfloat16", "sampling": {"temperature": 0.5}},
            },
            "recompute",
        ),
        ({"algorithm": {"old_log_probs": "rollout"}, "batch": {"ppo_epochs": 2}}, "rollout"),
    ],
)
def test_old_log_probs_are_the_rollout_engines_where_it_agrees_and_a_step_is_one_optimizer_step(
    change: dict[str, Any], expected: str
) -> None:
    config = config_from({**AGREEING, **change})
    (stage,) = resolved_stages(config, "cpu")
    assert stage.config.algorithm.old_log_probs == expected
    told = {
        "rollout": "come from the rollout engine",
        "recompute": "are computed by the training engine before it trains",
    }
    said = f"policy: old log-probs {told[expected]}" in make_plan(config).stages[0].notes
    assert said == (config.algorithm.old_log_probs == "auto")


def test_roles_on_megatron_have_their_own_replicas_and_layouts() -> None:
    policy = {
        "type": "megatron",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "virtual_pipeline_parallel_size": 2,
    }
    values = {
        "train": {"engine": policy, "packing": False},
        "critic": {"engine": {"type": "megatron", "context_parallel_size": 4}},
        "reference": {"engine": {"type": "megatron", "tensor_parallel_size": 8}},
        "algorithm": {"advantage": "gae", "kl_in_reward": {"coefficient": 0.1}},
    }
    (stage,) = plan(values).stages
    found = {role.role: (role.engine, role.processes, role.replicas) for role in stage.roles}
    assert found["policy"] == ("megatron", 8, 2)
    assert found["critic"] == ("megatron", 8, 2)
    assert found["reference"] == ("megatron", 8, 1)
    assert "policy: Megatron-core splits the model by tensor 2, pipeline 2, virtual_pipeline 2" in stage.notes
    assert "reference: Megatron-core splits the model by tensor 8" in stage.notes
    told = [note for note in stage.notes if note.startswith("train.packing")]
    assert len(told) == 1
    assert "packs sequences" in told[0]


def test_a_reference_that_does_not_divide_its_devices_is_refused_under_its_own_key() -> None:
    reference = {"engine": {"type": "megatron", "tensor_parallel_size": 3}}
    with pytest.raises(PlanError, match=r"8 devices of the reference .*tensor 3 .* = 3; 8 / 3") as refused:
        plan({"reference": reference, "algorithm": {"kl_in_loss": {"coefficient": 0.1}}})
    assert "6 or 9 devices" in refused.value.hint
    assert "reference.engine" in refused.value.hint


def test_memory_on_a_machine_without_gpus_is_that_of_the_cpu_whether_the_config_says_so_or_not() -> None:
    cluster = Cluster(nodes=1, devices_per_node=2, device="cpu")
    model = {"model": {"path": "Qwen/Qwen3-0.6B"}}
    said, found = (
        config_from({**model, "placement": {"devices_per_node": 2, "device": device}}) for device in ("cpu", "auto")
    )
    assert make_plan(found, cluster=cluster).stages[0].memory == make_plan(said, cluster=cluster).stages[0].memory
    assert make_plan(found).stages[0].memory != make_plan(said).stages[0].memory
