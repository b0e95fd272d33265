"""Which pipeline a ROLL file is for, what its keys are called there, and what ROLL drops in silence."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rlctl.adapters.roll import ROLL
from rlctl.common.report import Bucket, Report
from rlctl.config import Loaded, Source, config_from
from rlctl.config.sections.agents import EnvironmentAgent
from rlctl.config.sections.train import Megatron
from rlctl.documents import read_yaml
from rlctl.translation.acceptance import findings_of
from rlctl.translation.translate import convert, read_document, translate_loaded, write

from .texts import AGENTIC, RLVR, bucket, read, written

SFT = """
exp_name: sft
pretrain: org/model
sequence_length: 4096
save_steps: 500
sft_train:
  training_args: {learning_rate: 1.0e-5, per_device_train_batch_size: 1, gradient_accumulation_steps: 32, num_train_epochs: 3}
  data_args: {file_name: code.json}
  strategy_args: {strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}}
  device_mapping: list(range(0,8))
"""
DPO = """
exp_name: dpo
pretrain: org/model
sequence_length: 512
max_steps: 500
beta: 0.2
chosen_key: better
rejected_key: worse
actor_train:
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 16, gradient_accumulation_steps: 1, num_train_epochs: 10}
  data_args: {file_name: [pairs.json]}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
reference:
  strategy_args: {strategy_name: fsdp2_infer}
  device_mapping: list(range(0,8))
"""
DISTILL = """
exp_name: distill
student_pretrain: org/student
teacher_pretrain: org/teacher
sequence_length: 2048
distill_loss_weight: 0.85
kd_objective: reverse_kl
student:
  training_args: {learning_rate: 2.0e-5, per_device_train_batch_size: 8, gradient_accumulation_steps: 4, num_train_epochs: 1}
  data_args: {file_name: [rows.json]}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
teacher:
  strategy_args: {strategy_name: fsdp2_infer}
  device_mapping: list(range(0,8))
"""
NAMED = "\n  model_args: {model_name_or_path: org/model}"
"""Each student names its model: else ROLL gives the teacher ``pretrain``, too."""
STUDENT = (
    RLVR.replace("actor_train:", f"student_train:{NAMED}").replace("actor_infer:", f"student_infer:{NAMED}")
    + """
teacher:
  model_args: {model_name_or_path: org/teacher}
  strategy_args: {strategy_name: fsdp2_infer}
  device_mapping: list(range(0,8))
  opd_kl_coef: 0.5
