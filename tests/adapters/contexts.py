"""Texts in which rules come to life that are asleep in others, and words that keys take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CONTEXTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "verl": (
        {"algorithm.adv_estimator": "gae", "data.train_files": "a.parquet", "data.val_files": "b.parquet"},
        {"trainer.v1.trainer_mode": "separate_async", f"{R}.nnodes": 1, f"{R}.n_gpus_per_node": 4},
        {"trainer.v1.trainer_mode": "colocate_async"},
        {"rollout.nnodes": 1, "rollout.n_gpus_per_node": 4, "trainer.nnodes": 1, "trainer.n_gpus_per_node": 4},
        {"algorithm.filter_groups.enable": True},
        {"reward_model.reward_manager": "dapo", "reward_model.overlong_buffer.enable": True},
        {f"{R}.name": "trtllm"},
        {"data.multiturn.enable": True, "data.train_files": ["a.parquet"], "data.val_files": ["b.parquet"]},
        {"data.path": "a.parquet"},
    ),
    "trinity": (
        {"algorithm.algorithm_type": "ppo"},
        *({"algorithm.advantage_fn": name} for name in ("step_wise_grpo", "gigpo", "opmd")),
        *({"algorithm.policy_loss_fn": name} for name in ("sapo", "mix")),
        {"algorithm.algorithm_type": "mix"},
        {"mode": "explore"},
        {"cluster.node_num": 1, "cluster.gpu_per_node": 8, "explorer.rollout_model.engine_num": 2},
        {"buffer.trainer_input.experience_buffer.storage_type": "sql"},
        {"buffer.trainer_input.experience_buffer.storage_type": "file"},
        {"algorithm.algorithm_type": "sft", "buffer.trainer_input.experience_buffer.path": "a.jsonl"},
        {"algorithm.algorithm_type": "dpo", "buffer.trainer_input.experience_buffer.path": "a.jsonl"},
        {
            "buffer.explorer_input.tasksets": [{"path": "a"}, {"path": "b"}],
            "buffer.explorer_input.eval_tasksets": [{"path": "c"}],
        },
        {"buffer.explorer_input.taskset.path": "a"},
    ),
    "roll": (
        {"adv_estimator": "gae"},
        {"actor_train.strategy_args.strategy_name": "deepspeed_train"},
        {"dual_clip_loss": True},
        {"adv_estimator": "reinforce", "norm_mean_type": "group", "norm_std_type": "group"},
        {
            "adv_estimator": "reinforce",
            "reward_normalization.norm_mean_type": "group",
            "reward_normalization.norm_std_type": "group",
        },
        {
            "actor_train.data_args.file_name": ["a.jsonl", "b.jsonl"],
            "validation.data_args.file_name": ["c.jsonl"],
            "actor_train.data_args.domain_interleave_probs": {"math_rule": 0.5, "code_sandbox": 0.5},
            "rewards": {"math_rule": {"tag_included": ["a"]}, "code_sandbox": {"tag_included": ["b"]}},
        },
        {"train_env_manager.tags": ["SimpleSokoban"], "val_env_manager.tags": ["SimpleSokoban"]},
    ),
}
WORDS: Mapping[str, Sequence[Any]] = {
    "adv_estimator": ("grpo", "gae", "reinforce", "step_reinforce", "gigpo"),
    "actor_train.strategy_args.strategy_config.zero_optimization": (
        {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    ),
    "algorithm.advantage_fn": ("grpo", "step_wise_grpo", "gigpo", "opmd", "ppo"),
    "algorithm.policy_loss_fn": ("ppo", "sapo", "mix", "sppo", "dpo"),
    "buffer.explorer_input.default_eval_workflow_type": ("simple_workflow", "frozen_lake_workflow"),
    "buffer.explorer_input.default_workflow_type": ("math_workflow", "frozen_lake_workflow"),
    "buffer.explorer_input.eval_tasksets.*.default_workflow_type": ("math_workflow",),
    "buffer.explorer_input.taskset.default_workflow_type": ("math_workflow",),
    "buffer.explorer_input.tasksets.*.default_workflow_type": ("math_workflow",),
    "buffer.trainer_input.experience_buffer.path": ("sqlite:///a.db", "a.jsonl"),
    "custom_envs": ({"SimpleSokoban": {"env_type": "sokoban", "max_steps": 4}},),
    "data_processor.task_pipeline": (
        {"operators": [{"name": "a", "args": {}}], "inputs": ["a"], "output": {"path": "b"}, "target_fields": ["c"]},
    ),
    "norm_mean_type": ("group", "batch"),
    "norm_std_type": ("group", "batch"),
    "reward_normalization.norm_mean_type": ("group", "batch"),
    "reward_normalization.norm_std_type": ("group", "batch"),
}
"""Words and texts that keys take besides their defaults."""
