"""Words and numbers that Trinity-RFT's functions, workflows and readers refuse, each on a run that is otherwise accepted."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.documents import read_yaml

ACCEPTED = """
mode: both
model: {model_path: Qwen/Qwen2.5-0.5B, max_prompt_tokens: 100, max_response_tokens: 100}
algorithm: {algorithm_type: grpo, repeat_times: 8}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 32
  explorer_input: {taskset: {name: t, path: openai/gsm8k, split: train, default_workflow_type: math_workflow}}
explorer: {rollout_model: {engine_num: 4}}
synchronizer: {sync_interval: 1}
"""


def over(values: Any, change: Any) -> Any:
    if not isinstance(values, dict) or not isinstance(change, dict):
        return change
    return {**values, **{name: over(values.get(name), inner) for name, inner in change.items()}}


def _refused(change: str) -> list[str]:
    requirements = requirements_of("trinity")
    assert requirements is not None
    text = yaml.safe_dump(over(yaml.safe_load(ACCEPTED), yaml.safe_load(change)))
    document = read_yaml(text, "run.yaml")
    return [row.key for row, _ in refused(requirements, dialect("trinity"), document, release="0.6", environment={})]


REFUSED = [
    ("algorithm.advantage_fn_args.fnorm", "algorithm: {advantage_fn: gigpo, advantage_fn_args: {fnorm: x}}"),
    ("algorithm.advantage_fn_args.std_cal_level", "algorithm: {advantage_fn_args: {std_cal_level: x}}"),
    ("algorithm.advantage_fn_args.drop", "algorithm: {advantage_fn_args: {drop: x}}"),
    ("algorithm.policy_loss_fn_args.cutoff_prob", "algorithm: {policy_loss_fn_args: {cutoff_prob: 2}}"),
    ("algorithm.policy_loss_fn_args.clip_ratio_c", "algorithm: {policy_loss_fn_args: {clip_ratio_c: 1.0}}"),
    ("algorithm.policy_loss_fn_args.epsilon_low", "algorithm: {policy_loss_fn_args: {epsilon_low: 2}}"),
    ("algorithm.policy_loss_fn_args.weight", "algorithm: {policy_loss_fn_args: {weight: x}}"),
    ("algorithm.policy_loss_fn_args.temp", "algorithm: {policy_loss_fn_args: {temp: 0}}"),
    ("algorithm.loss_agg_mode", "algorithm: {loss_agg_mode: mean}"),
    ("algorithm.advantage_fn", "algorithm: {advantage_fn: nope}"),
    ("algorithm.kl_loss_fn", "algorithm: {kl_loss_fn: k9}"),
    ("algorithm.sample_strategy", "algorithm: {sample_strategy: k9}"),
    ("algorithm.kl_penalty_fn_args.adaptive", "algorithm: {kl_penalty_fn_args: {adaptive: true}}"),
    (
        "algorithm.policy_loss_fn_args.tau_neg",
        "algorithm: {algorithm_type: sapo, policy_loss_fn_args: {tau_neg: 0.5}}",
    ),
    ("buffer.trainer_input.auxiliary_buffers", "algorithm: {algorithm_type: mix}"),
    (
        "buffer.trainer_input.auxiliary_buffers",
        "buffer: {trainer_input: {auxiliary_buffers: {sft_dataset: {storage_type: file}}}}",
    ),
    ("buffer.explorer_input.eval_tasksets", "buffer: {explorer_input: {eval_tasksets: [{name: a}]}}"),
    (
        "buffer.explorer_input.eval_tasksets",
        "synchronizer: {sync_style: fully_async}\nbuffer: {explorer_input: {eval_tasksets: [{name: a, path: b}]}}",
    ),
    (
        "buffer.explorer_input.taskset.data_selector",
        "buffer: {explorer_input: {taskset: {data_selector: {selector_type: xx}}}}",
    ),
    (
        "buffer.explorer_input.taskset.data_selector",
        "buffer: {explorer_input: {taskset: {data_selector: {selector_type: difficulty_based, feature_keys: [a]}}}}",
    ),
    (
        "data_processor.experience_pipeline.operators",
        "data_processor: {experience_pipeline: {operators: [{name: nope}]}}",
    ),
    ("data_processor.task_pipeline.output.path", "data_processor: {task_pipeline: {output: {path: /tmp}}}"),
    (
        "buffer.explorer_input.taskset.reward_fn_args",
        "buffer: {explorer_input: {taskset: {reward_fn_args: {enable_overlong_penalty: true, penalty_factor: 1.0}}}}",
    ),
    ("model.chat_template_path", "model: {chat_template_path: /nope}"),
    ("model.external_model.model_name", "mode: bench\nmodel: {external_model: {enable: true}}"),
    ("explorer.auxiliary_models", "explorer: {auxiliary_models: [{engine_num: 1}]}"),
    (
        "explorer.auxiliary_models",
        "buffer: {explorer_input: {taskset: {default_workflow_type: math_ruler_workflow}}}",
    ),
    (
        "explorer.rollout_model.enable_openai_api",
        "buffer: {explorer_input: {default_workflow_type: agentscope_workflow_adapter, taskset: {}}}",
    ),
    (
        "explorer.rollout_model.enable_history",
        "buffer: {explorer_input: {taskset: {default_workflow_type: step_wise_alfworld_workflow}}}",
    ),
    ("model.tinker.enable", "model: {tinker: {enable: true}}\nalgorithm: {algorithm_type: ppo}"),
    (
        "algorithm.optimizer.lr_scheduler_type",
        "model: {tinker: {enable: true}}\nalgorithm: {optimizer: {lr_scheduler_type: linear}}",
    ),
    (
        "explorer.rollout_model.data_parallel_size",
        "explorer: {rollout_model: {engine_type: sglang, data_parallel_size: 3, engine_num: 1}}",
    ),
    ("algorithm.advantage_fn_args.opmd_baseline", "algorithm: {advantage_fn_args: {opmd_baseline: x}}"),
    ("buffer.explorer_input.taskset.storage_type", "buffer: {explorer_input: {taskset: {storage_type: sql}}}"),
    (
        "buffer.trainer_input.experience_buffer.storage_type",
        "buffer: {trainer_input: {experience_buffer: {storage_type: foo}}}",
    ),
    (
        "buffer.trainer_input.experience_buffer.format.prompt_type",
        "buffer: {trainer_input: {experience_buffer: {format: {prompt_type: foo}}}}",
    ),
    (
        "buffer.explorer_input.taskset.format.prompt_type",
        "buffer: {explorer_input: {taskset: {format: {prompt_type: foo}}}}",
    ),
    ("explorer.rollout_model.engine_type", "explorer: {rollout_model: {engine_type: foo}}"),
    ("algorithm.policy_loss_fn_args", "algorithm: {policy_loss_fn_args: {clip_ratio_c: 3.0}}"),
    ("algorithm.entropy_loss_fn", "algorithm: {entropy_loss_fn: mix}"),
    ("algorithm.advantage_fn", "algorithm: {advantage_fn: rloo}"),
    (
        "data_processor.experience_pipeline.input_save_path",
        "data_processor: {experience_pipeline: {save_input: true, input_save_path: /tmp/x.csv}}",
    ),
    (
        "buffer.trainer_input.experience_buffer.format.prompt_type",
        "mode: train\nalgorithm: {algorithm_type: cpt}\nbuffer: {train_batch_size: 8, trainer_input: {experience_buffer: {path: /tmp, format: {prompt_type: messages}}}}",
    ),
    ("trainer.trainer_config_path", "trainer: {trainer_config_path: x.yaml}"),
    (
        "explorer.rollout_model.enable_openai_api",
        "buffer: {explorer_input: {taskset: {default_workflow_type: agentscope_react_workflow, workflow_args: {type: foo}}}}",
    ),
    (
        "buffer.explorer_input.taskset.workflow_args",
        "buffer: {explorer_input: {taskset: {default_workflow_type: rubric_judge_openai_workflow, workflow_args: {a: foo}}}}",
    ),
    (
        "explorer.auxiliary_models",
        "buffer: {explorer_input: {taskset: {default_workflow_type: on_policy_distill_workflow}}}\nexplorer: {auxiliary_models: [{model_path: x, engine_type: sglang}]}",
    ),
    (
        "explorer.rollout_model.engine_type",
        "buffer: {explorer_input: {taskset: {default_workflow_type: alfworld_workflow}}}\nexplorer: {rollout_model: {engine_type: sglang}}",
    ),
    (
        "explorer.rollout_model.data_parallel_size",
        "explorer: {rollout_model: {data_parallel_size: 16, engine_num: 1}}\ncluster: {node_num: 3}",
    ),
    (
        "algorithm.optimizer.lr_scheduler_type",
        "model: {tinker: {enable: true}}\nalgorithm: {optimizer: {lr_scheduler_type: linear, min_lr_ratio: 2}}",
    ),
    ("trainer.trainer_strategy", "trainer: {trainer_strategy: ddp}"),
    (
        "buffer.trainer_input.experience_buffer.data_selector.selector_type",
        "buffer: {trainer_input: {experience_buffer: {data_selector: {selector_type: best}}}}",
    ),
    ("data_processor.task_pipeline.inputs", "data_processor: {task_pipeline: {inputs: [/none.jsonl]}}"),
    (
        "data_processor.experience_pipeline.operators",
        "data_processor: {experience_pipeline: {operators: [{name: data_juicer, args: {np: 2}}]}}",
    ),
    (
        "data_processor.task_pipeline.output",
        "mode: train\nbuffer: {train_batch_size: 8}\ndata_processor: {task_pipeline: {inputs: [/none.jsonl]}}",
    ),
]
"""The key that a refusal is about, and what makes the accepted run be refused."""
STARTED = (
    *(
        "data_processor.",
        "explorer.rollout_model.enable",
        "explorer.rollout_model.engine_type",
        "trainer.trainer_config_path",
    ),
    *(
        "buffer.explorer_input.taskset.workflow_args",
        "buffer.explorer_input.taskset.reward_fn_args",
        "algorithm.entropy_loss_fn",
    ),
    *("buffer.explorer_input.taskset.storage_type", "buffer.trainer_input.experience_buffer.storage_type"),
)
"""What starts of keys whose values the loader takes, so that the run stops later or goes without them."""
LATER = (
    "algorithm: {algorithm_type: mix}",
    "algorithm: {advantage_fn: rloo}",
    "buffer: {explorer_input: {taskset: {data_selector: {selector_type: difficulty_based, feature_keys: [a]}}}}",
)
"""Further such changes, of keys that the loader refuses other values of."""


@pytest.mark.parametrize(("key", "change"), REFUSED)
def test_what_a_function_refuses(key: str, change: str) -> None:
    assert key in _refused(change)


@pytest.mark.parametrize(
    "change",
    [
        "{}",
        "algorithm: {policy_loss_fn_args: {clip_range_low: 0.2, clip_range_high: 0.3, clip_ratio_c: 3.0}}",
        "algorithm: {advantage_fn: my.module.Advantage, advantage_fn_args: {std_cal_level: batch}}",
        "buffer: {explorer_input: {taskset: {data_selector: {selector_type: shuffle}}}}",
        "buffer: {trainer_input: {experience_buffer: {storage_type: sql, format: {prompt_type: PLAINTEXT}}}}",
        "explorer: {rollout_model: {enable_openai_api: true}}\n"
        "buffer: {explorer_input: {taskset: {default_workflow_type: agentscope_react_workflow}}}",
    ],
)
def test_what_it_accepts(change: str) -> None:
    assert _refused(change) == []


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("explorer.dynamic_timeout.ratio", "explorer: {dynamic_timeout: {ratio: 2.0}}"),
        ("model.external_model.model_name", "model: {external_model: {model_name: m}}"),
    ],
)
def test_a_key_of_a_section_that_is_off(key: str, change: str) -> None:
    assert _refused(change) == [key]