"""
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (RLVR, "rlvr"),
        (AGENTIC, "agentic"),
        (SFT, "sft"),
        (DPO, "dpo"),
        (DISTILL, "distill"),
        (STUDENT, "opd"),
        (STUDENT + "pure_opd_pipeline_type: agentic\n", "opd_agentic"),
        (RLVR + "use_opd: true\nteacher: {device_mapping: '[0]'}\n", "rlvr_teacher"),
    ],
)
def test_a_file_s_own_keys_tell_its_pipeline(text: str, kind: str) -> None:
    assert ROLL.detect(read_yaml(text, "run.yaml")).kind == kind


@pytest.mark.parametrize("text", [SFT, DPO, DISTILL, STUDENT, AGENTIC])
def test_only_the_rlvr_pipeline_needs_data_of_actor_train(text: str) -> None:
    loaded, report = read(text)
    assert "actor_train.data_args.file_name" not in {item.key for item in findings_of("roll", loaded, report)}


def test_a_step_of_supervised_training_is_one_optimizer_step() -> None:
    config = read(SFT)[0].config
    assert config.algorithm.objective.choice == "sft"
    assert (config.batch.prompts_per_step, config.schedule.total_epochs) == (32 * 2, 3)
    assert (config.data.max_sequence_tokens, config.data.train[0].response_key) == (4096, "output")


def test_preferences_are_counted_in_pairs() -> None:
    loaded, _ = read(DPO)
    config = loaded.config
    assert config.batch.prompts_per_step == 16 * 8
    assert (config.schedule.total_steps, config.schedule.total_epochs) == (500, 10)
    assert (config.data.train[0].chosen_key, config.data.train[0].rejected_key) == ("better", "worse")
    values, _ = written(loaded)
    assert values["actor_train"]["training_args"]["per_device_train_batch_size"] == 16
    assert (values["beta"], values["chosen_key"]) == (0.2, "better")


@pytest.mark.parametrize(
    ("text", "role"), [(SFT, "sft_train"), (DISTILL, "student"), (STUDENT, "student_train"), (DPO, "actor_train")]
)
def test_each_pipeline_is_written_with_its_own_role_names(text: str, role: str) -> None:
    loaded, report = read(text)
    assert not [entry.key for entry in report.accounting if entry.bucket is Bucket.UNKNOWN]
    values, _ = written(loaded)
    assert (
        values[role]["training_args"]["learning_rate"]
        == read_yaml(text, "a").values[role]["training_args"]["learning_rate"]
    )
    others = {"sft_train", "student", "student_train", "actor_train", "actor_infer", "student_infer", "critic"} - {role}
    assert set(values) & others <= ({"student_infer"} if role == "student_train" else set())


def test_a_teacher_is_a_distillation() -> None:
    offline = read(DISTILL)[0].config.algorithm.distillation
    assert offline is not None
    assert (offline.teacher, offline.loss, offline.coefficient, offline.top_k) == (
        "org/teacher",
        "reverse_kl",
        0.85,
        64,
    )
    online = read(STUDENT)[0].config.algorithm.distillation
    assert online is not None
    assert (online.teacher, online.coefficient) == ("org/teacher", 0.5)


def test_on_policy_distillation_is_the_same_in_verl() -> None:
    distillation = read_yaml(convert(STUDENT, to="verl").text, "verl.yaml").values["distillation"]
    assert distillation["teacher_models"] == {"teacher_model": {"model_path": "org/teacher"}}
    loss = {"loss_mode": "k1", "use_task_rewards": False, "use_policy_gradient": True}
    assert distillation["distillation_loss"] == loss
    assert (distillation["nnodes"], distillation["n_gpus_per_node"]) == (1, 8)
    assert set(distillation) == {"enabled", "teacher_models", "distillation_loss", "nnodes", "n_gpus_per_node"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("use_opd", None)),
        ({"loss_mode": "k1", "use_task_rewards": False, "use_policy_gradient": True}, ("is_pure_opd", "kl")),
        ({"loss_mode": "k2", "use_policy_gradient": True}, ("use_opd", "mse")),
    ],
)
def test_verl_distils_with_rewards_unless_it_says_otherwise(
    settings: dict[str, Any], expected: tuple[str, str | None]
) -> None:
    place = "distillation.distillation_loss"
    lines = ["algorithm.adv_estimator=grpo", "distillation.enabled=true"]
    lines += ["distillation.teacher_models.teacher_model.model_path=org/teacher"]
    lines += [f"{place}.{name}={value}" for name, value in settings.items()]
    made = convert("\n".join(lines), to="roll")
    values = read_yaml(made.text, "roll.yaml").values
    assert (next(name for name in ("use_opd", "is_pure_opd") if name in values), values.get("kl_penalty")) == expected


def test_a_value_that_only_other_keys_take_is_not_unknown() -> None:
    helper = "max_actions: 25\nunused_thing: 3\n"
    text = AGENTIC.replace("max_steps: 10}", "max_steps: '${max_actions}'}") + helper
    loaded, report = read(text)
    [agent] = loaded.config.rollout.agents
    assert isinstance(agent, EnvironmentAgent)
    assert agent.max_turns == 25
    assert bucket(report, "max_actions") is Bucket.MAPPED
    assert bucket(report, "unused_thing") is Bucket.UNKNOWN


@pytest.mark.parametrize("key", ["reward_norm", "l2", "use_topr_loss", "actor_train.data_args.dataset_dir"])
def test_what_roll_drops_or_never_reads_is_dead(key: str) -> None:
    _, report = read(RLVR, **{key.replace(".", "__"): "x"})
    assert bucket(report, key) is Bucket.DEAD


def test_workers_are_written_in_the_order_of_roll_s_examples() -> None:
    values, _ = written(read(RLVR)[0])
    assert list(values["actor_train"])[:5] == [
        "model_args",
        "training_args",
        "data_args",
        "strategy_args",
        "device_mapping",
    ]
    assert list(values).index("exp_name") < list(values).index("rollout_batch_size") < list(values).index("actor_train")


def test_a_number_that_environments_name_is_not_dead() -> None:
    text = AGENTIC.replace("max_steps: 10}", "max_steps: '${max_actions_per_traj}'}") + "max_actions_per_traj: 25\n"
    assert bucket(read(text)[1], "max_actions_per_traj") is Bucket.MAPPED
    assert bucket(read(AGENTIC + "max_actions_per_traj: 25\n")[1], "max_actions_per_traj") is Bucket.DEAD


def test_what_silence_means_and_the_target_cannot_say_is_told_once() -> None:
    text = RLVR.replace("file_name: [math.jsonl]", "file_name: [one.jsonl, two.jsonl]")
    told = [item.message for item in convert(text, to="verl").report.findings if item.code == "silent-difference"]
    assert [
        message for message in told if "no linear decay" in message and "lr_scheduler_type sets is linear" in message
    ]
    assert len([message for message in told if "data_args.tag sets is tag" in message]) == 1


@pytest.mark.parametrize(
    ("columns", "expected"),
    [({}, "response"), ({"response_key": "text"}, "text"), ({"messages_key": "messages"}, None)],
)
def test_sft_names_the_column_that_is_learnt(columns: dict[str, str], expected: str | None) -> None:
    """ROLL refuses a null there; rows of whole conversations are none of its rows."""
    text = yaml.safe_dump(
        {
            "model": {"path": "org/model"},
            "algorithm": {"objective": {"type": "sft"}},
            "data": {"train": [{"path": "train.jsonl", **columns}]},
            "schedule": {"total_epochs": 1},
        }
    )
    loaded, _ = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None
    values, report = written(loaded)
    assert values.get("response_key") == expected
    told = {entry.key for entry in report.accounting if entry.bucket is Bucket.UNSUPPORTED}
    assert any(key.endswith("messages_key") for key in told) is (expected is None)


DPO_TREE: dict[str, Any] = {
    "model": {"path": "org/model"},
    "data": {"train": [{"path": "a.jsonl", "prompt_key": "instruction", "prompt_type": "text"}]},
    "batch": {"prompts_per_step": 64},
    "schedule": {"total_steps": 100},
    "algorithm": {"objective": {"type": "dpo"}},
    "placement": {"devices_per_node": 8},
}


def _dpo(**schedule: Any) -> tuple[dict[str, Any], Report]:
    tree = {**DPO_TREE, "train": {"lr_scheduler": schedule}}
    said = {("train", "lr_scheduler", name): Source("file", f"schedule.{name}") for name in schedule}
    text, report = write(Loaded(config_from(tree), said), "roll", options={"carried": "none"})
    assert text is not None
    return dict(read_yaml(text, "written.yaml").values), report


def test_dpo_is_written_as_its_loaders_take_it() -> None:
    """Files as a list, a number of processes, and no more pairs for a pass of the reference than a step has for a rank."""
    values, _ = _dpo(type="constant")
    assert values["actor_train"]["data_args"]["file_name"] == ["a.jsonl"]
    assert values["actor_train"]["data_args"]["preprocessing_num_workers"] == 1
    assert values["reference"]["infer_batch_size"] == 8  # 64 pairs / 8 ranks; the policy's passes take 16


def test_dpo_is_written_without_the_packing_that_its_pipeline_refuses() -> None:
    tree = {**DPO_TREE, "train": {"engine": {"type": "megatron"}, "packing": True}}
    said = {("train", "packing"): Source("file", "use_remove_padding")}
    text, report = write(Loaded(config_from(tree), said), "roll", options={"carried": "none"})
    assert "use_sequence_packing" not in (text or "")
    told = next(item for item in report.accounting if item.key == "use_remove_padding")
    assert "DPO" in told.note


def test_the_schedule_of_rolls_dpo_is_shorter_by_the_ranks() -> None:
    _, report = _dpo(type="cosine")
    told = next(item for item in report.accounting if item.key == "schedule.type")
    assert told.bucket is Bucket.UNSUPPORTED
    assert "12 of 100 steps" in told.note
    values, report = _dpo(type="cosine", total_steps=12)
    assert next(item for item in report.accounting if item.key == "schedule.type").bucket is Bucket.MAPPED
    loaded, _ = read_document(read_yaml(yaml.safe_dump(values), "roll.yaml"), dialect="roll", environment={})
    assert loaded is not None
    assert loaded.config.train.lr_scheduler.total_steps == 12


def test_a_teacher_is_pretrain_where_a_student_names_no_model() -> None:
    loaded, report = read(STUDENT.replace(NAMED, ""))
    distillation = loaded.config.algorithm.distillation
    assert distillation is not None
    assert distillation.teacher == "org/model"
    assert "pretrain" in next(item for item in report.accounting if item.key.startswith("teacher.model")).note


def test_a_written_teacher_stays_the_teacher() -> None:
    """ROLL gives every role ``pretrain`` unless each of them names a model, the teacher's block included."""
    values, _ = written(read(STUDENT)[0])
    for role in ("student_train", "student_infer"):
        assert values[role]["model_args"]["model_name_or_path"] == "${pretrain}"
    assert values["teacher"]["model_args"]["model_name_or_path"] == "org/teacher"


