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
    ),
}
WORDS: Mapping[str, Sequence[Any]] = {}
