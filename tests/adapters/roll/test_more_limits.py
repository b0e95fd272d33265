"""Environments, classes, model folders, rows and runs to continue that ROLL refuses, each on a run that is otherwise accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.documents import read_yaml

from .test_value_limits import AGENTIC, DPO, RLVR, _over

SOKOBAN = "custom_envs: {A: {env_type: sokoban, env_config: %s}}"
SHOP = "{custom_envs: {A: {env_type: webshop}}, train_env_manager: %s, val_env_manager: {max_env_num_per_worker: 1}}"
ROCK = "custom_envs: {A: {env_type: rock_tb_native_env, env_config: %s}}"
TOOL = "custom_envs: {A: {env_type: sokoban, tool_wrapper: {tool_configs: [%s]}}}"
DISTILL = """
sequence_length: 1024
num_gpus_per_node: 8
student_pretrain: org/student
teacher_pretrain: org/teacher
student:
  training_args: {per_device_train_batch_size: 2, gradient_accumulation_steps: 1, lr_scheduler_type: constant}
  data_args: {file_name: [a.jsonl]}
  strategy_args: {strategy_name: megatron_train, strategy_config: {tensor_model_parallel_size: 1}}
  device_mapping: list(range(0,4))
teacher:
  training_args: {per_device_train_batch_size: 2}
  strategy_args: {strategy_name: megatron_infer, strategy_config: {tensor_model_parallel_size: 1}}
  device_mapping: list(range(4,8))