def test_what_follows_from_a_strategy_is_read_of_renamed_roles_too() -> None:
    """Megatron-core offloads everything that is idle, and never decays norms and biases, whatever the role is called."""
    megatron = "{strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 1}}"
    student = read(STUDENT.replace("{strategy_name: fsdp2_train}", megatron))[0].config.train
    assert isinstance(student.engine, Megatron)
    assert (student.engine.offload, student.engine.offload_gradients) == ("both", True)
    assert not student.optimizer.decay_norms_and_biases
    assert not read(SFT)[0].config.train.optimizer.decay_norms_and_biases
    assert read(SFT.replace("megatron_train", "fsdp2_train"))[0].config.train.optimizer.decay_norms_and_biases


def test_several_teachers_come_back_by_their_names() -> None:
    block = """
teacher:
  maths:
    model_args: {model_name_or_path: org/maths}
    strategy_args: {strategy_name: megatron_infer}
    device_mapping: list(range(0,8))
    tag_included: [math]
  code:
    model_args: {model_name_or_path: org/code}
    strategy_args: {strategy_name: fsdp2_infer}
    device_mapping: list(range(0,8))
    tag_included: [code]
"""
    text = STUDENT.partition("teacher:")[0] + block.lstrip()
    values, _ = written(read(text)[0])
    assert values["teacher"] == yaml.safe_load(block)["teacher"]


