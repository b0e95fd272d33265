"""Words, devices and lengths that ROLL's pipelines refuse, each on a run that is otherwise accepted."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.documents import read_yaml

RLVR = """
exp_name: a
rollout_batch_size: 64
prompt_length: 1024
response_length: 1024
num_return_sequences_in_group: 8
max_steps: 10
num_gpus_per_node: 8
pretrain: org/model
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 64, lr_scheduler_type: constant}
  data_args: {file_name: [a.jsonl], messages: messages, template: qwen2_5}
  strategy_args: {strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 1}}
  device_mapping: list(range(0,8))
actor_infer:
  generating_args: {temperature: 0.9, max_new_tokens: 1024}
  strategy_args: {strategy_name: vllm, strategy_config: {gpu_memory_utilization: 0.6}}
  device_mapping: list(range(0,8))
rewards:
  math: {worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker, tag_included: [math]}
"""
AGENTIC = """
exp_name: a
rollout_batch_size: 64
val_batch_size: 64
prompt_length: 1024
response_length: 1024
max_steps: 10
num_gpus_per_node: 8
pretrain: org/model
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 8, lr_scheduler_type: constant}
  strategy_args: {strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 1}}
  device_mapping: list(range(0,8))
actor_infer:
  generating_args: {temperature: 0.9, max_new_tokens: 1024}
  strategy_args: {strategy_name: vllm, strategy_config: {gpu_memory_utilization: 0.6}}
  device_mapping: list(range(0,8))
