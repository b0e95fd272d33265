"""Configs that a framework refuses, each with the key that it refuses it for: the tables are held to them, and the frameworks too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

A, R, F = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
SEVEN = "Qwen/Qwen2.5-7B-Instruct"
"""A model with 28 heads and 4 key-value heads."""

VERL = {
    "data.train_files": "/data/train.parquet",
    "data.val_files": "/data/test.parquet",
    "data.train_batch_size": 64,
    f"{A}.ppo_mini_batch_size": 32,
    f"{A}.ppo_micro_batch_size_per_gpu": 2,
    f"{R}.log_prob_micro_batch_size_per_gpu": 2,
    f"{F}.log_prob_micro_batch_size_per_gpu": 2,
    f"{R}.name": "vllm",
    f"{R}.tensor_model_parallel_size": 2,
    f"{R}.n": 4,
    "algorithm.adv_estimator": "grpo",
    "actor_rollout_ref.model.path": "org/model",
}
MEGATRON = {"model_engine": "megatron"}
CRITIC = {"algorithm.adv_estimator": "gae", "critic.ppo_micro_batch_size_per_gpu": 2, "critic.ppo_mini_batch_size": 32}

VERL_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"data.train_batch_size": 33, f"{R}.n": 1}, "data.train_batch_size"),
    ({"data.train_batch_size": 16}, f"{A}.ppo_mini_batch_size"),
    ({f"{A}.ppo_micro_batch_size_per_gpu": None}, f"{A}.ppo_micro_batch_size_per_gpu"),
    ({f"{A}.ppo_micro_batch_size": 16}, f"{A}.ppo_micro_batch_size"),
    ({f"{R}.log_prob_micro_batch_size_per_gpu": None}, f"{R}.log_prob_micro_batch_size_per_gpu"),
    ({f"{R}.log_prob_micro_batch_size": 16}, f"{R}.log_prob_micro_batch_size"),
    (
        {f"{A}.use_kl_loss": True, f"{F}.log_prob_micro_batch_size_per_gpu": None},
        f"{F}.log_prob_micro_batch_size_per_gpu",
    ),
    ({f"{A}.use_kl_loss": True, f"{F}.log_prob_micro_batch_size": 16}, f"{F}.log_prob_micro_batch_size"),
    ({f"{A}.loss_agg_mode": "mean"}, f"{A}.loss_agg_mode"),
    (
        {f"{A}.ulysses_sequence_parallel_size": 2, "actor_rollout_ref.model.use_remove_padding": False},
        f"{A}.ulysses_sequence_parallel_size",
    ),
    ({f"{R}.val_kwargs.do_sample": True, f"{R}.temperature": 0}, f"{R}.temperature"),
    ({f"{A}.optim.lr_scheduler_type": "linear"}, f"{A}.optim.lr_scheduler_type"),
    ({**MEGATRON, f"{A}.megatron.tensor_model_parallel_size": 3}, f"{A}.megatron.tensor_model_parallel_size"),
    ({**MEGATRON, f"{A}.megatron.dtype": "float32"}, f"{A}.megatron.dtype"),
    ({**CRITIC, "critic.ppo_micro_batch_size_per_gpu": None}, "critic.ppo_micro_batch_size_per_gpu"),
    ({**CRITIC, "critic.ppo_micro_batch_size": 16}, "critic.ppo_micro_batch_size"),
    ({**CRITIC, "critic.ppo_mini_batch_size": 128}, "critic.ppo_mini_batch_size"),
    ({"actor_rollout_ref.model.lora_rank": 1024}, "actor_rollout_ref.model.lora_rank"),
]
"""What verl's ``validate_config`` refuses."""
VERL_REFUSED_LATER: list[tuple[dict[str, Any], str]] = [
    ({"data.train_files": None}, "data.train_files"),
    ({"data.train_files": ""}, "data.train_files"),
    ({**CRITIC, **MEGATRON, "critic.strategy": "fsdp2"}, "critic.strategy"),
    ({f"{R}.name": None}, f"{R}.name"),
    ({f"{R}.mode": "sync"}, f"{R}.mode"),
    (
        {f"{R}.agent.default_agent_loop": "tool_agent", f"{R}.multi_turn.format": "llama3_json"},
        f"{R}.multi_turn.format",
    ),
    ({f"{R}.expert_parallel_size": 4}, f"{R}.expert_parallel_size"),
    (
        {f"{R}.pipeline_model_parallel_size": 2, f"{R}.tensor_model_parallel_size": 1},
        f"{R}.pipeline_model_parallel_size",
    ),
    ({f"{R}.log_prob_use_dynamic_bsz": True}, f"{R}.log_prob_use_dynamic_bsz"),
    ({f"{A}.ppo_micro_batch_size_per_gpu": None, f"{A}.ppo_micro_batch_size": 16}, f"{A}.ppo_micro_batch_size_per_gpu"),
    ({f"{A}.ppo_mini_batch_size": 3, f"{R}.n": 1}, f"{A}.ppo_mini_batch_size"),
    ({f"{R}.tensor_model_parallel_size": 3}, f"{R}.tensor_model_parallel_size"),
    ({f"{A}.clip_ratio_c": 0.9}, f"{A}.clip_ratio_c"),
    (
        {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": None},
        "algorithm.filter_groups.metric",
    ),
    ({"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/ckpt"}, "trainer.resume_from_path"),
    ({"trainer.v1.trainer_mode": "separate_async"}, "data.train_batch_size"),
    ({"trainer.v1.trainer_mode": "separate_async"}, f"{R}.checkpoint_engine.backend"),
    ({"trainer.v1.trainer_mode": "separate_async", f"{R}.nnodes": 0}, f"{R}.nnodes"),
    (
        {**MEGATRON, f"{A}.megatron.router_replay.mode": "R2", "algorithm.rollout_correction.bypass_mode": True},
        "algorithm.rollout_correction.bypass_mode",
    ),
    (
        {"actor_rollout_ref.model.path": SEVEN, f"{R}.tensor_model_parallel_size": 8},
        f"{R}.tensor_model_parallel_size",
    ),
    (
        {"actor_rollout_ref.model.path": SEVEN, f"{R}.tensor_model_parallel_size": 8, f"{R}.name": "sglang"},
        f"{R}.tensor_model_parallel_size",
    ),
    (
        {
            "actor_rollout_ref.model.path": SEVEN,
            f"{A}.ulysses_sequence_parallel_size": 8,
            "actor_rollout_ref.model.use_remove_padding": True,
        },
        f"{A}.ulysses_sequence_parallel_size",
    ),
    (
        {**CRITIC, "critic.model.path": SEVEN, "critic.ulysses_sequence_parallel_size": 8},
        "critic.ulysses_sequence_parallel_size",
    ),
    ({"trainer.logger": ["console", "wanbd"]}, "trainer.logger"),
    ({"trainer.logger": "['console','wandb']"}, "trainer.logger"),
    ({f"{R}.gpu_memory_utilization": 60}, f"{R}.gpu_memory_utilization"),
]
"""What its workers and trainer refuse."""

TRINITY: dict[str, Any] = {
    "project": "p",
    "name": "n",
    "mode": "both",
    "checkpoint_root_dir": "/tmp/rlctl-upstream",
    "algorithm.algorithm_type": "grpo",
    "algorithm.repeat_times": 8,
    "model.model_path": "org/model",
    "model.max_prompt_tokens": 64,
    "model.max_response_tokens": 64,
    "cluster.node_num": 1,
    "cluster.gpu_per_node": 8,
    "explorer.rollout_model.engine_num": 4,
    "buffer.batch_size": 8,
    "buffer.explorer_input.taskset.path": "/data/tasks",
    "buffer.explorer_input.taskset.format.prompt_key": "q",
    "buffer.explorer_input.taskset.default_workflow_type": "math_workflow",
}
TRINITY_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mode": "all"}, "mode"),
    ({"mode": "train"}, "buffer.train_batch_size"),
    ({"algorithm.algorithm_type": "sft"}, "mode"),
    (
        {"algorithm.algorithm_type": "sft", "mode": "train", "buffer.train_batch_size": 8},
        "buffer.trainer_input.experience_buffer.path",
    ),
    ({"model.max_response_tokens": None}, "model.max_model_len"),
    ({"model.max_model_len": 100}, "model.max_model_len"),
    ({"explorer.rollout_model.tensor_parallel_size": 0}, "explorer.rollout_model.tensor_parallel_size"),
    ({"explorer.rollout_model.engine_num": 8}, "cluster.gpu_per_node"),
    ({"cluster.node_num": 2}, "explorer.rollout_model.engine_num"),
    ({"mode": "colocate"}, "cluster.gpu_per_node"),
    ({"explorer.over_rollout.ratio": 0.5}, "synchronizer.sync_style"),
    ({"explorer.over_rollout.ratio": 1.5, "synchronizer.sync_style": "explorer_driven"}, "explorer.over_rollout.ratio"),
    ({"explorer.concurrent_mode": "parallel"}, "explorer.concurrent_mode"),
    ({"synchronizer.sync_interval": 0}, "synchronizer.sync_interval"),
    ({"monitor.monitor_type": "console"}, "monitor.monitor_type"),
    ({"buffer.explorer_input.taskset.path": None}, "buffer.explorer_input.taskset.path"),
    ({"trainer.save_hf_checkpoint": "sometimes"}, "trainer.save_hf_checkpoint"),
    ({"trainer.trainer_type": "trl"}, "trainer.trainer_type"),
]