def test_dpo_of_epochs_has_its_steps_where_the_rows_are_known() -> None:
    tree = {**DPO_TREE, "schedule": {"total_epochs": 2}, "train": {"lr_scheduler": {"type": "cosine"}}}
    said = {("train", "lr_scheduler", "type"): Source("file", "schedule.type")}
    for options, steps, told in (({}, 1_000_000, "dataset_rows"), ({"dataset_rows": "6400"}, 200, "25 of 200 steps")):
        text, report = write(Loaded(config_from(tree), said), "roll", options={"carried": "none", **options})
        assert text is not None
        assert read_yaml(text, "written.yaml").values["max_steps"] == steps
        assert told in next(item for item in report.accounting if item.key == "schedule.type").note


def test_distillation_clips_no_gradient_unasked() -> None:
    assert read(DISTILL)[0].config.train.optimizer.max_grad_norm is None
    assert read(DISTILL + "max_grad_norm: 1.0\n")[0].config.train.optimizer.max_grad_norm == 1.0
    assert written(read(DISTILL + "max_grad_norm: 1.0\n")[0])[0]["max_grad_norm"] == 1.0


def test_agentic_runs_become_no_run_on_the_default_data_of_verl() -> None:
    """verl trains on GSM8K if no file is named, and evaluates greedily if nothing is said."""
    there = convert(AGENTIC, to="verl", environment={})
    values = read_yaml(there.text or "", "verl.yaml").values
    assert values["data"]["train_files"] == "${oc.env:VERL_TRAIN_FILES}"
    assert values["data"]["val_files"] == "${oc.env:VERL_VAL_FILES}"
    rollout = values["actor_rollout_ref"]["rollout"]
    sampling = read(AGENTIC)[0].config.rollout.sampling
    assert rollout["val_kwargs"]["temperature"] == sampling.temperature > 0
    assert "other-environment" in {finding.code for finding in there.report.findings}
    back = convert(there.text or "", "roll", dialect="verl", environment={})
    assert "train_env_manager" in read_yaml(back.text or "", "roll.yaml").values


