"""A config for eight GPUs on a machine that has none: refused with two commands, and both of them run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl import runs
from rlctl.checks import check
from rlctl.checks.placement import TOO_SMALL
from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.planning.plan import Cluster

VERL = """\
data:
  train_files: train.jsonl
  train_batch_size: 16
  max_prompt_length: 256
  max_response_length: 2048
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B-Instruct}
  actor:
    strategy: ENGINE
    ppo_mini_batch_size: 8
    use_kl_loss: true
    optim: {lr: 1e-4, lr_warmup_steps: 10}
  rollout: {name: vllm, n: 4, tensor_model_parallel_size: 2, gpu_memory_utilization: 0.6}
  ref: {strategy: ENGINE}
algorithm: {adv_estimator: grpo}
reward_model: {enable: false}
trainer: {n_gpus_per_node: 8, total_epochs: 15, logger: [console, wandb], default_local_dir: saved, save_freq: 10}
"""
TRINITY = """\
project: laptop
name: gsm8k
mode: both
algorithm: {algorithm_type: grpo, repeat_times: 4}
model: {model_path: Qwen/Qwen2.5-1.5B-Instruct, max_response_tokens: 1024, max_model_len: 2048}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  total_epochs: 1
  batch_size: 16
  explorer_input:
    taskset:
      name: openai/gsm8k
      storage_type: file
      path: train.jsonl
      format: {prompt_key: question, response_key: answer}
    default_workflow_type: math_workflow
explorer: {rollout_model: {engine_num: 2, tensor_parallel_size: 2, enforce_eager: true}}
synchronizer: {sync_method: nccl, sync_interval: 2}
trainer: {trainer_type: verl, save_interval: 100}
"""
ROLL = """\
exp_name: rlvr
seed: 42
logging_dir: ./output/logs
output_dir: ./output
max_steps: 500
save_steps: 100
logging_steps: 1
eval_steps: 10
rollout_batch_size: 16
prompt_length: 512
response_length: 1024
num_return_sequences_in_group: 4
ppo_epochs: 1
adv_estimator: grpo
use_kl_loss: true
kl_loss_coef: 0.001
pretrain: Qwen/Qwen3-8B
actor_train:
  model_args: {dtype: bf16, attn_implementation: fa2}
  training_args:
    learning_rate: 1.0e-6
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 8
    warmup_steps: 20
  data_args: {template: qwen2_5, file_name: [train.jsonl], messages: messages, domain_interleave_probs: {math_rule: 1.0}}
  strategy_args:
    strategy_name: megatron_train
    strategy_config:
      {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, use_distributed_optimizer: true, recompute_granularity: full}
  device_mapping: list(range(0,8))
  infer_batch_size: 4
actor_infer:
  model_args: {dtype: bf16}
  generating_args: {temperature: 0.99, num_return_sequences: 4}
  strategy_args: {strategy_name: vllm, strategy_config: {gpu_memory_utilization: 0.8, block_size: 16}}
  device_mapping: list(range(0,8))
reference:
  model_args: {dtype: bf16}
  strategy_args:
    strategy_name: megatron_infer
    strategy_config: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1}
  device_mapping: list(range(0,8))
  infer_batch_size: 4
rewards:
  math_rule:
    worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker
    model_args: {model_name_or_path: Qwen/Qwen3-8B}
    tag_included: [deepmath_103k]
    world_size: 8
    infer_batch_size: 1
"""
QUESTION = "Tom has {} apples and buys {} more. How many apples are there?"


def rows() -> list[dict[str, Any]]:
    """Problems with the columns of all three frameworks."""
    made = []
    for number in range(24):
        asked, answer = QUESTION.format(number, number + 1), str(2 * number + 1)
        chat = [{"role": "user", "content": asked}]
        made.append(
            {
                "data_source": "openai/gsm8k",
                "prompt": chat,
                "reward_model": {"style": "rule", "ground_truth": answer},
                "extra_info": {"index": number},
                "question": asked,
                "answer": f"#### {answer}",
                "messages": json.dumps(chat),
                "ground_truth": answer,
                "tag": "deepmath_103k",
            }
        )
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a config of each framework and the data that they name."""
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    (tmp_path / "fsdp.yaml").write_text(VERL.replace("ENGINE", "fsdp2"))
    (tmp_path / "megatron.yaml").write_text(VERL.replace("ENGINE", "megatron"))
    (tmp_path / "trinity.yaml").write_text(TRINITY)
    (tmp_path / "roll.yaml").write_text(ROLL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "local_cluster", lambda: Cluster(1, 2, "cpu", cpus_per_node=2))