ROLL: dict[str, Any] = {
    "exp_name": "n",
    "num_gpus_per_node": 8,
    "max_steps": 9,
    "pretrain": "org/model",
    "reward_pretrain": "org/model",
    "prompt_length": 64,
    "response_length": 64,
    "rollout_batch_size": 64,
    "actor_train.strategy_args.strategy_name": "megatron_train",
    "actor_train.strategy_args.strategy_config.tensor_model_parallel_size": 2,
    "actor_train.device_mapping": "list(range(0,8))",
    "actor_train.data_args.file_name": ["/data/train.jsonl"],
    "actor_train.data_args.messages": "messages",
    "actor_infer.strategy_args.strategy_name": "vllm",
    "actor_infer.strategy_args.strategy_config.tensor_parallel_size": 1,
    "actor_infer.device_mapping": "list(range(0,8))",
    "actor_infer.generating_args.temperature": 0.99,
    "rewards.math.worker_cls": "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker",
    "rewards.math.tag_included": ["math"],
    "rewards.math.model_args.model_name_or_path": "org/model",
    "rewards.math.world_size": 2,
}
AGENTIC = {
    "train_env_manager.num_env_groups": 8,
    "train_env_manager.group_size": 4,
    "train_env_manager.tags": ["SimpleSokoban"],
    "train_env_manager.num_groups_partition": [8],
    "val_env_manager.num_env_groups": 8,
    "val_env_manager.group_size": 4,
    "val_env_manager.tags": ["SimpleSokoban"],
    "val_env_manager.num_groups_partition": [8],
    "val_batch_size": 32,
    "custom_envs.SimpleSokoban.env_type": "sokoban",
}
ROLL_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"response_length": None}, "response_length"),
    ({"val_prompt_length": 64}, "val_sequence_length"),
    ({"actor_infer.generating_args.temperature": ...}, "actor_infer.generating_args"),
    ({"profiler_timeline": True, "profiler_memory": True}, "profiler_memory"),
    ({"rollout_batch_size": 66}, "rollout_batch_size"),
    (
        {"actor_train.strategy_args.strategy_config.tensor_model_parallel_size": 3},
        "actor_train.device_mapping",
    ),
    ({"actor_infer.strategy_args.strategy_name": "hf_infer"}, "actor_infer.strategy_args.strategy_name"),
    ({"async_generation_ratio": 1, "generate_opt_level": 0}, "generate_opt_level"),
    ({"actor_infer.strategy_args.strategy_config.tensor_parallel_size": 3}, "actor_infer.device_mapping"),
    ({"actor_train.router_replay.mode": "R2"}, "actor_train.router_replay.mode"),
    (
        {**AGENTIC, "rollout_batch_size": 66, "actor_train.strategy_args.strategy_name": "fsdp2_train"},
        "rollout_batch_size",
    ),
    ({**AGENTIC, "val_batch_size": 48}, "val_batch_size"),
    ({**AGENTIC, "train_env_manager.num_groups_partition": [7]}, "train_env_manager.num_groups_partition"),
    ({**AGENTIC, "train_env_manager.max_traj_per_env": 1}, "train_env_manager.max_traj_per_env"),
]
ROLL_REFUSED_LATER: list[tuple[dict[str, Any], str]] = [
    ({"rewards.math.worker_cls": ...}, "rewards"),
    ({"actor_train.data_args.file_name": []}, "actor_train.data_args.file_name"),
    (
        {
            "num_return_sequences_in_group": 3,
            "actor_train.strategy_args.strategy_name": "fsdp2_train",
            "rollout_batch_size": 1,
        },
        "num_return_sequences_in_group",
    ),
    (
        {"actor_train.training_args.gradient_accumulation_steps": 1024},
        "actor_train.training_args.gradient_accumulation_steps",
    ),
    (
        {"pretrain": SEVEN, "actor_infer.strategy_args.strategy_config.tensor_parallel_size": 8},
        "actor_infer.strategy_args.strategy_config.tensor_parallel_size",
    ),
    (
        {
            "pretrain": SEVEN,
            "actor_train.strategy_args.strategy_name": "fsdp2_train",
            "actor_train.model_args.ulysses_size": 8,
        },
        "actor_train.model_args.ulysses_size",
    ),
    (
        {
            "actor_infer.strategy_args.strategy_config.max_num_batched_tokens": 1024,
            "actor_infer.strategy_args.strategy_config.max_model_len": 2048,
            "actor_infer.strategy_args.strategy_config.enable_chunked_prefill": False,
        },
        "actor_infer.strategy_args.strategy_config.max_num_batched_tokens",
    ),
    ({"async_generation_ratio": 0.5}, "async_generation_ratio"),
    ({**AGENTIC, "async_generation_ratio": 1}, "async_generation_ratio"),
]
"""What its pipelines refuse, or train nothing with."""

