"""Texts in which rules come to life that are asleep in others, and words that keys take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
TRINITY_ROLES = tuple(f"trainer.trainer_config.{role}" for role in (A, "actor_rollout_ref.ref", "critic"))
ROLL_ROLES = ("actor_train", "reference", "critic")
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
        {"data.path": "a.parquet", "model.override_config": {"a": 1}, "engine.use_dist_checkpointing": True},
        {"actor_rollout_ref.model.override_config": {"attn_implementation": "sdpa", "a": 1}},
        {"algorithm.adv_estimator": "gae", "critic.model.override_config": {"a": 1}},
        {
            "algorithm.adv_estimator": "gae",
            f"{A}.megatron.use_dist_checkpointing": True,
            "actor_rollout_ref.ref.megatron.use_dist_checkpointing": True,
            "critic.megatron.use_dist_checkpointing": True,
        },
        {"rollout.total_rollout_steps": 4096, "data.train_batch_size": 0, f"{A}.ppo_mini_batch_size": 32},
        {
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_rs": "token_k1",
            "algorithm.rollout_correction.rollout_rs_threshold": "0.5_2.0",
        },
        {
            "algorithm.rollout_correction.rollout_is": "sequence",
            "algorithm.rollout_correction.rollout_rs": "sequence",
            "algorithm.rollout_correction.rollout_rs_threshold": 2.0,
        },
        {"algorithm.rollout_is": True, "algorithm.rollout_is_threshold": 2.0, "algorithm.rollout_is_mode": "mask"},
        {f"{A}.rollout_is": True, f"{A}.rollout_is_threshold": 2.0, f"{A}.rollout_is_mode": "mask"},
        {"reward.reward_manager.name": "dapo", "reward.reward_kwargs.overlong_buffer_cfg.enable": True},
        {f"{R}.name": "sglang", f"{R}.engine_kwargs.sglang": {"a": 1}},
        {f"{R}.name": "vllm", f"{R}.engine_kwargs.vllm": {"a": 1}},
        {f"{R}.multi_turn.enable": True, f"{R}.multi_turn.tool_config_path": "tools.yaml"},
        {f"{R}.name": "sglang", f"{R}.mode": "async", f"{R}.multi_turn.enable": True},
        {f"{R}.multi_turn.enable": True, f"{R}.agent.default_agent_loop": "tool_agent"},
        {f"{R}.agent.default_agent_loop": "mine", f"{R}.agent.agent_loop_config_path": "loops.yaml"},
        {"reward_model.enable": True, "reward_model.model.path": "org/reward"},
        {"reward.reward_model.enable": True, "reward.reward_model.model_path": "org/reward"},
        {"custom_reward_function.path": "a.py", "custom_reward_function.reward_kwargs": {"a": 1}},
        {"reward.custom_reward_function.path": "a.py", "reward.custom_reward_function.reward_kwargs": {"a": 1}},
        {"reward_model.sandbox_fusion.url": "http://host:1"},
        {"reward.sandbox_fusion.url": "http://host:1"},
        {"distillation.enabled": True, "distillation.teacher_model.model_path": "org/teacher"},
        {"distillation.enabled": True, "distillation.teacher_models.teacher_model.model_path": "org/teacher"},
        {"distillation.enabled": True, "distillation.distillation_loss.loss_mode": "forward_kl_topk"},
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
        {
            "buffer.explorer_input": {
                "taskset": {
                    "path": "a",
                    "default_workflow_type": "math_workflow",
                    "default_reward_fn_type": "math_reward",
                },
                "eval_tasksets": [
                    {"path": "b", "default_workflow_type": "math_workflow", "default_reward_fn_type": "math_reward"}
                ],
            },
        },
        {
            "buffer.explorer_input": {
                "default_workflow_type": "math_workflow",
                "default_reward_fn_type": "math_reward",
                "taskset": {"path": "a"},
                "eval_tasksets": [{"path": "b"}],
            },
        },
        {"algorithm.advantage_fn": "gigpo", "algorithm.advantage_fn_args": {"fnorm": "std", "a": 1}},
        {"algorithm.policy_loss_fn": "ppo", "algorithm.policy_loss_fn_args": {"loss_agg_mode": "token-mean"}},
        *(
            {
                "algorithm.algorithm_type": name,
                "algorithm.advantage_fn_args": {"kl_coef": 0.5, "lambda_coef": 0.5, "temperature": 0.5},
                "explorer.auxiliary_models": [{"model_path": "org/teacher", "engine_num": 1}],
                "buffer.explorer_input.taskset": {"path": "a", "default_workflow_type": "on_policy_distill_workflow"},
            }
            for name in ("on_policy_distill", "jsd")
        ),
        {"data_processor.experience_pipeline.operators": [{"name": "reward_shaping_mapper", "args": {"a": 1}}]},
        {
            "data_processor.task_pipeline": {
                "operators": [{"name": "a", "args": {"b": 1}}],
                "target_fields": ["c"],
                "output": {"path": "b"},
            },
            "buffer.explorer_input.taskset.path": "a",
        },
        {
            "buffer.explorer_input.taskset.path": "a",
            "data_processor.task_pipeline.operators": [{"name": "text_length_filter", "args": {}}],
        },
        {"algorithm.kl_penalty_fn": "k2", "algorithm.kl_penalty_fn_args": {"kl_coef": 0.5, "adaptive": True}},
        {"algorithm.entropy_loss_fn": "default", "algorithm.entropy_loss_fn_args": {"entropy_coef": 0.5}},
        {"model.lora_configs": [{"lora_rank": 8, "lora_alpha": 8, "target_modules": "all-linear"}]},
        {"model.tinker.enable": True},
        {"model.tinker": {"enable": True, "rank": 8, "seed": 3, "train_mlp": True, "base_url": "http://host:1"}},
        {"model.external_model.enable": True},
        {"trainer.trainer_config.actor_rollout_ref.actor.strategy": "megatron"},
        *({f"{root}.megatron.use_dist_checkpointing": True} for root in TRINITY_ROLES),
        {"trainer.use_dynamic_bsz": False},
        {"explorer.auxiliary_models": [{"model_path": "org/a", "name": "a", "other": 1}]},
        {"monitor.monitor_type": "wandb", "monitor.monitor_args": {"a": 1}},
        {
            "buffer.explorer_input.taskset": {
                "path": "a",
                "default_workflow_type": "mine",
                "workflow_args": {"a": 1},
                "default_reward_fn_type": "math_reward",
                "rollout_args": {"temperature": 0.5, "top_p": 0.5, "top_k": 5},
                "data_selector": {"selector_type": "random", "kwargs": {"a": 1}},
            },
            "buffer.explorer_input.eval_tasksets": [
                {"path": "b", "default_workflow_type": "mine", "workflow_args": {"a": 1}}
            ],
        },
        {
            "buffer.trainer_input.auxiliary_buffers": {"sft_dataset": {"path": "a", "storage_type": "file", "a": 1}},
            "buffer.explorer_input.taskset.reward_fn_args": {"enable_overlong_penalty": True},
            "buffer.explorer_input.default_reward_fn_type": "math_dapo_reward",
        },
        {
            "buffer.explorer_input.tasksets": [
                {"path": "a", "default_reward_fn_type": "math_reward", "data_selector": {"kwargs": {"a": 1}}}
            ],
            "buffer.trainer_input.experience_buffer": {
                "path": "a",
                "storage_type": "file",
                "data_selector": {"selector_type": "random", "kwargs": {"a": 1}},
            },
        },
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
        {
            "global_template": "qwen2_5",
            "pretrain": "org/model",
            "tracker_kwargs": {"project": "a", "a": 1},
            "track_with": "wandb",
        },
        {
            "actor_train.model_args.model_name_or_path": "org/model",
            "actor_train.model_args.lora_target": "all-linear",
            "actor_infer.model_args.lora_target": "all-linear",
            "actor_train.data_args.template": "qwen2_5",
        },
        {
            "actor_train.strategy_args": {
                "strategy_name": "megatron_train",
                "strategy_config": {"additional_configs": {"a": 1}},
            },
            "reference.strategy_args": {
                "strategy_name": "megatron_infer",
                "strategy_config": {"additional_configs": {"a": 1}},
            },
            "adv_estimator": "gae",
            "critic.strategy_args": {
                "strategy_name": "megatron_train",
                "strategy_config": {"additional_configs": {"a": 1}},
            },
        },
        *(
            {
                "adv_estimator": "gae",
                **{
                    f"{role}.strategy_args": {
                        "strategy_name": f"deepspeed_{'infer' if role == 'reference' else 'train'}",
                        "strategy_config": {
                            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
                            number: {"enabled": True, "a": 1},
                        },
                    }
                    for role in ("actor_train", "reference", "critic")
                },
            }
            for number in ("bf16", "fp16")
        ),
        {
            "adv_estimator": "gae",
            **{
                f"{role}.strategy_args": {"strategy_name": f"fsdp2_{'infer' if role == 'reference' else 'train'}"}
                for role in ROLL_ROLES
            },
        },
        {f"{role}.use_dynamic_batching_in_{way}": True for role in ROLL_ROLES for way in ("train", "infer")},
        {f"{role}.device_mapping": "list(range(0,8))" for role in (*ROLL_ROLES, "actor_infer")},
        {"add_token_level_kl": True, "kl_penalty": "k2"},
        {"actor_train.pg_variant": "topr", "use_pg_clip_range": True},
        {"train_infer_correction.filters": [{"enabled": True, "agg_type": "token", "ratio_enabled": True}]},
        {"train_infer_correction": {"is_weight": {"enabled": True, "weight_type": "token", "upper_bound": 2.0}}},
        {"difficulty_mask": True, "rewards.math_rule.query_filter_config": {"type": "mean_filter", "a": 1}},
        {"error_max_len_clip": True, "error_max_len_threshold": 100},
        {"val_batch_size": 4, "validation.data_args.file_name": ["c.jsonl"], "val_prompt_length": 64},
        {
            "adv_estimator": "gigpo",
            "gamma": 1,
            "reward_normalization": {"grouping": "traj_group_id", "method": "mean", "norm_mean_type": "group"},
        },
        {"adv_estimator": "reinforce", "reward_normalization": {"grouping": "traj_group_id", "method": "mean_std"}},
        {"adv_estimator": "step_reinforce", "reward_normalization.method": "mean_std"},
        {
            "train_env_manager.generating_args.max_new_tokens": 64,
            "val_env_manager.generating_args.temperature": 0.5,
            "val_env_manager.tags": ["SimpleSokoban"],
        },
        {"actor_infer.strategy_args": {"strategy_name": "sglang", "strategy_config": {"a": 1}}},
        {"actor_infer.strategy_args": {"strategy_name": "vllm", "strategy_config": {"a": 1}}},
        {"actor_train.model_args.model_config_kwargs": {"a": 1}},
        {"kl_penalty": "k2", "add_token_level_kl": True, "adv_estimator": "gae"},
        {"is_pure_opd": True, "teacher.model_args.model_name_or_path": "org/teacher"},
        {"train_env_manager.tags": ["SimpleSokoban"], "val_env_manager.tags": ["SimpleSokoban"]},
    ),
}
AGGREGATIONS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")
WORDS: Mapping[str, Sequence[Any]] = {
    "algorithm.rollout_correction.rollout_is_threshold": ("0.5_2.0", 3.0),
    **{f"{root}.rollout_is_level": ("token", "sequence", "geometric") for root in ("algorithm", A)},
    **{f"{root}.rollout_is_mode": ("truncate", "mask") for root in ("algorithm", A)},
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
    **{f"algorithm.{place}loss_agg_mode": AGGREGATIONS for place in ("", "policy_loss_fn_args.")},
    "algorithm.optimizer.lr_scheduler_type": ("constant", "cosine"),
    "actor_train.pg_variant": ("ppo", "topr", "cispo", "gspo"),
    "kl_penalty": ("kl", "k2", "low_var_kl"),
    "global_template": ("qwen2_5", "native"),
    **{
        f"{role}.{key}": words
        for role in (*ROLL_ROLES, "actor_infer", "teacher", "student", "sft_train", "student_train", "student_infer")
        for key, words in {
            "device_mapping": ("list(range(0,4))", "list(range(4,8))"),
            "model_args.model_name_or_path": ("org/other",),
            "model_args.dtype": ("bf16", "fp16", "fp32"),
            "model_args.attn_implementation": ("sdpa", "fa2"),
            "data_args.template": ("qwen2_5", "native"),
            "strategy_args.strategy_config.param_dtype": ("bf16", "float32"),
            "strategy_args.strategy_config.reduce_dtype": ("bf16", "float32"),
            "strategy_args.strategy_config.ckpt_format": ("torch_dist",),
            "strategy_args.strategy_config.optimizer": ("sgd", "adam"),
            "strategy_args.strategy_name": ("megatron_infer", "hf_infer", "deepspeed_infer", "fsdp2_infer"),
        }.items()
    },
    "reward_normalization.method": ("identity", "mean", "mean_std"),
    **{
        f"{role}.strategy_args.strategy_config.zero_optimization.**": ({"device": "none"}, {"device": "cpu"})
        for role in ROLL_ROLES
    },
    **dict.fromkeys(
        (
            "buffer.explorer_input.default_reward_fn_type",
            "buffer.explorer_input.eval_tasksets.*.default_reward_fn_type",
            "buffer.explorer_input.taskset.default_reward_fn_type",
        ),
        ("math_reward", "math_boxed_reward", "accuracy_reward", "countdown_reward"),
    ),
    "data_processor.task_pipeline.operators.*.name": ("text_length_filter", "words_num_filter"),
    "mode": ("both", "train", "explore", "colocate"),
    "norm_mean_type": ("group", "batch"),
    "norm_std_type": ("group", "batch"),
    "reward_normalization.norm_mean_type": ("group", "batch"),
    "reward_normalization.norm_std_type": ("group", "batch"),
}
"""Words and texts that keys take besides their defaults."""
