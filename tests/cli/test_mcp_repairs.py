"""An agent with nothing but the tools of ``rlctl mcp`` repairs ten broken configs, each by what the answers say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from rlctl.cli.mcp.server import server

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "Qwen/Qwen2.5-7B-Instruct"
VERL = {
    "algorithm.adv_estimator": "grpo",
    "data.train_files": "train.jsonl",
    "data.val_files": "val.jsonl",
    "data.train_batch_size": "256",
    "data.max_prompt_length": "512",
    "data.max_response_length": "1024",
    "actor_rollout_ref.model.path": MODEL,
    "actor_rollout_ref.model.use_remove_padding": "True",
    f"{ACTOR}.ppo_mini_batch_size": "64",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "4",
    f"{ACTOR}.use_kl_loss": "True",
    f"{ACTOR}.kl_loss_coef": "0.001",
    f"{ACTOR}.ulysses_sequence_parallel_size": "1",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "4",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": "4",
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.n": "8",
    f"{ROLLOUT}.tensor_model_parallel_size": "2",
    f"{ROLLOUT}.gpu_memory_utilization": "0.5",
    "trainer.n_gpus_per_node": "8",
    "trainer.nnodes": "1",
    "trainer.total_epochs": "3",
    "trainer.save_freq": "20",
    "trainer.test_freq": "10",
    "trainer.logger": "['console']",
}
TRINITY = f"""\
project: p
name: n
mode: both
checkpoint_root_dir: ckpt
algorithm: {{algorithm_type: grpo, repeat_times: 8}}
model: {{model_path: {MODEL}, max_prompt_tokens: 512, max_response_tokens: 1024}}
cluster: {{node_num: 1, gpu_per_node: 8}}
buffer:
  batch_size: 64
  total_epochs: 1
  explorer_input:
    taskset: {{name: t, storage_type: file, path: tasks, format: {{prompt_key: question, response_key: answer}}}}
    default_workflow_type: math_workflow
  trainer_input: {{experience_buffer: {{name: sft, storage_type: file, path: tasks}}}}
explorer: {{rollout_model: {{engine_num: 8, tensor_parallel_size: 1}}}}
synchronizer: {{sync_method: nccl, sync_interval: 1}}
trainer: {{save_interval: 100}}
"""
ROLL = f"""\
exp_name: n
output_dir: ./output
checkpoint_config: {{type: file_system, output_dir: ./ckpt}}
num_gpus_per_node: 8
max_steps: 100
save_steps: 20
eval_steps: 10
rollout_batch_size: 64
prompt_length: 512
response_length: 1024
num_return_sequences_in_group: 8
adv_estimator: reinforce
norm_mean_type: group
norm_std_type: group
pretrain: {MODEL}
reward_pretrain: {MODEL}
actor_train:
  model_args: {{dtype: bf16}}
  training_args: {{learning_rate: 1.0e-6, per_device_train_batch_size: 1, gradient_accumulation_steps: 32}}
  data_args: {{template: qwen2_5, messages: messages, file_name: [roll.jsonl], domain_interleave_probs: {{math_rule: 0.5, code: 0.5}}}}
  strategy_args: {{strategy_name: fsdp2_train}}
  device_mapping: list(range(0,8))
actor_infer:
  model_args: {{dtype: bf16}}
  generating_args: {{max_new_tokens: 1024, top_p: 0.99, temperature: 0.99}}
  strategy_args: {{strategy_name: vllm, strategy_config: {{gpu_memory_utilization: 0.8}}}}
  device_mapping: list(range(0,8))
reference:
  model_args: {{dtype: bf16}}
  data_args: {{template: qwen2_5}}
  strategy_args: {{strategy_name: hf_infer}}
  device_mapping: list(range(0,8))
rewards:
  math_rule:
    worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker
    model_args: {{model_name_or_path: {MODEL}}}
    tag_included: [gsm8k]
    world_size: 8
