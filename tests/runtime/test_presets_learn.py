"""Every preset, as a user starts it, learns a task cut to the size of a CPU: to answer any question with ``#### 1``.

``sft-1node`` goes first and learns the form, and the answer half of the time; the others go on from its weights.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlctl.config import presets
from rlctl.runtime.quickstart import CHAT_TEMPLATE, SPECIAL, make_model

pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
SMALL = (
    "placement.device=cpu",
    "train.precision.compute=float32",
    "train.memory.recompute_activations=false",
    "checkpoint.every=null",
)
"""What every preset needs to run on a CPU."""
ROLLOUT = (
    "placement.devices_per_node=1",
    "rollout.engine=transformers",
    "rollout.memory.gpu_memory_utilization=null",
    "rollout.precision=float32",
    "rollout.max_response_tokens=8",
    "data.max_prompt_tokens=16",
    "batch.prompts_per_step=32",
    "train.optimizer.lr=1e-3",
    "schedule.total_epochs=null",
    "schedule.total_steps=16",
    "schedule.evaluate_every=16",
)
GSM8K = (
    "data.train=[{path: data/gsm8k/train.parquet}]",
    "data.eval=[{name: gsm8k, path: data/gsm8k/test.parquet}]",
    "rewards=[{type: rule, rule: gsm8k}]",
)
"""The presets' own data is on a hub."""
CONVERSATIONS = ("data.train=[{path: data/conversations/train.parquet, messages_key: messages}]",)
OVERLONG = ("algorithm.reward_shaping.overlong_penalty.buffer=4",)
"""Of 8 tokens."""
PAIRS = ("data.train=[{path: data/pairs/train.parquet}]",)
DAPO = (
    "rollout.parallel.tensor_parallel_size=1",
    "rollout.oversampling.generation_batch_prompts=32",
    "rollout.oversampling.max_generation_batches=null",
    "batch.mini_batch_responses=256",
    "train.lr_scheduler.warmup_steps=2",
)
GIVEN = ("batch.prompts_per_step=32", "train.optimizer.lr=3e-3")
CUTS: dict[str, tuple[str, ...]] = {
    "sft-1node": (*GIVEN, *CONVERSATIONS, "placement.devices_per_node=1", "schedule.total_epochs=4"),
    "distill-1node": (*GIVEN, *CONVERSATIONS, "placement.devices_per_node=2", "schedule.total_epochs=2"),
    "dpo-1node": (
        *GIVEN,
        *PAIRS,
        "placement.devices_per_node=2",
        "schedule.total_epochs=4",
        "algorithm.objective.beta=0.1",
    ),
    "grpo-1node": (*ROLLOUT, *GSM8K, "batch.mini_batch_responses=128"),
    "mix-1node": (*ROLLOUT, *GSM8K, "batch.mini_batch_responses=320"),
    "ppo-1node": (
        *ROLLOUT,
        *GSM8K,
        "rollout.parallel.tensor_parallel_size=1",
        "batch.prompts_per_step=128",
        "batch.mini_batch_responses=64",
        "critic.precision.compute=float32",
        "critic.optimizer.lr=1e-3",
    ),
    "grpo-qwen3-8b": (
        *ROLLOUT,
        *GSM8K,
        "rollout.parallel.tensor_parallel_size=1",
        "batch.mini_batch_responses=80",
    ),
    "dapo-qwen3-8b": (*ROLLOUT, *GSM8K, *OVERLONG, *DAPO),
    "dapo-32b-4node": (
        *ROLLOUT,
        *GSM8K,
        *OVERLONG,
        *DAPO,
        "placement.nodes=1",
        "train.engine.offload=none",
        "train.engine.ulysses_sequence_parallel_size=1",
    ),
    "lora-24gb": (*ROLLOUT, *GSM8K, "train.optimizer.lr=5e-3"),
    "async-1node": (
        *ROLLOUT,
        *GSM8K,
        *OVERLONG,
        "placement.devices_per_node=2",
        "placement.rollout_devices=1",
        "batch.mini_batch_responses=256",
        "train.lr_scheduler.warmup_steps=2",
    ),
}
"""What makes each one small, and quick to learn."""
NOT_TRIED = {
    "judge-1node": "a judge small enough for a CPU cannot compare answers",
    "moe-8node": "the model of these tests has no experts",
}
STARTS, RAY_IS_SLOW = 3, "The current node timed out during startup"
"""Ray gives its own processes 30 seconds, which a machine that is busy with other things may not keep."""


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, as Qwen's tokenizer would have it without merges."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())))}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<end>")
    wrapped.add_special_tokens({"additional_special_tokens": ["<user>", "<assistant>"]})
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def write_data(folder: Path) -> None:
    """The files that the presets name; half of the conversations are right."""
    chance = random.Random(0)

    def user(number: int) -> dict[str, str]:
        return {"role": "user", "content": f"{number}?"}

    def answer(digit: int) -> dict[str, str]:
        return {"role": "assistant", "content": f"#### {digit}"}

    def question(number: int) -> dict[str, Any]:
        truth = {"style": "rule", "ground_truth": "1"}
        return {"data_source": "openai/gsm8k", "prompt": [user(number)], "reward_model": truth}

    def write(rows: list[dict[str, Any]], path: str) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Dataset.from_list(rows).to_parquet(folder / path)

    drawn = [chance.randrange(100) for _ in range(512)]
    said = [1 if chance.random() < 0.5 else chance.randrange(2, 10) for _ in drawn]
    wrong = [chance.randrange(2, 10) for _ in drawn]
    write(
        [{"messages": [user(n), answer(digit)]} for n, digit in zip(drawn, said, strict=True)],
        "data/conversations/train.parquet",
    )
    write([{"messages": [user(n), answer(1)]} for n in drawn], "data/experts/train.parquet")
    write(
        [
            {"prompt": [user(n)], "chosen": [answer(1)], "rejected": [answer(digit)]}
            for n, digit in zip(drawn, wrong, strict=True)
        ],
        "data/pairs/train.parquet",
    )
    write([question(n) for n in drawn], "data/gsm8k/train.parquet")
    write([question(n) for n in range(10)], "data/gsm8k/test.parquet")