"""
TRAIN = "actor_train: {strategy_args: {strategy_config: %s}}"
FSDP2 = "actor_train: {strategy_args: {strategy_name: fsdp2_train, strategy_config: %s}}"
JUDGE = (
    "rewards: {judge: {worker_cls: roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker, "
    "judge_model_type: inference, strategy_args: {strategy_name: megatron_infer}}}"
)

DRAWN = "validation: {data_args: {file_name: [a.jsonl]}, generating_args: {temperature: %s, num_return_sequences: %s}}"


def _told(base: str, change: Any, program: str = "") -> list[tuple[str, str]]:
    requirements = requirements_of("roll")
    assert requirements is not None
    text = yaml.safe_dump(_over(yaml.safe_load(base), yaml.safe_load(change) if isinstance(change, str) else change))
    document = read_yaml(text, "run.yaml")
    found = refused(requirements, dialect("roll"), document, release="2026.8", environment={}, program=program)
    return [(row.key, message) for row, message in found]


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        (AGENTIC, SOKOBAN % "{render_mode: human}", "A.env_config.render_mode is human"),
        (AGENTIC, SOKOBAN % "{dim_room: [4, 4], num_boxes: 3}", "at most 4 places"),
        (AGENTIC, SOKOBAN.replace("sokoban", "openreward_env") % "{reward_reduction: last}", "is last; expected sum"),
        (AGENTIC, ROCK % "{agent_config: {agent_type: aider}}", "agent_type is aider"),
        (AGENTIC, ROCK % "{agent_config: {}}", "agent_type is null"),
        (AGENTIC, ROCK % "{train_idx_range: 7}", "train_idx_range is 7"),
        (AGENTIC, ROCK % "{val_idx_range: '(1'}", "val_idx_range is (1"),
        (AGENTIC, ROCK % "{val_idx_range: 'list(range(0,8))'}", ""),
        (AGENTIC, ROCK % "{val_idx_range: [0, 8]}", ""),
        (
            AGENTIC,
            "custom_envs: {A: {agent_runner_cls: roll.pipeline.agentic.agent_runner.rock.PushModeRunner, env_config: {}}}",
            "dataset_name is null",
        ),
        (
            AGENTIC,
            SHOP % "{max_env_num_per_worker: 8}",
            "a worker of train_env_manager runs several environments of WebShop",
        ),
        (AGENTIC, SHOP % "{}", "max_env_num_per_worker has to be 1"),
        (AGENTIC, SHOP % "{max_env_num_per_worker: 1}", ""),
        (AGENTIC, SHOP % "{tags: []}", ""),
        (AGENTIC, TOOL % "{tool_id: bash, tool_args: {}}", "has the tool bash"),
        (AGENTIC, TOOL % "{tool_id: mcp, tool_args: {}}", "has no server_url"),
        (AGENTIC, TOOL % "{tool_id: python_code, tool_args: {}}", ""),
        (AGENTIC, "train_env_manager: {llm_proxy: {proxy_type: vllm}}", "llm_proxy.proxy_type is vllm"),
        (
            AGENTIC,
            "custom_envs: {A: {env_manager_cls: roll.pipeline.agentic.env_manager.traj_env_manager.TrajManager}}",
            "has no class TrajManager",
        ),
        (
            AGENTIC,
            "train_env_manager: {group_filter_cls: roll.pipeline.agentic.agentic_pipeline.GroupFilter}",
            "",
        ),
        (AGENTIC, "train_env_manager: {group_filter_cls: GroupFilter}", "is not a class path"),
        (AGENTIC, "actor_train: {device_mapping: '[]'}", "actor_train.device_mapping names no GPU"),
        (AGENTIC, SOKOBAN.replace("A:", "B: {env_type: sokoban}, A:") % "{num_boxes: 2}", ""),
        (RLVR, JUDGE, "the judge judge is to run on Megatron"),
        (
            RLVR,
            "actor_train: {use_dynamic_batching_in_train: true, max_tokens_per_microbatch_in_train: 8192, strategy_args: "
            "{strategy_config: {pipeline_model_parallel_size: 4, virtual_pipeline_model_parallel_size: 2}}}\n"
            "rollout_batch_size: 2\nnum_return_sequences_in_group: 2",
            "fewer than its 4 pipeline stages",
        ),
        (
            RLVR,
            "actor_train: {use_dynamic_batching_in_train: true, max_tokens_per_microbatch_in_train: 8192, strategy_args: "
            "{strategy_config: {pipeline_model_parallel_size: 8, virtual_pipeline_model_parallel_size: 2}}}\n"
            "rollout_batch_size: 5\nnum_return_sequences_in_group: 2",
            "which its 8 pipeline stages do not divide",
        ),
        (
            RLVR,
            TRAIN % "{pipeline_model_parallel_size: 2, pipeline_model_parallel_layout: 'Et*3|t*3|tL'}",
            "has 3 stages",
        ),
        (RLVR, TRAIN % "{pipeline_model_parallel_size: 2, pipeline_model_parallel_layout: 'E(tt|)*3L'}", ""),
        (RLVR, TRAIN % "{additional_configs: /none.json}", "is not a JSON file on this machine"),
        (RLVR, FSDP2 % "{fsdp_size: 8, param_dtype: bfloat}", "param_dtype is bfloat"),
        (RLVR, FSDP2 % "{fsdp_size: 8, apply_tiled_mlp: true, model_type: qwen2_vl}", "model_type is qwen2_vl"),
        (
            DPO,
            "validation: {data_args: {file_name: [a.jsonl]}}\nactor_train: {infer_batch_size: 1}\n"
            "reference: {infer_batch_size: 4}",
            "",
        ),
        (
            DPO,
            "validation: {data_args: {file_name: [a.jsonl]}}\nreference: {infer_batch_size: 4}\n"
            "actor_train: {infer_batch_size: 1, training_args: {gradient_accumulation_steps: 1, per_device_train_batch_size: 4}}",
            "more than the 8 of a step of validation",
        ),
        (DISTILL, "teacher: {training_args: {per_device_train_batch_size: 4}}", "but a rank gets 2 of a step"),
        (DISTILL, "logits_transfer_backend: nccl-only", ""),
        (
            DISTILL,
            "logits_transfer_backend: nccl-only\nteacher: {device_mapping: 'list(range(0,1))'}\n"
            "student: {device_mapping: 'list(range(0,1))'}",
            "share GPUs so that logits would stay on one",
        ),
        (RLVR, DRAWN % (0, 4), "responses to a prompt are the same"),
        (RLVR, DRAWN % (0, 1), ""),
        (RLVR, DRAWN % (0.6, 4), ""),
    ],
)
def test_what_a_pipeline_refuses(base: str, change: str, words: str) -> None:
    told = _told(base, change)
    assert any(words in message for _, message in told) if words else told == []


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("{}", "actor_infer.strategy_args.strategy_config.load_format"),
        (
            "actor_infer: {strategy_args: {strategy_config: {load_format: auto, sleep_level: 2}}}",
            "actor_infer.strategy_args.strategy_config.sleep_level",
        ),
        ("actor_infer: {strategy_args: {strategy_config: {load_format: auto}}}", "validation"),
        (
            "actor_infer: {strategy_args: {strategy_config: {load_format: auto}}}\n"
            "validation: {data_args: {file_name: [a.jsonl]}}",
            "",
        ),
    ],
)
def test_the_pipeline_that_only_answers(change: str, key: str) -> None:
    told = [name for name, _ in _told(RLVR, change, program="examples/start_rlvr_rollout_pipeline.py")]
    assert key in told if key else told == []
    assert key not in [name for name, _ in _told(RLVR, change)]


VISION = {
    "model_type": "qwen3_vl",
    "text_config": {"num_hidden_layers": 4, "rope_scaling": {"mrope_section": [1, 1, 1]}},
}


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        (VISION, "{}", ""),
        ({**VISION, "text_config": {"num_hidden_layers": 4}}, "{}", "has no mrope_section"),
        (VISION, TRAIN % "{pipeline_model_parallel_size: 2}", "has 2 layers"),
        ({"model_type": "deepseek_v3", "rope_scaling": {"type": "linear"}}, "{}", "are scaled by linear"),
        ({"model_type": "deepseek_v3", "rope_scaling": {"type": "yarn"}}, "{}", ""),
        (
            {"model_type": "glm4_moe", "num_hidden_layers": 2, "first_k_dense_replace": 2},
            "{}",
            "is 2; expected less than",
        ),
        (
            {"model_type": "qwen2_vl"},
            TRAIN % "{additional_configs: {hidden_dropout: 0.1}}",
            "hidden_dropout is above 0",
        ),
        ({"model_type": "qwen3_next"}, TRAIN % "{transformer_impl: local}", "need transformer_engine"),
        (
            {
                "model_type": "qwen2",
                "num_hidden_layers": 1,
                "hidden_size": 60,
                "intermediate_size": 60,
                "vocab_size": 60,
                "num_attention_heads": 6,
                "num_key_value_heads": 4,
            },
            "{}",
            "are not divisible by its key-value heads",
        ),
    ],
)
def test_models_of_megatron(tmp_path: Path, model: dict[str, Any], change: str, words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(model))
    told = _told(RLVR, {**yaml.safe_load(change), "pretrain": str(tmp_path)})
    assert any(words in message for _, message in told) if words else told == []


@pytest.mark.parametrize(("text", "words"), [("1", ""), ("release", ""), ("none", "holds none"), (None, "has neither")])
def test_a_run_to_continue_has_weights(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    told = _told(RLVR, {"resume_from_checkpoint": str(tmp_path)})
    assert any(words in message for _, message in told) if words else told == []


USER = {"role": "user", "content": "1 + 1?"}


@pytest.mark.parametrize(
    ("row", "change", "words"),
    [
        ({"messages": [USER]}, "actor_train: {data_args: {template: base}}", ""),
        ({"messages": [USER, USER]}, "actor_train: {data_args: {template: base}}", "row 1 has other messages"),
        ({"messages": json.dumps([USER])}, "{}", ""),
        ({"messages": "1 + 1?"}, "{}", "row 1 holds text that is not JSON"),
        ({"prompt": "1"}, "actor_train: {data_args: {image_max_pixels: 9}}", "has no column tag"),
        (
            {"prompt": "1", "tag": "code"},
            "actor_train: {data_args: {image_max_pixels: 9, domain_interleave_probs: {math: 1.0}}}",
            "is of the domain math",
        ),
        (
            {"messages": [USER], "id": "1"},
            "rewards: {math: {worker_cls: roll.pipeline.rlvr.rewards.remote_reward_system_worker.RemoteRewardSystemWorker}}",
            "the remote reward of the domain math needs one",
        ),
    ],
)
def test_rows_of_training(tmp_path: Path, row: dict[str, Any], change: str, words: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        "\n".join([json.dumps({"ground_truth": "2", **row} if not words.startswith("the remote") else row)] * 9)
    )
    data = _over(yaml.safe_load(RLVR), yaml.safe_load(change))
    data["actor_train"]["data_args"]["file_name"] = [str(file)]
    told = [message for _, message in _told(yaml.safe_dump(data), "{}")]
    assert any(words in message for message in told) if words else told == []


@pytest.mark.parametrize(("tag", "named"), [("aime", True), ("geometry", False)])
def test_rows_of_the_evaluation_have_a_reward(tmp_path: Path, tag: str, named: bool) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps({"tag": tag, "prompt": "1 + 1?", "ground_truth": "2"}))
    change = {
        "rewards": {"math": {"tag_included": ["geometry"]}},
        "validation": {"data_args": {"file_name": [str(file)]}},
    }
    told = [key for key, message in _told(RLVR, change) if f"the tag {tag}" in message]
    assert told == ["validation.data_args.file_name"] * named


def test_classes_of_the_user_are_looked_up_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "filters.py").write_text(
        "try:\n    from ray import remote as Other\nexcept ImportError:\n    Other = None\nclass Mine: ...\n"
    )
    for name, words in (
        ("filters.Mine", ""),
        ("filters.Other", ""),
        ("filters.Yours", "defines no Yours"),
        ("else.Yours", ""),
    ):
        told = _told(AGENTIC, {"train_env_manager": {"group_filter_cls": name}})
        assert any(words in message for _, message in told) if words else told == []