ENGINE = "explorer.rollout_model"
BASES = {"verl": VERL, "trinity": TRINITY, "roll": ROLL}
TRINITY_RANKS: list[tuple[dict[str, Any], str]] = [
    ({"explorer.rollout_model.engine_num": 2}, "buffer.train_batch_size"),
    ({"buffer.train_batch_size": 18}, "buffer.train_batch_size"),
    ({"trainer.ulysses_sequence_parallel_size": 3}, "explorer.rollout_model.engine_num"),
]
"""What Trinity 0.5 checks of the trainer's data-parallel ranks, and the workers of 0.6 at their first step."""
TRINITY_REFUSED_LATER: list[tuple[dict[str, Any], str]] = [
    *TRINITY_RANKS,
    (
        {
            "trainer.trainer_strategy": "megatron",
            "trainer.megatron.tensor_model_parallel_size": 2,
            "buffer.train_batch_size": 7,
        },
        "buffer.train_batch_size",
    ),
    ({"buffer.explorer_input.taskset.path": "tasks.parquet"}, "buffer.explorer_input.taskset"),
    (
        {"buffer.explorer_input.taskset": ..., "buffer.explorer_input.tasksets": [{"path": "/data/a.jsonl"}]},
        "buffer.explorer_input.tasksets",
    ),
    (
        {"buffer.explorer_input.eval_tasksets": [{"path": "org/set"}, {"path": "e.json"}]},
        "buffer.explorer_input.eval_tasksets",
    ),
    (
        {
            "mode": "train",
            "algorithm.algorithm_type": "sft",
            "buffer.trainer_input.experience_buffer.path": "rows.parquet",
            "buffer.trainer_input.experience_buffer.storage_type": "file",
        },
        "buffer.trainer_input.experience_buffer",
    ),
]
"""What Trinity stops at when it opens the data, and at its first train step."""
TRINITY_REFUSED_LATER += [
    (
        {"model.model_path": SEVEN, "explorer.rollout_model.engine_num": 1, f"{ENGINE}.tensor_parallel_size": 3},
        f"{ENGINE}.tensor_parallel_size",
    ),
    (
        {"model.model_path": SEVEN, "trainer.ulysses_sequence_parallel_size": 8},
        "trainer.ulysses_sequence_parallel_size",
    ),
]
REFUSED = {
    "verl": [*VERL_REFUSED, *VERL_REFUSED_LATER],
    "trinity": [*TRINITY_REFUSED, *TRINITY_REFUSED_LATER],
    "roll": [*ROLL_REFUSED, *ROLL_REFUSED_LATER],
}