@pytest.mark.parametrize(("mode", "said"), [("train", "not on a file"), ("explore", "save no training data")])
def test_half_a_run_of_trinity_is_refused(mode: str, said: str) -> None:
    """ROLL would generate and train: 8 responses of 96 prompts a step, and not those of the buffer."""
    text = f"""
mode: {mode}
algorithm: {{algorithm_type: grpo, repeat_times: 8}}
model: {{model_path: org/model, max_model_len: 1024}}
cluster: {{node_num: 1, gpu_per_node: 8}}
buffer:
  batch_size: 96
  explorer_input: {{taskset: {{name: t, path: data}}, default_workflow_type: math_workflow}}
  trainer_input: {{experience_buffer: {{name: b, storage_type: sql, path: "sqlite:///a.db"}}}}
"""
    found = convert(text, to="roll", dialect="trinity", environment={})
    assert found.text is None
    assert said in found.report.errors[0].message


def test_micro_batches_of_tokens_say_what_they_cost_as_sequences() -> None:
    overrides = "data.train_files=a.parquet\nactor_rollout_ref.model.path=org/model\nalgorithm.adv_estimator=grpo\n"
    overrides += "data.max_prompt_length=2048\ndata.max_response_length=8192\n"
    overrides += (
        "actor_rollout_ref.actor.use_dynamic_bsz=true\nactor_rollout_ref.actor.ppo_max_token_len_per_gpu=30720\n"
    )
    report = convert(overrides, to="roll", dialect="verl", environment={}).report
    (found,) = [finding.message for finding in report.findings if finding.code == "micro-batches-in-sequences"]
    assert (
        "at most 3 sequences (of up to 10240 tokens), however short, where the source packs up to 30720 tokens" in found
    )


def test_a_null_that_roll_refuses_is_not_written() -> None:
    """ROLL declares these as numbers and text with null as default, and its loader refuses a null that is written."""
    text = """
rlctl: 1
model: {path: m}
algorithm: {advantage: {type: grpo, clip: null}, reward_shaping: {clip: null}}
rollout: {responses_folder: null}
"""
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl")
    assert loaded is not None, report.errors
    text_of_roll = str(translate_loaded(loaded, report, "roll").text)
    assert not re.findall(r"^(?:advantage_clip|reward_clip|rollout_dump_dir):.*", text_of_roll, re.MULTILINE)