train_env_manager: {num_env_groups: 8, group_size: 8, num_groups_partition: [8], tags: [A]}
val_env_manager: {num_env_groups: 64, group_size: 1, num_groups_partition: [64], tags: [A]}
custom_envs: {A: {env_type: sokoban}}
"""
FSDP2 = "strategy_args: {strategy_name: fsdp2_train, strategy_config: {fsdp_size: 8}}"


def _over(values: Any, change: Any) -> Any:
    if not isinstance(values, dict) or not isinstance(change, dict):
        return change
    return {**values, **{name: _over(values.get(name), inner) for name, inner in change.items()}}


def _refused(base: str, change: str) -> list[str]:
    requirements = requirements_of("roll")
    assert requirements is not None
    text = yaml.safe_dump(_over(yaml.safe_load(base), yaml.safe_load(change)))
    document = read_yaml(text, "run.yaml")
    return [row.key for row, _ in refused(requirements, dialect("roll"), document, release="2026.8", environment={})]


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("track_with", "track_with: neptune"),
        ("checkpoint_config.type", "checkpoint_config: {type: oss}"),
        ("kl_penalty", "kl_penalty: k3"),
        ("transfer_backend.backend_name", "transfer_backend: {backend_name: redis}"),
        ("actor_train.data_args.template", "actor_train: {data_args: {template: qwen9}}"),
        ("global_template", "global_template: qwen9"),
        ("tag_to_template", "tag_to_template: {math: qwen9}"),
        ("actor_train.data_args.file_name", "actor_train: {data_args: {file_name: [a.jsonl, b.parquet]}}"),
        ("actor_train.data_args.file_name", "actor_train: {data_args: {file_name: [a.xlsx]}}"),
        ("actor_train.data_args.messages", "actor_train: {data_args: {prompt: p, messages: m}}"),
        ("actor_train.device_mapping", "actor_train: {device_mapping: '[0,1,2,3,4,5,7,8]'}"),
        ("actor_infer.device_mapping", "actor_infer: {device_mapping: '[0,1,2,3,4,5,7,8]'}"),
        (
            "actor_infer.device_mapping",
            "actor_infer: {device_mapping: 'list(range(0,12))', strategy_args: {strategy_config: {tensor_parallel_size: 4}}}\n"
            "actor_train: {device_mapping: 'list(range(2,10))'}",
        ),
        ("actor_train.model_args.ulysses_size", f"actor_train: {{{FSDP2}, model_args: {{ulysses_size: 3}}}}"),
        (
            "actor_train.strategy_args.strategy_config.fsdp_size",
            "actor_train: {model_args: {ulysses_size: 4}, strategy_args: {strategy_name: fsdp2_train, "
            "strategy_config: {fsdp_size: 2}}}",
        ),
        (
            "actor_train.strategy_args.strategy_config.ep_size",
            "actor_train: {strategy_args: {strategy_name: fsdp2_train, strategy_config: {fsdp_size: 8, ep_size: 3}}}",
        ),
        (
            "actor_train.strategy_args.strategy_config.overlap_param_gather",
            "actor_train: {strategy_args: {strategy_config: {overlap_param_gather: true}}}",
        ),
        (
            "actor_train.strategy_args.strategy_config.moe_token_dispatcher_type",
            "actor_train: {strategy_args: {strategy_config: {moe_token_dispatcher_type: allgather, variable_seq_lengths: true}}}",
        ),
        (
            "actor_train.training_args.lr_scheduler_type",
            "actor_train: {training_args: {lr_scheduler_type: polynomial}}",
        ),
        ("actor_train.sequence_packing_args.algorithm", "actor_train: {sequence_packing_args: {algorithm: best_fit}}"),
        (
            "actor_train.sequence_packing_args.algorithm",
            "actor_train: {use_sequence_packing: true, sequence_packing_args: {algorithm: load_balance}}",
        ),
        (
            "actor_train.max_tokens_per_microbatch_in_train",
            "actor_train: {use_dynamic_batching_in_train: true, max_tokens_per_microbatch_in_train: 1024}",
        ),
        (
            "actor_infer.strategy_args.strategy_config.data_parallel_size",
            "actor_infer: {strategy_args: {strategy_config: {data_parallel_size: 3}}}",
        ),
        (
            "actor_infer.strategy_args.strategy_config.grpc_mode",
            "actor_infer: {strategy_args: {strategy_name: sglang, strategy_config: {grpc_mode: true}}}",
        ),
        (
            "actor_infer.strategy_args.strategy_name",
            "actor_infer: {strategy_args: {strategy_name: sglang}}\nactor_train: {model_args: {lora_target: all-linear}}",
        ),
        (
            "actor_train.pg_variant",
            "actor_train: {worker_cls: roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker, pg_variant: dapo}",
        ),
        (
            "critic.strategy_args.strategy_name",
            "adv_estimator: gae\ncritic: {strategy_args: {strategy_name: megatron_train}}",
        ),
        (
            "rewards",
            "rewards: {judge: {worker_cls: roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker, "
            "judge_model_type: remote}}",
        ),
        ("rewards", "rewards: {math: {max_penalty: 0.5}}"),
        (
            "actor_train.training_args.lr_scheduler_kwargs",
            "actor_train: {training_args: {lr_scheduler_type: warmup_stable_decay}}",
        ),
        (
            "actor_train.sequence_packing_args.max_packed_sequence_length_train",
            "actor_train: {use_sequence_packing: true, sequence_packing_args: {algorithm: load_balance, "
            "max_packed_sequence_length_train: 1024, max_packed_sequence_length_forward: 4096}}",
        ),
        (
            "actor_train.training_args.gradient_accumulation_steps",
            "actor_train: {training_args: {gradient_accumulation_steps: 48}}",
        ),
        ("seed", "seed: 0"),
        ("actor_train.model_args.lora_rank", "actor_train: {model_args: {lora_target: all-linear, lora_rank: 0}}"),
        ("rollout_mock.dump_dir", "rollout_mock: {enable: true, mode: mock, dump_dir: /none}"),
        ("router_args.router_name", "router_args: {router_name: SglangRouter}"),
        ("train_infer_correction.is_weight.upper_bound", "train_infer_correction: {is_weight: {upper_bound: 2.0}}"),
        ("is_pure_opd", "is_pure_opd: true"),
        ("use_opd", "use_opd: true"),
        ("reference", "use_opd: true\nreference: {device_mapping: 'list(range(0,8))'}"),
    ],
)
def test_what_a_pipeline_refuses(key: str, change: str) -> None:
    assert key in _refused(RLVR, change)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("reference.device_mapping", "enable_reference: true\nreference: {device_mapping: 'list(range(0,4))'}"),
        (
            "actor_infer.device_mapping",
            "async_generation_ratio: 1\nactor_train: {device_mapping: 'list(range(0,4))'}\n"
            "actor_infer: {strategy_args: {strategy_config: {tensor_parallel_size: 8}}}",
        ),
        ("actor_train.device_mapping", "actor_infer: {device_mapping: 'list(range(0,4))'}"),
        ("async_generation_ratio", "actor_train: {device_mapping: 'list(range(0,4))'}"),
        ("max_steps", "max_steps: 0"),
        ("actor_infer.generating_args", "actor_infer: {generating_args: null}"),
        (
            "critic.device_mapping",
            "adv_estimator: gae\nasync_generation_ratio: 1\nactor_train: {device_mapping: 'list(range(0,4))'}\n"
            "critic: {device_mapping: 'list(range(0,4))'}",
        ),
        ("val_env_manager.max_traj_per_env", "val_batch_size: 128\nval_env_manager: {max_traj_per_env: 1}"),
    ],
)
def test_what_the_pipeline_of_environments_refuses(key: str, change: str) -> None:
    assert key in _refused(AGENTIC, change)


DPO = """
max_steps: 10
sequence_length: 1024
chosen_key: chosen
rejected_key: rejected
pretrain: org/model
num_gpus_per_node: 8
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 4, lr_scheduler_type: constant}
  strategy_args: {strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 1}}
  device_mapping: list(range(0,8))