VAL = f"{R}.val_kwargs"
IGNORED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "verl": [
        ({f"{A}.kl_loss_coef": 0.01}, f"{A}.kl_loss_coef"),
        ({"algorithm.kl_ctrl.kl_coef": 0.01}, "algorithm.kl_ctrl.kl_coef"),
        ({f"{VAL}.do_sample": True}, f"{VAL}.temperature"),
        ({f"{VAL}.n": 8}, f"{VAL}.temperature"),
        ({f"{A}.clip_ratio": 0.3}, f"{A}.clip_ratio"),
        ({"algorithm.lam": 0.95}, "algorithm.lam"),
        ({"reward.custom_reward_function.name": "my_score"}, "reward.custom_reward_function.name"),
    ],
    "trinity": [
        (
            {"algorithm.algorithm_type": "mix_chord", "algorithm.policy_loss_fn_args.ngpus_trainer": 2},
            "algorithm.policy_loss_fn_args.ngpus_trainer",
        ),
        (
            {"algorithm.kl_loss_fn": "none", "algorithm.kl_loss_fn_args.kl_coef": 0.01},
            "algorithm.kl_loss_fn_args.kl_coef",
        ),
    ],
    "roll": [
        ({"kl_loss_coef": 0.01}, "kl_loss_coef"),
        ({"async_generation_ratio": 1}, "async_generation_ratio"),
        (
            {
                "rewards.math.worker_cls": "roll.pipeline.rlvr.rewards.multiple_choice_boxed_rule_reward_worker."
                "MultipleChoiceBoxedRuleRewardWorker"
            },
            "rewards",
        ),
    ],
}
"""What a framework accepts and does not use, and the key that is ignored."""