def test_launch_refuses_and_names_both_commands_as_they_have_to_be_typed(
    rlctl: Any, folder: Path, two_cores: None
) -> None:
    shown = rlctl("launch", "fsdp.yaml", "trainer.total_epochs=2", "--set", "run.seed=5")
    assert shown.code == 1
    assert "asks for 1 x 8 devices" in shown.err
    assert "no GPU and 2 cores" in shown.err
    assert "  rlctl try --tiny fsdp.yaml trainer.total_epochs=2 --set run.seed=5\n" in shown.err
    assert "  rlctl launch --cpu fsdp.yaml trainer.total_epochs=2 --set run.seed=5\n" in shown.err
    assert not (folder / "saved").exists()
    assert "launch --cpu" in rlctl("try", "fsdp.yaml").err


def test_cpu_shows_every_change_and_does_not_start_without_a_yes(rlctl: Any, folder: Path, two_cores: None) -> None:
    shown = rlctl("launch", "--cpu", "fsdp.yaml")
    assert shown.code == 2
    assert "--yes" in shown.err
    for line in (
        "placement.devices_per_node: 8 -> 2,",
        "rollout.parallel.tensor_parallel_size: 2 -> 1,",
        "rollout.memory.gpu_memory_utilization: 0.6 -> null, GPU memory, which has no effect on CPU",
        "train.precision.compute: bfloat16 -> float32,",
        "unchanged: the model, the data, the rewards, the algorithm and the batch",
    ):
        assert f"{line}" in shown.err
    assert not (folder / "saved").exists()
    refused = rlctl("launch", "--cpu", "fsdp.yaml", "--address", "auto")
    assert (refused.code, "--address" in refused.err) == (2, True)


