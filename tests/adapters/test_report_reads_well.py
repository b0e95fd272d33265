"""What a conversion report says is said once, of what differs, in words that name the cause."""

from __future__ import annotations

from rlctl.common.report import Report
from rlctl.translation.translate import convert

from .roll.texts import AGENTIC

TASKSETS = """
algorithm: {algorithm_type: grpo, repeat_times: 8}
model: {model_path: org/model, max_model_len: 2048}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 32
  total_steps: 100
  explorer_input:
    default_workflow_type: WORKFLOW
    tasksets:
      - {name: a, path: data/a, format: {prompt_key: question, response_key: answer}, rollout_args: {temperature: 0.9}}
      - {name: b, path: data/b, format: {prompt_key: question, response_key: answer}, rollout_args: {temperature: SECOND}}
  trainer_input: {experience_buffer: {name: exp, storage_type: queue}}
explorer: {rollout_model: {engine_num: 4}}
"""
DISTILLED = """
algorithm: {algorithm_type: on_policy_distill, repeat_times: 8, advantage_fn_args: {kl_coef: 1.0}}
model: {model_path: org/student, max_model_len: 2048}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 32
  total_steps: 100
  explorer_input:
    default_workflow_type: on_policy_distill_math_workflow
    taskset: {name: a, path: data/a, format: {prompt_key: question, response_key: answer}}
  trainer_input: {experience_buffer: {name: exp, storage_type: queue}}
explorer:
  rollout_model: {engine_num: 4}
  auxiliary_models: [{model_path: org/teacher, engine_num: 1, tensor_parallel_size: 2, dtype: bfloat16}]
"""
VERL = """
data: {train_files: a.parquet, val_files: b.parquet, train_batch_size: 64}
actor_rollout_ref:
  model: {path: org/model}
  actor: {ppo_mini_batch_size: 64, ppo_micro_batch_size_per_gpu: 1}
  rollout: {name: vllm, n: 4, log_prob_micro_batch_size_per_gpu: 1}
algorithm: {adv_estimator: grpo}
trainer: {total_epochs: 10, total_training_steps: 200, n_gpus_per_node: 8, nnodes: 1}
"""


def told(text: str, source: str, target: str) -> tuple[Report, list[str]]:
    """The report of a conversion, and its lines on what differs."""
    report = convert(text, target, dialect=source, environment={}).report
    lines = [entry.note for entry in report.accounting if entry.loses]
    return report, [*lines, *(item.message for item in report.warnings if item.code != "unsupported")]


def test_sampling_that_all_task_sets_share_is_the_runs() -> None:
    text = TASKSETS.replace("WORKFLOW", "math_workflow")
    _, same = told(text.replace("SECOND", "0.9"), "trinity", "roll")
    report, other = told(text.replace("SECOND", "0.5"), "trinity", "roll")
    assert [line for line in same if "samples for all files alike" in line] == []
    assert [line for line in other if "samples for all files alike" in line]
    (entry,) = [entry for entry in report.accounting if entry.key.endswith("tasksets[1].rollout_args.temperature")]
    assert entry.loses


def test_a_workflow_of_one_answer_is_reported_once_with_what_it_implies() -> None:
    text = TASKSETS.replace("WORKFLOW", "math_rm_workflow").replace("SECOND", "0.9")
    _, lines = told(text, "trinity", "roll")
    (line,) = {line for line in lines if line.startswith("math_rm_workflow")}
    assert line.startswith("math_rm_workflow of Trinity scores one answer: put its prompt into the data")
    assert "RLVR" not in line


def test_the_engine_of_a_teacher_does_not_change_the_objective() -> None:
    _, lines = told(DISTILLED, "trinity", "roll")
    assert [line for line in lines if "distillation" in line] == []


def test_epochs_that_steps_override_are_reported_with_the_rows_that_decide() -> None:
    report, _ = told(VERL, "verl", "trinity")
    (entry,) = [entry for entry in report.accounting if entry.key == "trainer.total_epochs"]
    assert entry.note == "Trinity's steps override its epochs; with 1280 rows or more, the run ends after 200 steps"


def test_the_length_of_a_run_is_reported_once() -> None:
    """Of verl's default, 30 epochs: ROLL counts steps, and has a default too."""
    _, lines = told(VERL.replace("total_epochs: 10, total_training_steps: 200, ", ""), "verl", "roll")
    (line,) = [line for line in lines if "500" in line]
    assert "how many steps 30 epochs take depends on the number of training rows" in line


def test_an_environment_that_a_workflow_plays_is_no_list_of_missing_keys() -> None:
    text = AGENTIC.replace("Sokoban: {env_type: sokoban,", "Sokoban: {env_type: frozen_lake,")
    _, lines = told(text, "roll", "trinity")
    assert [line for line in lines if "frozen_lake_workflow" in line]
    assert [line for line in lines if "rollout.agents" in line] == []