NULLS: list[tuple[str, str, bool]] = [
    ("verl", "actor_rollout_ref.rollout.checkpoint_engine", False),
    ("verl", "actor_rollout_ref.rollout.multi_turn", False),
    ("verl", "algorithm.kl_ctrl", False),
    ("trinity", "synchronizer", True),
    ("trinity", "model.tinker", True),
    ("trinity", "buffer.explorer_input.taskset.rollout_args", True),
    ("trinity", "algorithm.optimizer", True),
    ("trinity", "data_processor.experience_pipeline", True),
    ("trinity", "data_processor.task_pipeline", False),
    ("trinity", "trainer.trainer_config", False),
    ("trinity", "buffer.explorer_output", False),
    ("roll", "critic", True),
    ("roll", "validation", True),
    ("roll", "system_envs", True),
    ("roll", "reference.strategy_args", True),
    ("roll", "rollout_mock", False),
    ("roll", "reference.strategy_args.strategy_config", False),
]
"""Sections that are written as null, and whether the framework refuses that."""


def changed(dialect: str, change: Mapping[str, Any]) -> dict[str, Any]:
    """The flat values of a config; ``...`` takes a key out."""
    return {key: value for key, value in {**BASES[dialect], **change}.items() if value is not ...}


def tree(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as mappings."""
    found: dict[str, Any] = {}
    for key, value in flat.items():
        *parts, last = key.split(".")
        inner = found
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found