Launch = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Run a preset with its cuts and what else is set; returns its events."""
    folder = tmp_path_factory.mktemp("presets")
    write_data(folder)
    make_model(folder / "model", tokenizer(), seed=1)
    made: dict[str, list[dict[str, Any]]] = {}

    def once(name: str, *also: str) -> list[dict[str, Any]]:
        if name not in made:
            sets = [part for setting in (*SMALL, *CUTS[name], *also) for part in ("--set", setting)]
            command = [
                sys.executable,
                "-m",
                "rlctl",
                "launch",
                str(ROOT / "presets" / f"{name}.yaml"),
                "--quiet",
                *sets,
            ]
            for _ in range(STARTS):
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                if RAY_IS_SLOW not in done.stderr:
                    break
            assert done.returncode == 0, done.stderr[-3000:]
            made[name] = [json.loads(line) for line in (folder / "runs" / name / "events.jsonl").open()]
        return made[name]

    return once


def weights(name: str) -> str:
    return f"runs/{name}/checkpoints/main/hf"


def told(events: list[dict[str, Any]], metric: str) -> tuple[float, float]:
    """The means of a metric over the first and over the last quarter of the steps."""
    values = [event["metrics"][metric] for event in events if event["kind"] == "step"]
    part = max(len(values) // 4, 1)
    return sum(values[:part]) / part, sum(values[-part:]) / part


def test_every_preset_is_tried() -> None:
    assert set(CUTS) | set(NOT_TRIED) == {preset.name for preset in presets.names()}


def test_sft(launch: Launch) -> None:
    first, last = told(launch("sft-1node", "model.path=model"), "policy/loss")
    assert last < 0.2 * first


def test_dpo(launch: Launch) -> None:
    launch("sft-1node", "model.path=model")
    events = launch("dpo-1node", f"model.path={weights('sft-1node')}")
    assert told(events, "policy/accuracy")[1] > 0.9
    assert told(events, "policy/dpo_loss")[1] < 0.4


def test_distillation(launch: Launch) -> None:
    """The teacher knows what is right; its student sees the answers of the data set too, half of them wrong."""
    launch("sft-1node", "model.path=model")
    launch("dpo-1node", f"model.path={weights('sft-1node')}")
    events = launch("distill-1node", "model.path=model", f"algorithm.distillation.teacher={weights('dpo-1node')}")
    first, last = told(events, "policy/divergence")
    assert last < 0.3 * first


@pytest.mark.parametrize("name", sorted({*CUTS} - {"sft-1node", "dpo-1node", "distill-1node"}))
def test_learning_from_rewards(name: str, launch: Launch) -> None:
    launch("sft-1node", "model.path=model")
    events = launch(name, f"model.path={weights('sft-1node')}")
    first, last = told(events, "reward/mean")
    assert 0.2 < first < 0.8
    assert last > first + 0.15
    if name == "mix-1node":
        before, after = told(events, "policy/expert_loss")
        assert after < before
