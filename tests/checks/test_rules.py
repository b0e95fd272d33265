"""Every check has a config that provokes it and says where and what to do; a good config provokes none."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlctl.checks import CODES, check, codes_page
from rlctl.checks.batch import _divisors_near
from rlctl.common.report import Finding, Level
from rlctl.config import config_from, load
from rlctl.documents import read_yaml
from rlctl.planning.arithmetic import Cluster

ROOT = Path(__file__).parents[2]
H100 = Cluster(1, 8, "cuda", gpu="NVIDIA H100 80GB HBM3")


@pytest.fixture
def good(tmp_path: Path) -> dict[str, Any]:
    """A config without findings: model and data are here, and everything divides."""
    shape = {
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    (tmp_path / "model").mkdir()
    model = {"model_type": "llama", "max_position_embeddings": 2048, **shape}
    (tmp_path / "model" / "config.json").write_text(json.dumps(model))
    (tmp_path / "train.parquet").touch()
    return {
        "model": {"path": str(tmp_path / "model")},
        "data": {"train": [{"path": str(tmp_path / "train.parquet")}]},
        "batch": {"prompts_per_step": 64, "responses_per_prompt": 8, "mini_batch_responses": 256},
        "schedule": {"total_steps": 10},
        "rollout": {"engine": "transformers"},
    }


def over(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(dict(base))
    for key, value in change.items():
        nested = isinstance(value, dict) and isinstance(merged.get(key), dict) and "type" not in value
        merged[key] = over(merged[key], value) if nested else value
    return merged


def found(base: Mapping[str, Any], change: Mapping[str, Any], **arguments: Any) -> list[Finding]:
    return check(config_from(over(base, change)), **arguments)


def test_weights_may_travel_through_checkpoints_where_runs_are_apart(good: dict[str, Any]) -> None:
    apart = {
        "run": {"mode": "rollout_only"},
        "buffer": {"type": "sql"},
        "weight_sync": {"method": "checkpoint", "every": 2},
    }
    assert found(good, apart, cluster=H100, symbolic=()) == []


def test_a_good_config_has_no_findings(good: dict[str, Any]) -> None:
    assert found(good, {}, cluster=H100, symbolic=()) == []


MOVED = {"batch": {"mini_batch_responses": None}}
EXPLICIT = {"layout": "explicit", "roles": {"policy": {"devices": [0, 9]}, "rollout": {"devices": [1]}, "pilot": {}}}
DRAINS = {"run": {"mode": "train_only"}, "buffer": {"type": "sql", "url": "sqlite:///b.db"}}
STALE = {"algorithm": {"sample_strategy": "staleness_control", "sample_strategy_args": {"max_staleness": 2}}}
TEACHER = {"distillation": {"teacher": "org/teacher", "coefficient": 0.5, "args": {"with_rewards": False}}}
PROVOKED: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "not-supported",
        {**DRAINS, "weight_sync": {"max_staleness": 1, "on_stale": "wait"}},
        "weight_sync.on_stale",
        "waits for nobody",
    ),
    ("not-supported", {**DRAINS, "checkpoint": {"every": {"epochs": 1}}}, "checkpoint.every", "reads no training data"),
    (
        "not-used",
        {"runtime": {"ray": {"address": "auto", "num_cpus": 4}}},
        "runtime.ray.num_cpus",
        "runs already",
    ),
    ("not-used", {**DRAINS, "schedule": {"total_epochs": 2}}, "schedule.total_epochs", "ends with its buffer"),
    (
        "not-supported",
        {"data": {"train": [{"path": "org/data", "sampling": {"temperature": 0.5}}]}},
        "data.train[0].sampling.temperature",
        "one temperature for all responses, 1",
    ),
    *[
        ("not-used", {"algorithm": change}, f"algorithm.{key}", words)
        for key, change, words in (
            (
                "rollout_correction.use_policy_gradient",
                {"rollout_correction": {"use_policy_gradient": True}},
                "policy_loss",
            ),
            (
                "rollout_correction.importance_sampling.level",
                {"rollout_correction": {"importance_sampling": {"level": "token"}}, "old_log_probs": "rollout"},
                "already",
            ),
            ("distillation.coefficient", TEACHER, "alone is the loss"),
            ("entropy_coefficient", {**TEACHER, "entropy_coefficient": 0.1}, "alone is the loss"),
            (
                "objective.label_smoothing",
                {"objective": {"type": "dpo", "ipo": True, "label_smoothing": 0.1}},
                "no labels",
            ),
            ("objective.mu", {"objective": {"type": "mix", "mu": 0.3, "args": {"mu_peak": 0.5}}}, "how the weight"),
            ("kl_in_loss", {**TEACHER, "kl_in_loss": {"estimator": "k3"}}, "alone is the loss"),
        )
    ],
    *[
        ("not-used", {"reference": {key: value}, **kl}, f"reference.{key}", words)
        for key, value, kl, words in (
            (
                "engine",
                {"type": "fsdp2", "fsdp_size": 2},
                {"algorithm": {"kl_in_loss": {"estimator": "full"}}},
                "own workers",
            ),
            ("micro_batch", {"size": 8}, {"algorithm": {"kl_in_loss": {"estimator": "full"}}}, "by micro-batch"),
            ("precision", {}, {"model": {"lora": {}}, "algorithm": {"kl_in_loss": {}}}, "own workers"),
            ("compile", False, {"model": {"lora": {}}, "algorithm": {"kl_in_loss": {}}}, "own workers"),
        )
    ],
    *[
        (
            "not-used",
            {
                "run": {"mode": "rollout_only"},
                "rollout": {"responses_folder": "out", **rollout},
                "algorithm": algorithm,
            },
            key,
            "answered once",
        )
        for key, rollout, algorithm in (
            ("algorithm.filters", {}, {"filters": ["zero_variance_groups"]}),
            ("rollout.timeouts.response", {"timeouts": {"response": 9.0}}, {}),
            ("rollout.oversampling.ratio", {"oversampling": {"ratio": 0.1}}, {}),
        )
    ],
    ("not-supported", {"run": {"mode": "train_only"}}, "buffer.type", "ends with the run that fills it"),
    (
        "not-supported",
        {"run": {"mode": "train_only"}, "buffer": {"type": "sql"}},
        "buffer.url",
        "which buffer to train on",
    ),
    (
        "not-supported",
        {"run": {"mode": "train_only"}, "buffer": {"type": "file"}},
        "buffer.path",
        "which buffer to train on",
    ),
    (
        "not-used",
        {"run": {"mode": "rollout_only"}, "buffer": {"type": "sql"}, "weight_sync": {"method": "nccl"}},
        "weight_sync.method",
        "through a folder where runs explore and train apart",
    ),
    (
        "not-supported",
        {"run": {"mode": "rollout_only"}, "buffer": {"type": "sql"}, "weight_sync": {"max_steps_ahead": 1.0}},
        "weight_sync.max_steps_ahead",
        "for rollout and training in one run",
    ),
    (
        "not-supported",
        {"buffer": {"type": "memory", "capacity": 64, "replay": {"enabled": True}}},
        "buffer.capacity",
        "a step takes 512 responses",
    ),
    ("no-reward", {"run": {"mode": "rollout_only"}, "buffer": {"type": "sql"}, "rewards": []}, "rewards", "no reward"),
    (
        "not-supported",
        {"algorithm": {"sample_strategy": "staleness_control", "sample_strategy_args": {"most": 1}}},
        "algorithm.sample_strategy_args",
        "has most; expected max_staleness",
    ),
    ("no-model", {"model": {"path": ""}}, "model.path", "not set"),
    ("no-data", {"data": {"train": []}}, "data.train", "empty"),
    ("no-data", {"run": {"mode": "evaluate_only"}}, "data.eval", "only evaluates"),
    ("no-data", {"data": {"train": [{}]}}, "data.train[0].path", "no path"),
    ("no-reward", {"rewards": []}, "rewards", "no reward"),
    ("reward-names", {"rewards": ["rule", "rule"]}, "rewards", "2 rewards are called 'reward'"),
    (
        "judge-model",
        {"rewards": [{"type": "judge", "base_url": "http://a/v1"}]},
        "rewards[0].model",
        "the judge 'reward' has no model",
    ),
    ("no-end", {"schedule": {"total_steps": None}}, "schedule", "no end"),
    (
        "mini-batch-too-large",
        {"batch": {"mini_batch_responses": 1024}},
        "batch.mini_batch_responses",
        "64 prompts x 8 = 512",
    ),
    ("mini-batch-uneven", {"batch": {"mini_batch_responses": 200}}, "batch.mini_batch_responses", r"2 x 200 \+ 112"),
    (
        "idle-replicas",
        {"batch": {"mini_batch_responses": 4}},
        "batch.mini_batch_responses",
        "4 of them compute nothing",
    ),
    (
        "replicas-uneven",
        {"batch": {"prompts_per_step": 25, "mini_batch_responses": 100}},
        "batch.mini_batch_responses",
        "100 responses on 8 replicas is 12.5 each",
    ),
    (
        "sequence-over-micro",
        {"batch": {"micro_batch": {"size": 1000}}},
        "batch.micro_batch.size",
        "up to 1024 tokens",
    ),
    ("context-too-short", {"model": {"max_context_tokens": 1000}}, "model.max_context_tokens", "512 .* = 1024"),
    ("model-positions", {"rollout": {"max_response_tokens": 4000}}, "rollout.max_response_tokens", "2048 positions"),
    (
        "response-bounds",
        {"rollout": {"sampling": {"min_response_tokens": 600}}},
        "rollout.sampling.min_response_tokens",
        "at least 600",
    ),
    (
        "devices-not-divisible",
        {"train": {"engine": {"type": "fsdp2", "ulysses_sequence_parallel_size": 3}}},
        "train.engine.ulysses_sequence_parallel_size",
        "replicas of 3 devices",
    ),
    (
        "devices-not-divisible",
        {"rollout": {"engine": "vllm", "parallel": {"tensor_parallel_size": 3}}},
        "rollout.parallel",
        "engines of 3 devices",
    ),
    (
        "engine-over-node",
        {"rollout": {"engine": "vllm", "parallel": {"tensor_parallel_size": 16}}, "placement": {"nodes": 2}},
        "rollout.parallel.tensor_parallel_size",
        "16 devices on nodes of 8",
    ),
    (
        "tensor-over-node",
        {"train": {"engine": {"type": "megatron", "tensor_parallel_size": 16}}, "placement": {"nodes": 2}},
        "train.engine.tensor_parallel_size",
        "16 devices on nodes of 8",
    ),
    (
        "devices-not-divisible",
        {
            "train": {
                "engine": {
                    "type": "megatron",
                    "tensor_parallel_size": 2,
                    "pipeline_parallel_size": 2,
                    "context_parallel_size": 4,
                }
            }
        },
        "train.engine.context_parallel_size",
        r"tensor 2 \* pipeline 2 \* context 4 = 16; 8 / 16 = 0.5",
    ),
    (
        "devices-not-divisible",
        {
            "critic": {"engine": {"type": "megatron", "tensor_parallel_size": 3}},
            "algorithm": {"advantage": "gae"},
        },
        "critic.engine.tensor_parallel_size",
        "8 devices of the critic",
    ),
    *[
        ("not-used", {"train": {"engine": {"type": "megatron", **engine}, "memory": memory}}, f"train.{key}", words)
        for key, engine, memory, words in (
            ("memory.remove_padding", {}, {"remove_padding": False}, "without padding"),
            ("memory.recompute_reentrant", {}, {"recompute_reentrant": True}, "as train.engine.recompute_granularity"),
            ("memory.recompute_activations", {}, {"recompute_activations": False}, "by itself nothing"),
            ("engine.transformer.attention_backend", {"transformer": {"attention_backend": "flash"}}, {}, "fastest"),
        )
    ],
    (
        "pipeline-idle",
        {
            "train": {"engine": {"type": "megatron", "pipeline_parallel_size": 4}},
            "batch": {"micro_batch": {"unit": "responses", "size": 64}},
        },
        "train.engine.pipeline_parallel_size",
        r"256 / 2 replicas = 128 responses, in 2 micro-batches for 4 stages: .* 3 / 5 = 60%",
    ),
    *[
        ("megatron-layout", {"train": {"engine": {"type": "megatron", **engine}}}, f"train.engine.{key}", words)
        for key, engine, words in (
            ("tensor_parallel_size", {"tensor_parallel_size": 8}, "policy: 4 heads do not divide by tensor 8"),
            (
                "context_parallel_size",
                {"tensor_parallel_size": 4, "context_parallel_size": 2},
                "4 heads / tensor 4 = 1, .* context 2",
            ),
            ("pipeline_parallel_size", {"pipeline_parallel_size": 8}, "4 layers do not divide by pipeline 8"),
            (
                "virtual_pipeline_parallel_size",
                {"pipeline_parallel_size": 2, "virtual_pipeline_parallel_size": 4},
                "pipeline 2 . virtual_pipeline 4 = 8",
            ),
            (
                "virtual_pipeline_parallel_size",
                {"virtual_pipeline_parallel_size": 2},
                "2 chunks of layers .* one stage",
            ),
            ("expert_parallel_size", {"expert_parallel_size": 8}, "8 devices, and the model has none"),
            (
                "expert_parallel_size",
                {"expert_parallel_size": 3},
                r"expert 3 \* expert_tensor 1 \* pipeline 1 = 3, .* 8 devices",
            ),
            ("moe.dispatcher", {"pipeline_parallel_size": 2, "moe": {"dispatcher": "allgather"}}, "one length"),
            ("overlap_parameter_gather", {"overlap_parameter_gather": True}, "gradients are reduced"),
            (
                "moe.layer_recompute",
                {"moe": {"layer_recompute": True}, "recompute_granularity": "full"},
                "whole layers",
            ),
        )
    ],
    *[
        ("not-supported", {"train": {"engine": {"type": "megatron", **engine}}}, f"train.engine.{key}", words)
        for key, engine, words in (
            ("transformer", {"transformer": {"num_layer": 3}}, "TransformerConfig has no num_layer"),
            ("transformer", {"transformer": {"moe_z_loss_coeff": "big"}}, "is 'big'; .* Optional.float."),
            ("transformer", {"transformer": {"recompute_method": "block"}}, "a key of its own"),
            ("ddp", {"ddp": {"bucket_sise": 3}}, "DistributedDataParallelConfig has no bucket_sise"),
            ("optimizer_overrides", {"optimizer_overrides": {"adam_eps": True}}, "takes float"),
            ("optimizer_overrides", {"optimizer_overrides": {"clip_grad": 0.5}}, "a key of its own"),
            ("optimizer_overrides", {"optimizer_overrides": {"decoupled_lr": 0.1}}, "the engine needs None"),
        )
    ],
    *[
        ("not-supported", over({"train": {"engine": {"type": "megatron"}}}, change), key, words)
        for key, change, words in (
            ("model.lora", {"model": {"lora": {}}}, "Transformers models only"),
            ("model.modality", {"model": {"modality": "vision"}}, "read text"),
            ("model.attention", {"model": {"attention": "sdpa"}}, "laid end to end"),
            ("train.precision.parameters", {"train": {"precision": {"parameters": "bfloat16"}}}, "in float32"),
            ("train.precision.reduce", {"train": {"precision": {"reduce": "float16"}}}, "reduces gradients"),
            ("train.memory.offload_activations", {"train": {"memory": {"offload_activations": True}}}, "stay"),
            ("train.fused_kernels.liger", {"train": {"fused_kernels": {"liger": True}}}, "Transformers models"),
            (
                "algorithm.kl_in_loss.estimator",
                {"algorithm": {"kl_in_loss": {"coefficient": 0.1, "estimator": "full"}}},
                "part of the vocabulary",
            ),
            (
                "algorithm.distillation",
                {"algorithm": {"distillation": {"teacher": "org/t", "loss": "forward_kl"}}},
                "part of the vocabulary",
            ),
            ("model.freeze", {"model": {"freeze": ["*"]}}, "nothing else"),
            (
                "train.lr_scheduler.type",
                {"train": {"lr_scheduler": {"type": "inverse_sqrt"}}},
                "over 10,000 ticks",
            ),
            ("train.optimizer.module", {"train": {"optimizer": {"module": "torchao.optim"}}}, "Megatron-core"),
        )
    ],
    (
        "role-devices",
        {"placement": {"layout": "split", "rollout_devices": 8}},
        "placement.rollout_devices",
        "training has none",
    ),
    ("role-devices", {"placement": EXPLICIT}, "placement.roles.policy.devices", "devices 0 to 7"),
    ("role-devices", {"placement": EXPLICIT}, "placement.roles.pilot", "no role 'pilot'"),
    (
        "role-variables",
        {"runtime": {"role_env_vars": {"actor": {"A": "1"}}}},
        "runtime.role_env_vars.actor",
        "no role 'actor'",
    ),
    ("cluster-too-small", {"placement": {"nodes": 2}}, "placement", "has 1 x 8"),
    (
        "staleness",
        {"weight_sync": {"max_steps_ahead": 2, "max_staleness": 1}},
        "weight_sync.max_staleness",
        "up to 2 synchronisations old",
    ),
    (
        "buffer-too-small",
        {"weight_sync": {"max_steps_ahead": 1}, "buffer": {"type": "memory", "capacity": 8}},
        "buffer.capacity",
        "room for 8 responses",
    ),
    ("buffer-too-small", {"buffer": {"type": "sql", "capacity": 8}}, "buffer.capacity", "room for 8 responses"),
    (
        "staleness",
        {**STALE, "weight_sync": {"every": 4}},
        "algorithm.sample_strategy_args",
        "up to 3 versions old",
    ),
    ("over-rollout", {"rollout": {"oversampling": {"ratio": 1.0}}}, "rollout.oversampling.ratio", "ratio is 1"),
    (
        "difficulty-ahead",
        {"weight_sync": {"max_steps_ahead": 1}, "data": {"curriculum": {"order": "difficulty"}}},
        "data.curriculum.order",
        "begun before that is known",
    ),
    (
        "group-of-one",
        {"batch": {"responses_per_prompt": 1, **MOVED["batch"]}},
        "batch.responses_per_prompt",
        "reward itself",
    ),
    (
        "old-pass-left-out",
        {"algorithm": {"advantage": {"type": "other", "kind": "clipv"}, "old_log_probs": "rollout"}},
        "algorithm.old_log_probs",
        "clipv reads what the pass",
    ),
    ("gae-without-critic", {"algorithm": {"advantage": "gae"}}, "algorithm.advantage", "critic is null"),
    ("critic-unused", {"critic": {}}, "critic", "grpo asks no critic"),
    (
        "warmup-without-critic",
        {"schedule": {"critic_warmup_steps": 5}},
        "schedule.critic_warmup_steps",
        "first 5 steps train the critic only",
    ),
    (
        "kl-off",
        {"algorithm": {"kl_in_loss": {"coefficient": 0.0}}},
        "algorithm.kl_in_loss.coefficient",
        "the KL has no effect",
    ),
    *[
        ("updates-rounded-away", change, f"{role}.precision.parameters", "most weights never move")
        for role, change in (
            ("train", {"train": {"precision": {"parameters": "bfloat16"}}}),
            (
                "critic",
                {"algorithm": {"advantage": "gae"}, "critic": {"precision": {"parameters": "bfloat16"}}},
            ),
        )
    ],
    (
        "kl-without-pull",
        {"algorithm": {"kl_in_loss": {"estimator": "k1"}}},
        "algorithm.kl_in_loss.estimator",
        "0 on average",
    ),
    ("reference-unused", {"reference": {"model": {"path": "org/other"}}}, "reference.model", "no KL"),
    ("greedy-training", {"rollout": {"sampling": {"temperature": 0.0}}}, "rollout.sampling.temperature", "greedy"),
    (
        "sampling-cut",
        {"rollout": {"sampling": {"top_p": 0.7, "top_k": 50}}},
        "rollout.sampling",
        "top_p 0.7 and top_k 50",
    ),
    ("learning-rate", {"train": {"optimizer": {"lr": 0.01}}}, "train.optimizer.lr", "0.01"),
    (
        "learning-rate",
        {"train": {"optimizer": {"lr": 0.0}}},
        "train.optimizer.lr",
        "nothing is learned",
    ),
    (
        "warmup",
        {"train": {"lr_scheduler": {"warmup_steps": 1, "warmup_ratio": 0.1}}},
        "train.lr_scheduler",
        "both",
    ),
    (
        "warmup",
        {"train": {"lr_scheduler": {"type": "cosine", "step_unit": "optimizer_step", "warmup_steps": 21}}},
        "train.lr_scheduler.warmup_steps",
        "21 steps in a run of 20",
    ),
    (
        "clip-range",
        {"algorithm": {"policy_loss": {"type": "ppo_clip", "clip_low": 1.5, "clip_high": 2}}},
        "algorithm.policy_loss.clip_low",
        "never acts",
    ),
    (
        "clip-range",
        {"algorithm": {"policy_loss": {"type": "gspo", "clip_high": 1e-4}}},
        "algorithm.policy_loss.clip_high",
        "below clip_low",
    ),
    (
        "clip-range",
        {"algorithm": {"policy_loss": {"type": "ppo_clip", "dual_clip": 1.1}}},
        "algorithm.policy_loss.dual_clip",
        "within",
    ),
    (
        "evaluation-never",
        {"data": {"eval": [{"path": "org/set"}]}, "schedule": {"evaluate_at_start": False}},
        "data.eval",
        "evaluate_every is null",
    ),
    ("evaluation-without-data", {"schedule": {"evaluate_every": 5}}, "schedule.evaluate_every", "data.eval is empty"),
    ("path-missing", {"model": {"path": "./nowhere"}}, "model.path", "the model ./nowhere"),
    ("path-missing", {"critic": {"model": {"path": "./no"}}}, "critic.model.path", "the critic's model ./no"),
    ("path-missing", {"reference": {"model": {"path": "./no"}}}, "reference.model.path", "the reference's model ./no"),
    (
        "path-missing",
        {"data": {"train": [{"path": "nowhere.parquet"}]}},
        "data.train[0].path",
        "the data nowhere.parquet",
    ),
    ("path-missing", {"rewards": [{"type": "function", "path": "no.py"}]}, "rewards[0].path", "file no.py"),
    (
        "path-missing",
        {"checkpoint": {"resume": "path", "resume_path": "/no"}},
        "checkpoint.resume_path",
        "checkpoint /no",
    ),
    ("hub-name", {"model": {"path": "Qwen/Qwen2.5-1.5B"}}, "model.path", "on a hub"),
    ("resume-path", {"checkpoint": {"resume": "path"}}, "checkpoint.resume_path", "not set"),
    ("resume-path", {"checkpoint": {"resume_path": "/no"}}, "checkpoint.resume_path", "not read"),
    ("remote-path", {"checkpoint": {"remote": "oss"}}, "checkpoint.remote", "expected a URL"),
    ("remote-path", {"checkpoint": {"folder": "s3://b/c"}}, "checkpoint.folder", "a folder of this machine first"),
    ("never-saved", {"checkpoint": {"at_end": False, "export": "never"}}, "checkpoint", "nothing is saved"),
    ("tracker", {"tracking": ["swanlab"]}, "tracking[0].mode", "an account"),
    ("tracker-twice", {"tracking": ["console", "console"]}, "tracking", "2 times"),
    (
        "literal-secret",
        {"tracking": [{"type": "wandb", "mode": "offline", "api_key": "x"}]},
        "tracking[0].api_key",
        "plain text",
    ),
    ("secret-in-name", {"run": {"name": "x-${oc.env:HF_TOKEN}"}}, "run.name", "holds a secret"),
    (
        "literal-secret",
        {"runtime": {"env_vars": {"HF_TOKEN": "x"}}},
        "runtime.env_vars.HF_TOKEN",
        "plain text",
    ),
    (
        "not-supported",
        {"rollout": {"engine": "sglang", "parallel": {"tensor_parallel_size": 2}}},
        "rollout.parallel.tensor_parallel_size",
        "only an engine of vLLM has more than one device here",
    ),
    (
        "not-used",
        {"rollout": {"engine": "transformers", "parallel": {"tensor_parallel_size": 2}}},
        "rollout.parallel.tensor_parallel_size",
        "only an engine of vLLM has more than one device here",
    ),
    (
        "not-supported",
        {"algorithm": {"router_replay": "recompute", "old_log_probs": "rollout"}},
        "algorithm.router_replay",
        "no pass before it that records",
    ),
    (
        "not-supported",
        {"algorithm": {"router_replay": "recompute", "objective": "mix"}},
        "algorithm.router_replay",
        "responses that mix learns from beside",
    ),
    ("not-supported", {"algorithm": {"router_replay": "rollout"}}, "algorithm.router_replay", "which experts it chose"),
    (
        "not-used",
        {"algorithm": {"router_replay": "recompute"}, "train": {"fused_kernels": {"prefix_grouping": True}}},
        "train.fused_kernels.prefix_grouping",
        "replays no experts",
    ),
    ("not-supported", {"rollout": {"engine": "external"}}, "rollout.engine", "has no address"),
    (
        "not-supported",
        {"rollout": {"engine": {"type": "external", "base_url": "http://a/v1"}}},
        "rollout.engine",
        "keeps its own weights",
    ),
]


@pytest.mark.parametrize(
    ("code", "change", "key", "words"), PROVOKED, ids=[f"{code}-{key}" for code, _, key, _ in PROVOKED]
)
def test_a_rule_finds_what_it_is_for(
    good: dict[str, Any], code: str, change: dict[str, Any], key: str, words: str
) -> None:
    findings = found(good, change, cluster=H100, symbolic=())
    mine = [finding for finding in findings if finding.code == code and finding.key == key]
    assert len(mine) == 1, [(finding.code, finding.key) for finding in findings]
    assert re.search(words, mine[0].message), mine[0].message
    assert mine[0].level is CODES[code].level


OF_FILES = {code for code in CODES if code.startswith(("code-", "data-"))}
"""Codes of rules that read files: ``test_user_code.py`` and ``test_data_files.py`` provoke them."""


def test_every_code_is_provoked_by_a_test() -> None:
    elsewhere = {"stage", "memory", "not-applied", "mistyped-key", "runner-refuses", "runner-release"}
    assert set(CODES) - {code for code, *_ in PROVOKED} == elsewhere | OF_FILES


def test_every_error_and_warning_says_what_to_do(good: dict[str, Any]) -> None:
    for _, change, _, _ in PROVOKED:
        for finding in found(good, change, cluster=H100, symbolic=()):
            assert finding.hint or finding.level is Level.NOTE or finding.code == "role-devices", finding


def test_a_run_that_trains_on_a_buffer_ends_with_it(good: dict[str, Any]) -> None:
    assert found(good, {**DRAINS, "schedule": {"total_steps": None}}, cluster=H100, symbolic=()) == []


def test_the_divisors_of_a_mistyped_number_take_no_minutes() -> None:
    huge = 9007199254740993 * 8
    assert _divisors_near(huge, 512)[:2] == [428, 642]


def test_the_two_nearest_divisors_are_named(good: dict[str, Any]) -> None:
    (finding,) = found(good, {"batch": {"mini_batch_responses": 200}})
    assert finding.hint == "set batch.mini_batch_responses to 128 or 256"


def test_memory_is_compared_with_the_device(good: dict[str, Any]) -> None:
    tight = Cluster(1, 8, "cuda", gib_per_device=0.0001)
    (finding,) = (each for each in found(good, {}, cluster=tight) if each.code == "memory")
    assert finding.key == "train.engine"
    assert finding.hint == "use more or larger GPUs"
    assert found(good, {}, cluster=Cluster(1, 8, "cuda")) == []


def test_symbolic_secrets_and_unknown_origins_are_no_findings(good: dict[str, Any]) -> None:
    change = {"tracking": [{"type": "wandb", "mode": "offline", "api_key": "x"}]}
    assert found(good, change, symbolic={("tracking", 0, "api_key")}) == []
    assert found(good, change) == []


def test_stages_are_checked_as_they_run_under_their_own_key(good: dict[str, Any]) -> None:
    stages = [{"name": "warm", "algorithm": {"objective": "sft"}}, {"name": "rl", "batch": {"responses_per_prompt": 1}}]
    findings = found(good, {"stages": stages, "tracking": ["console", "console"]})
    assert [(finding.code, finding.key) for finding in findings] == [
        ("mini-batch-too-large", "batch.mini_batch_responses"),
        ("tracker-twice", "tracking"),
        ("group-of-one", "stages[1].batch.responses_per_prompt"),
    ]


def test_a_stage_that_cannot_be_built_is_an_error(good: dict[str, Any]) -> None:
    findings = found(good, {"stages": [{"name": "a", "batch": {"prompts_per_stp": 1}}]})
    assert [finding.code for finding in findings] == ["stage"]
    assert "prompts_per_step" in findings[0].hint


def test_findings_point_into_the_file(good: dict[str, Any], tmp_path: Path) -> None:
    text = (
        f"rlctl: 1\nmodel: {{path: {good['model']['path']}}}\ndata:\n  train:\n    - path: nowhere.parquet\n"
        "batch:\n  prompts_per_step: 8\n  responses_per_prompt: 1\nschedule: {total_steps: 1}\n"
        "stages:\n  - {name: a}\n  - name: b\n    batch:\n      responses_per_prompt: 2\n"
    )
    (tmp_path / "run.yaml").write_text(text)
    loaded, _ = load(read_yaml(text, "run.yaml"))
    assert loaded is not None
    lines = {(f.key): f.at.line for f in check(loaded.config, locate=loaded.locate) if f.at is not None}
    assert lines["data.train[0].path"] == 5
    assert lines["stages[0].batch.responses_per_prompt"] == 8


def test_a_config_for_1024_gpus_is_checked_within_2_seconds(good: dict[str, Any]) -> None:
    roles = {"policy": {"devices": list(range(512))}, "rollout": {"devices": list(range(512, 1024))}}
    config = config_from(over(good, {"placement": {"nodes": 128, "layout": "explicit", "roles": roles}}))
    started = time.perf_counter()
    check(config, cluster=Cluster(128, 8, "cuda", gpu="H100"))
    assert time.perf_counter() - started < 2


def test_the_page_of_codes_is_up_to_date() -> None:
    page = ROOT / "docs" / "reference" / "checks.md"
    assert page.read_text(encoding="utf-8") == codes_page(), (
        "print rlctl.checks.codes_page() into docs/reference/checks.md"
    )


def test_a_dialects_default_that_changes_no_number_is_a_note_and_what_was_written_a_warning(
    good: dict[str, Any],
) -> None:
    change = {"data": {"stage_in_shared_memory": True}}
    written = [finding.code for finding in found(good, change)]
    silent = [finding.code for finding in found(good, change, silent={("data", "stage_in_shared_memory")})]
    assert (written, silent) == (["not-used"], ["not-applied"])


def test_a_dialects_default_that_changes_numbers_is_refused_all_the_same(good: dict[str, Any]) -> None:
    change = {"rollout": {"sampling": {"num_beams": 2}}}
    silent = [finding.code for finding in found(good, change, silent={("rollout", "sampling", "num_beams")})]
    assert silent == ["not-supported"]
