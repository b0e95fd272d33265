"""Small ROLL files, and the ways of the tests through the dialect."""

from __future__ import annotations

from typing import Any

import yaml

from rlctl.common.report import Bucket, Entry, Report
from rlctl.config import Config, Loaded, Source, config_from
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document, write

RLVR = """
exp_name: test
rollout_batch_size: 64
num_return_sequences_in_group: 8
prompt_length: 512
response_length: 1024
adv_estimator: grpo
pretrain: org/model
num_gpus_per_node: 8
actor_train:
  model_args: {dtype: bf16}
  training_args: {learning_rate: 1.0e-06, per_device_train_batch_size: 2, gradient_accumulation_steps: 8}
  data_args: {file_name: train.jsonl, messages: messages}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
actor_infer:
  generating_args: {temperature: 1.0, top_p: 1.0, top_k: -1}
  strategy_args: {strategy_name: vllm, strategy_config: {tensor_parallel_size: 2}}
  device_mapping: list(range(0,8))
reference:
  strategy_args: {strategy_name: fsdp2_infer}
  device_mapping: list(range(0,8))
"""


def roll(**changes: Any) -> str:
    """The RLVR file with other values, keys with ``__`` for dots; None takes a key out."""
    values = yaml.safe_load(RLVR)
    for name, value in changes.items():
        *above, last = name.split("__")
        block = values
        for part in above:
            block = block.setdefault(part, {})
        if value is None:
            block.pop(last, None)
        else:
            block[last] = value
    return yaml.safe_dump(values, sort_keys=False)


def read(**changes: Any) -> tuple[Config, Report]:
    """What ROLL's file says."""
    loaded, report = read_document(read_yaml(roll(**changes), "roll.yaml"), dialect="roll", environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    return loaded.config, report


def refused(**changes: Any) -> str:
    """The messages of a file that cannot be read."""
    loaded, report = read_document(read_yaml(roll(**changes), "roll.yaml"), dialect="roll", environment={})
    assert loaded is None
    return "\n".join(f"{finding.message} {finding.hint}" for finding in report.errors)


def entry(report: Report, key: str) -> Entry:
    """What became of one key of the text."""
    return next(item for item in report.accounting if item.key == key)


def bucket(report: Report, key: str) -> Bucket:
    """The bucket of one key of the text."""
    return entry(report, key).bucket


def _leaves(value: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [path]
    return [leaf for name, item in value.items() for leaf in _leaves(item, (*path, name))] or [path]


def written(**keys: Any) -> tuple[dict[str, Any], Report]:
    """ROLL's file for a canonical config in which these keys are said; ``__`` stands for dots."""
    tree: dict[str, Any] = {
        "model": {"path": "org/model"},
        "data": {"train": [{"path": "train.jsonl"}]},
        "batch": {"prompts_per_step": 64, "responses_per_prompt": 8, "mini_batch_responses": 128},
        "schedule": {"total_steps": 10},
    }
    said = []
    for name, value in keys.items():
        path = tuple(name.split("__"))
        block = tree
        for part in path[:-1]:
            block = block.setdefault(part, {})
        block[path[-1]] = value
        said += _leaves(value, path)
    config = config_from(tree)
    sources = {path: Source("file", ".".join(path)) for path in said}
    text, report = write(Loaded(config, sources), "roll", options={"carried": "none"})
    assert text is not None, [finding.message for finding in report.errors]
    return yaml.safe_load(text), report
