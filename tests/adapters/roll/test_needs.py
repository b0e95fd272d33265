"""What ROLL asks of data and rewards that were made for another framework is told, once and by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl import convert
from rlctl.common.report import Bucket, Finding, Report

from .files import bucket, entry, read, roll, written

VERL = """
data: {{train_files: train.parquet, val_files: test.parquet{data}}}
actor_rollout_ref: {{model: {{path: org/model}}, rollout: {{name: vllm, n: 8}}}}
algorithm: {{adv_estimator: grpo}}
trainer: {{total_training_steps: 10, n_gpus_per_node: 8}}
"""
TRINITY = """
algorithm: {{algorithm_type: {kind}, repeat_times: 8}}
model: {{model_path: org/model}}
cluster: {{node_num: 1, gpu_per_node: 8}}
buffer: {{total_steps: 10, batch_size: 64, {buffer}}}
"""
TASKS = "explorer_input: {taskset: {path: openai/gsm8k, storage_type: file, subset_name: main, split: train}}"
ROWS = "trainer_input: {experience_buffer: {path: rows.jsonl, storage_type: file, format: %s}}"


def _converted(text: str, dialect: str, target: str = "roll") -> tuple[dict[str, Any], Report]:
    found = convert(text, target, dialect=dialect)
    assert found.text is not None, [finding.message for finding in found.report.errors]
    return yaml.safe_load(found.text), found.report


def _told(report: Report, code: str) -> Finding | None:
    found = [finding for finding in report.findings if finding.code == code]
    assert len(found) < 2
    return found[0] if found else None


def test_columns_of_verl_are_told_once_with_those_that_roll_reads() -> None:
    _, report = _converted(VERL.format(data=""), "verl")
    told = _told(report, "data-columns")
    assert told is not None
    for column in ("'prompt'", "'tag'", "'ground_truth'"):
        assert column in told.message
    assert "math_rule" in told.hint
    assert not [finding for finding in report.findings if "answer_key" in finding.message]


def test_a_hub_name_is_no_file_for_roll() -> None:
    _, report = _converted(TRINITY.format(kind="grpo", buffer=TASKS), "trinity")
    told = _told(report, "data-files")
    assert told is not None
    assert "'openai/gsm8k' (main, train)" in told.message
    for key in ("split", "subset_name"):  # a file in its place would have all of them
        assert bucket(report, f"buffer.explorer_input.taskset.{key}") is Bucket.UNSUPPORTED


def test_rolls_own_file_is_told_nothing() -> None:
    _, report = _converted(roll(actor_train__data_args__file_name=["train.jsonl"]), "roll")
    assert not {"data-columns", "data-files", "start-script"} & {finding.code for finding in report.findings}


def test_conversations_are_no_rows_of_rolls_sft() -> None:
    _, report = _converted(TRINITY.format(kind="sft", buffer=ROWS % "{messages_key: messages}"), "trinity")
    told = _told(report, "data-columns")
    assert told is not None
    assert "conversations in 'messages'" in told.message
    assert "prompt_key" in told.hint
    key = "buffer.trainer_input.experience_buffer.format.messages_key"
    assert bucket(report, key) is Bucket.UNSUPPORTED
    assert "not conversations" in entry(report, key).note


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_what_chooses_the_pipeline_is_not_lost(kind: str) -> None:
    form = "{prompt_type: plaintext, prompt_key: instruction, response_key: output}"
    _, report = _converted(TRINITY.format(kind=kind, buffer=ROWS % form), "trinity")
    assert bucket(report, "algorithm.algorithm_type") is Bucket.DERIVED
    assert bucket(report, "buffer.trainer_input.experience_buffer.format.prompt_type") is Bucket.MAPPED
    assert _told(report, "data-columns") is None


def test_the_prompt_of_a_pair_is_an_instruction() -> None:
    form = "{prompt_type: plaintext, prompt_key: question}"
    _, report = _converted(TRINITY.format(kind="dpo", buffer=ROWS % form), "trinity")
    told = _told(report, "data-columns")
    assert told is not None
    assert "'question'" in told.message


# Images


def test_a_run_with_images_is_for_the_script_that_reads_them() -> None:
    values, report = _converted(VERL.format(data=", image_key: images"), "verl")
    told = _told(report, "start-script")
    assert told is not None
    assert "start_rlvr_vl_pipeline.py" in told.message
    assert values["actor_train"]["data_args"]["image_max_pixels"] == 4096 * 4096
    assert entry(report, "data.image_key").targets == (("actor_train.data_args.image_max_pixels", 4096 * 4096),)
    assert _told(report, "data-columns") is None


def test_a_column_of_images_with_another_name_has_to_be_renamed() -> None:
    _, report = _converted(VERL.format(data=", image_key: pictures"), "verl")
    assert bucket(report, "data.image_key") is Bucket.UNSUPPORTED
    assert "rename pictures" in entry(report, "data.image_key").note


def test_a_run_without_images_is_for_the_usual_script() -> None:
    values, report = _converted(VERL.format(data=""), "verl")
    assert _told(report, "start-script") is None
    assert "image_max_pixels" not in values["actor_train"]["data_args"]


def test_a_file_of_the_pipeline_with_images_has_its_fixed_columns() -> None:
    config, report = read(actor_train__data_args__image_max_pixels=1048576, actor_train__data_args__messages="chat")
    source = config.data.train[0]
    assert (source.prompt_key, source.image_key) == ("prompt", "images")
    assert (source.answer_key, source.tag_key) == ("reward_model.ground_truth", "data_source")
    assert bucket(report, "actor_train.data_args.messages") is Bucket.DEAD


def test_images_come_back_with_their_limit() -> None:
    values, _ = _converted(roll(actor_train__data_args__image_max_pixels=1048576), "roll")
    assert values["actor_train"]["data_args"]["image_max_pixels"] == 1048576


# What no result hangs on is carried; what is lost says what is written instead


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train__packing", True),
        ("train__engine", {"type": "fsdp2", "offload": "none"}),
        ("train__compile", False),
        ("weight_sync__method", "nccl"),
        ("rollout__timeouts__response", 60.0),
        ("run__group", "mine"),
    ],
)
def test_what_changes_no_result_is_carried(key: str, value: Any) -> None:
    _, report = written(**{key: value})
    name = key.replace("__", ".") + (".offload" if isinstance(value, dict) else "")
    assert bucket(report, name) is Bucket.CARRIED


def test_the_engines_seed_is_the_runs() -> None:
    _, report = written(run__seed=7, rollout__sampling__seed=7)
    assert bucket(report, "rollout.sampling.seed") is Bucket.MAPPED
    _, report = written(run__seed=7, rollout__sampling__seed=8)
    assert bucket(report, "rollout.sampling.seed") is Bucket.UNSUPPORTED


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("step_wise_grpo", {"adv_estimator": "grpo"}),
        ("opmd", {"adv_estimator": "reinforce", "norm_mean_type": "group", "norm_std_type": None}),
        ("remax", {"adv_estimator": "reinforce"}),
    ],
)
def test_an_estimator_that_roll_has_not_becomes_the_nearest(kind: str, expected: dict[str, Any]) -> None:
    values, report = written(algorithm__advantage={"type": kind})
    assert {
        key: values[key] for key in values if key in ("adv_estimator", "norm_mean_type", "norm_std_type")
    } == expected
    assert bucket(report, "algorithm.advantage.type") is Bucket.UNSUPPORTED


def test_a_loss_that_roll_has_not_takes_its_arguments_with_it() -> None:
    loss = {"type": "dppo_tv", "args": {"clip_ratio_low": 0.15}}
    _, report = written(algorithm__policy_loss=loss)
    assert "ROLL has no loss dppo_tv" in entry(report, "algorithm.policy_loss.args.clip_ratio_low").note


@pytest.mark.parametrize(
    ("warmup", "lost"), [({"warmup_start_lr": 1e-7}, False), ({"warmup_start_lr": 1e-7, "warmup_steps": 5}, True)]
)
def test_where_a_warm_up_starts_matters_where_there_is_one(warmup: dict[str, Any], lost: bool) -> None:
    _, report = written(train__lr_scheduler={"type": "cosine", **warmup})
    start = bucket(report, "train.lr_scheduler.warmup_start_lr")
    assert (start is Bucket.UNSUPPORTED) is lost


def test_an_interval_that_is_rounded_to_whole_steps_is_derived_with_what_it_was() -> None:
    values, report = written(
        checkpoint={"every": {"optimizer_steps": 10}}, schedule={"total_steps": 10, "evaluate_every": 5}
    )
    assert (values["save_steps"], values["eval_steps"]) == (2, 5)  # 64 x 8 / 128 = 4 optimizer steps a step
    saved = entry(report, "checkpoint.every.optimizer_steps")
    assert (saved.bucket, saved.note) == (Bucket.DERIVED, "every 10 optimizer steps = every 2 steps, rounded")
    assert entry(report, "schedule.evaluate_every").bucket is Bucket.MAPPED


def test_a_key_that_only_others_name_is_not_called_dead() -> None:
    text = roll(
        reward_pretrain="org/judge",
        rewards={"math": {"worker_cls": "own.Worker", "model_args": {"model_name_or_path": "${reward_pretrain}"}}},
    )
    _, report = _converted(text, "roll", "verl")
    named = entry(report, "reward_pretrain")
    assert named.bucket is Bucket.MAPPED
    assert "${reward_pretrain}" in named.note
    _, report = _converted(roll(reward_pretrain="org/judge"), "roll", "verl")
    assert bucket(report, "reward_pretrain") is Bucket.DEAD


def test_a_filter_that_is_off_is_not_lost_with_one_that_is_on() -> None:
    _, report = _converted(roll(max_len_mask=True, error_max_len_clip=False), "roll", "verl")
    assert bucket(report, "max_len_mask") is Bucket.UNSUPPORTED
    assert bucket(report, "error_max_len_clip") is Bucket.MAPPED


def test_keys_of_an_included_file_belong_to_no_other_release(tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text("unnamed: {template: a}\n")
    own = tmp_path / "run.yaml"
    own.write_text("defaults: [shared, _self_]\n" + roll())
    found = convert(own, "verl", dialect="roll")
    assert bucket(found.report, "unnamed.template") is Bucket.DEAD
    assert not {"other-release", "unknown-key"} & {finding.code for finding in found.report.findings}


@pytest.mark.parametrize(
    ("kind", "kept"),
    [("roll.pipeline.rlvr.rewards.own.Worker", True), ("own.Worker", True), ("trinity.rewards.Own", False)],
)
def test_a_class_of_another_framework_is_no_worker(kind: str, kept: bool) -> None:
    values, _ = written(rewards=[{"type": "external", "name": "own", "kind": kind}])
    assert (values["rewards"]["math_rule"].get("worker_cls") == kind) is kept