reference:
  infer_batch_size: 4
  strategy_args: {strategy_name: megatron_infer, strategy_config: {tensor_model_parallel_size: 1}}
  device_mapping: list(range(0,8))
"""


@pytest.mark.parametrize(("size", "is_refused"), [(4, False), (5, True)])
def test_the_reference_of_dpo_takes_no_more_pairs_than_a_step(size: int, is_refused: bool) -> None:
    assert ("reference.infer_batch_size" in _refused(DPO, f"reference: {{infer_batch_size: {size}}}")) is is_refused


@pytest.mark.parametrize("files", ["[a.jsonl]", "null"])
def test_a_validation_of_distillation_has_files(files: str) -> None:
    data = f"{{data_args: {{file_name: {files}}}}}"
    text = f"student: {{data_args: {{file_name: [a.jsonl]}}}}\nteacher: {{}}\nvalidation: {data}"
    assert ("validation.data_args.file_name" in _refused("sequence_length: 1024", text)) is (files == "null")


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (RLVR, "{}"),
        (AGENTIC, "{}"),
        (RLVR, "actor_train: {data_args: {file_name: [a.json, b.jsonl]}}\ntrack_with: wandb"),
        (RLVR, f"actor_train: {{{FSDP2}, model_args: {{ulysses_size: 4}}}}"),
        (RLVR, "actor_infer: {strategy_args: {strategy_config: {tensor_parallel_size: 4}}}"),
        (AGENTIC, "actor_train: {data_args: {template: qwen3_coder}}"),
    ],
)
def test_what_it_accepts(base: str, change: str) -> None:
    assert _refused(base, change) == []


@pytest.mark.parametrize(("student", "is_refused"), [("Qwen/Qwen2.5-7B", True), ("Qwen/Qwen2.5-VL-7B-Instruct", False)])
def test_a_vision_model_is_distilled_with_the_template_of_its_processor(student: str, is_refused: bool) -> None:
    text = (
        f"student_pretrain: {student}\nstudent: {{data_args: {{template: qwen2-vl}}}}\nteacher_pretrain: org/teacher\n"
    )
    rows = refused(
        requirements_of("roll").newest,  # type: ignore[union-attr]
        dialect("roll"),
        read_yaml(text, "run.yaml"),
        release="2026.8",
        environment={},
    )
    assert any(row.key == "student.data_args.template" for row, _ in rows) is is_refused
