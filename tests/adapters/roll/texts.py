"""ROLL files for tests: a small one that each test changes, read and written by the dialect itself."""

from __future__ import annotations

from typing import Any

from rlctl.adapters.engine.tree import put
from rlctl.common.report import Bucket, Report
from rlctl.config import Loaded
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document, write

RLVR = """
exp_name: math
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 1024
response_length: 3072
adv_estimator: grpo
pretrain: org/model
max_steps: 100
actor_train:
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 2, gradient_accumulation_steps: 8}
  data_args: {file_name: [math.jsonl], messages: messages, domain_interleave_probs: {math_rule: 1.0}}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
actor_infer:
  generating_args: {temperature: 0.99, top_p: 0.99, top_k: 100}
  strategy_args: {strategy_name: vllm}
  device_mapping: list(range(0,8))
rewards:
  math_rule:
    worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker
    tag_included: [deepmath_103k]
    world_size: 4
"""
AGENTIC = """
exp_name: sokoban
rollout_batch_size: 128
sequence_length: 8192
adv_estimator: grpo
pretrain: org/model
max_steps: 100
actor_train:
  training_args: {per_device_train_batch_size: 2, gradient_accumulation_steps: 8}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
actor_infer:
  generating_args: {max_new_tokens: 128, temperature: 0.99, top_p: 0.99, top_k: 100}
  strategy_args: {strategy_name: vllm}
  device_mapping: list(range(0,8))
train_env_manager: {num_env_groups: 16, group_size: 8, tags: [Sokoban], num_groups_partition: [16]}
val_env_manager: {num_env_groups: 64, group_size: 1, tags: [Sokoban], num_groups_partition: [64]}
custom_envs:
  Sokoban: {env_type: sokoban, max_steps: 10}
"""


def read(text: str, **changes: Any) -> tuple[Loaded, Report]:
    """Read a file with some of its keys changed; ``__`` stands for a dot."""
    document = read_yaml(text, "run.yaml")
    for name, value in changes.items():
        put(document.values, tuple(name.split("__")), value)
    loaded, report = read_document(document, dialect="roll", environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    return loaded, report


def written(loaded: Loaded, **options: str) -> tuple[dict[str, Any], Report]:
    """What is written to ROLL, as plain values, with the account of it."""
    text, report = write(loaded, "roll", options={"carried": "none", **options})
    assert text is not None
    return read_yaml(text, "written.yaml").values, report


def lost(report: Report) -> dict[str, str]:
    """The canonical keys that could not be said, with the reasons."""
    return {entry.key: entry.note for entry in report.accounting if entry.bucket is Bucket.UNSUPPORTED}


def bucket(report: Report, key: str) -> Bucket:
    """Where a key of the source went."""
    return next(entry.bucket for entry in report.accounting if entry.key == key)