"""
Change = tuple[str, str]


def script(**settings: str) -> str:
    """A launch script of verl with other values, by the end of the key after the last dot."""
    lines = (f"    {key}={settings.get(key.rpartition('.')[2], value)}" for key, value in VERL.items())
    return "python3 -m verl.trainer.main_ppo \\\n" + " \\\n".join(lines) + "\n"


CASES: dict[str, tuple[str, list[tuple[str, Change]]]] = {
    "batch.sh": (
        script(ppo_mini_batch_size="48", ppo_micro_batch_size_per_gpu="5"),
        [
            (
                "ppo_micro_batch_size_per_gpu to 4 or 6",
                ("actor.ppo_micro_batch_size_per_gpu=5", "actor.ppo_micro_batch_size_per_gpu=4"),
            ),
            ("ppo_mini_batch_size to 32 or 64", ("ppo_mini_batch_size=48", "ppo_mini_batch_size=64")),
        ],
    ),
    "typo.sh": (
        script().replace("rollout.n=", "rolout.n="),
        [("rename it to 'actor_rollout_ref.rollout.n'", ("rolout.n=", "rollout.n="))],
    ),
    "heads.sh": (
        script(ulysses_sequence_parallel_size="8"),
        [
            (
                "ulysses_sequence_parallel_size to 4",
                ("ulysses_sequence_parallel_size=8", "ulysses_sequence_parallel_size=4"),
            )
        ],
    ),
    "lengths.sh": (
        script(gpu_memory_utilization="0.5 actor_rollout_ref.rollout.max_model_len=1024"),
        [("max_model_len to 1536", ("max_model_len=1024", "max_model_len=1536"))],
    ),
    "column.sh": (
        script(train_files="questions.jsonl"),
        [("has no column 'reward_model.ground_truth'", ("questions.jsonl", "train.jsonl"))],
    ),
    "kl.sh": (
        script(use_kl_loss="False", kl_loss_coef="0.01"),
        [("use_kl_loss to true", ("use_kl_loss=False", "use_kl_loss=true"))],
    ),
    "entry.sh": (
        script().replace("main_ppo", "fsdp_sft_trainer"),
        [("start verl.trainer.main_ppo", ("fsdp_sft_trainer", "main_ppo"))],
    ),
    "mode.yaml": (
        TRINITY,
        [
            ("engine_num to 6 or 7", ("engine_num: 8", "engine_num: 6")),
            (
                "remove buffer.trainer_input.experience_buffer",
                ("  trainer_input: {experience_buffer: {name: sft, storage_type: file, path: tasks}}\n", ""),
            ),
        ],
    ),
    "domains.yaml": (
        ROLL,
        [("remove the domain", ("{math_rule: 0.5, code: 0.5}", "{math_rule: 1.0}"))],
    ),
}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Calls a tool of a server in a folder with data."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"What is {number} + 1?"}],
            "messages": json.dumps([{"role": "user", "content": f"What is {number} + 1?"}]),
            "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
            "ground_truth": str(number + 1),
            "tag": "gsm8k",
        }
        for number in range(600)
    ]
    for name, part in (("train", rows[:500]), ("val", rows[500:]), ("roll", rows)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    questions = [{name: row[name] for name in ("data_source", "prompt")} for row in rows[:500]]
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    Path("tasks").mkdir()
    tasks = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(500)]
    Path("tasks/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tasks))

    def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
        async def asked() -> dict[str, Any]:
            async with Client(server(tmp_path)) as client:
                return dict((await client.call_tool(tool, arguments)).structured_content or {})

        return anyio.run(asked)

    return call


def problems(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in answer["findings"] if item["level"] != "note"]


@pytest.mark.parametrize("file", CASES)
def test_a_broken_config_is_repaired_by_what_check_says(file: str, call: Callable[..., dict[str, Any]]) -> None:
    text, steps = CASES[file]
    Path(file).write_text(text)
    for words, (before, after) in steps:
        found = problems(call("check", file=file))
        told = [item for item in found if words in item["message"] or words in item.get("hint", "")]
        assert told, [(item["message"], item.get("hint")) for item in found]
        assert all(item["file"] == file and item["line"] for item in told)
        assert before in text
        text = text.replace(before, after)
        Path(file).write_text(text)
    assert problems(call("check", file=file)) == []


def test_one_that_does_not_fit_is_repaired_by_what_solve_says(call: Callable[..., dict[str, Any]]) -> None:
    broken = {"max_response_length": "16384", "ppo_micro_batch_size_per_gpu": "32", "gpu_memory_utilization": "0.95"}
    Path("memory.sh").write_text(script(**broken))
    assert "memory" in {item["code"] for item in problems(call("check", file="memory.sh", cluster="1x8:H100"))}
    quantities = ["micro-batch", "gpu_memory_utilization"]
    [solved] = call("solve", file="memory.sh", cluster="1x8:H100", quantities=quantities)["solutions"]
    settings = {key.rpartition(".")[2]: str(value) for key, value in solved["settings"].items()}
    Path("memory.sh").write_text(script(**{**broken, **settings}))
    assert problems(call("check", file="memory.sh", cluster="1x8:H100")) == []