def test_changes_show_expressions_and_not_what_the_environment_holds(
    rlctl: Any, folder: Path, two_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS", "/srv/private-models")
    text = (
        (folder / "fsdp.yaml")
        .read_text()
        .replace("train_files:", "val_files: '${oc.env:MODELS}/a.jsonl'\n  train_files:")
    )
    (folder / "fsdp.yaml").write_text(text)

    def stop(*_: Any, **__: Any) -> None:
        raise RunError("nothing starts")

    monkeypatch.setattr("rlctl.runs.prepare", stop)
    shown = rlctl("try", "--tiny", "fsdp.yaml", "actor_rollout_ref.model.path=${oc.env:MODELS}/7b")
    assert "nothing starts" in shown.err
    assert "model.path: ${oc.env:MODELS}/7b -> " in shown.err
    assert "data.eval: [${oc.env:MODELS}/a.jsonl] -> []" in shown.err
    assert "private-models" not in shown.err


def test_cpu_says_that_a_model_does_not_fit_into_memory(
    rlctl: Any, folder: Path, two_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlctl.cli.scaled.memory_gib", lambda: 16.0)
    (folder / "model").mkdir()
    sizes = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
    known = {"model_type": "qwen2", "num_key_value_heads": 4, "vocab_size": 152064, **sizes}
    (folder / "model" / "config.json").write_text(json.dumps(known))
    shown = rlctl("launch", "--cpu", "fsdp.yaml", "actor_rollout_ref.model.path=model")
    assert "this machine has 16" in shown.err
    assert "a step takes about" in shown.err


def test_missing_data_is_named_with_how_to_give_it(rlctl: Any, folder: Path, two_cores: None) -> None:
    (folder / "train.jsonl").rename(folder / "elsewhere.jsonl")
    shown = rlctl("try", "--tiny", "fsdp.yaml")
    assert shown.code == 1
    assert "train.jsonl does not exist" in shown.err
    assert "  --set data.train.0.path=PATH\n" in shown.err


@pytest.mark.parametrize(
    ("placement", "cluster", "refused"),
    [
        ({"devices_per_node": 2}, Cluster(1, 2, "cpu"), False),
        ({"devices_per_node": 2}, Cluster(1, 1, "cpu"), False),  # a split layout needs two workers
        ({"devices_per_node": 3}, Cluster(1, 2, "cpu"), True),
        ({"nodes": 2, "devices_per_node": 2}, Cluster(1, 2, "cpu"), True),
        ({"devices_per_node": 8, "device": "cpu"}, Cluster(1, 8, "cuda", cpus_per_node=4), True),
        ({"devices_per_node": 8, "device": "cpu"}, Cluster(1, 1, "cuda", cpus_per_node=16), False),
        ({"devices_per_node": 8, "device": "cuda"}, Cluster(1, 8, "cpu"), True),
        ({"devices_per_node": 8}, Cluster(1, 4, "cuda"), True),
    ],
)
def test_more_devices_than_the_machine_has_are_refused(
    placement: dict[str, Any], cluster: Cluster, refused: bool
) -> None:
    config = config_from({"rlctl": 1, "model": {"path": "a/b"}, "placement": placement})
    found = [each for each in check(config, cluster=cluster) if each.code == TOO_SMALL]
    assert bool(found) == refused
    assert all("rlctl try --tiny" in each.hint and "rlctl launch --cpu" in each.hint for each in found)


def test_ray_cores_that_the_config_names_are_taken_at_their_word() -> None:
    config = {"rlctl": 1, "model": {"path": "a/b"}, "placement": {"devices_per_node": 4}}
    config["runtime"] = {"ray": {"num_cpus": 4}}
    assert not [each for each in check(config_from(config), cluster=Cluster(1, 2, "cpu")) if each.code == TOO_SMALL]


Typed = Callable[..., subprocess.CompletedProcess[str]]


ALONE = """
import sys
from rlctl.__main__ import main
from rlctl.runs import tiny
from tests.runtime.local import without_ray
tiny.WORKERS = 1
with without_ray():
    sys.exit(main())
"""
"""The command with one worker of each role, all in its own process."""


@pytest.fixture
def typed(folder: Path) -> Typed:
    def run(*words: str, alone: bool = False) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        command = [sys.executable, *(["-c", ALONE] if alone else ["-m", "rlctl"]), *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=800, check=False, cwd=folder, env=environment
        )

    return run


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["fsdp", "trinity", pytest.param("roll", marks=pytest.mark.ray)])
def test_tiny_runs_real_steps_of_the_algorithm_with_a_random_model(typed: Typed, name: str) -> None:
    """Two workers of one framework's config meet through Ray; what is made of the others' does not depend on it."""
    given = ["--set", "rewards=[{type: rule, rule: gsm8k}]"] if name == "trinity" else []
    done = typed("try", "--tiny", f"{name}.yaml", "--json", *given, alone=name != "roll")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "built one with" in done.stderr
    assert f"a random {'qwen3' if name == 'roll' else 'qwen2'} of" in done.stderr
    result = json.loads(done.stdout)
    metrics = result["metrics"]["main"]
    assert metrics["policy/grad_norm"] >= 0
    assert result["steps"] == {"main": 2}
    sample = result["samples"][0]
    assert "apples" in str(sample["prompt"])
    assert len(sample["responses"]) == len(sample["rewards"]) == 4


@pytest.mark.ray
@pytest.mark.timeout(900)
def test_cpu_runs_the_config_scaled_down(typed: Typed, folder: Path, tmp_path: Path) -> None:
    """With a small model on disk, as a full-size one would take days."""
    from rlctl.runtime.models import tiny as maker

    architecture, _ = maker.architecture_of("Qwen/Qwen2.5-7B", trust_remote_code=False)
    maker.write_tiny(folder / "model", architecture, maker.made_tokenizer(maker.texts_in(rows())), seed=1)
    short = ["data.max_response_length=8", "trainer.total_training_steps=1", "trainer.logger=[console]"]
    short.append("actor_rollout_ref.actor.optim.lr_warmup_steps=0")
    done = typed("launch", "--cpu", "--yes", "megatron.yaml", "actor_rollout_ref.model.path=model", *short)
    assert done.returncode == 0, done.stderr[-3000:]
    run = next(folder.glob("*/*-cpu/run.json")).parent
    plan = json.loads((run / "plan.json").read_text())
    assert (plan["device"], plan["devices_per_node"]) == ("cpu", 2)
    batch = plan["stages"][0]["batch"]
    assert (batch["prompts_per_step"], batch["responses_per_step"], batch["mini_batch_responses"]) == (16, 64, 32)
