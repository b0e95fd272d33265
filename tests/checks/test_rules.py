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

from rlctl.checks import LEVELS, check
from rlctl.checks.batch import _divisors_near
from rlctl.checks.messages_page import EXAMPLES, messages
from rlctl.checks.problem import ELSEWHERE, RUNNERS, level_for, runners_of
from rlctl.common.messages import catalogue, code_of, has
from rlctl.common.messages.reasons import reasons
from rlctl.common.report import Finding, Level
from rlctl.config import config_from, load
from rlctl.documents import read_yaml
from rlctl.planning.arithmetic import Cluster

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


def test_a_teacher_that_roll_keeps_as_its_reference_is_used(good: dict[str, Any]) -> None:
    teacher = {"algorithm": {"distillation": {"teacher": "org/large"}}, "reference": {"model": {"path": "org/large"}}}
    other = over(teacher, {"reference": {"model": {"path": "org/other"}}})
    codes = [{item.code for item in found(good, change)} for change in (teacher, other)]
    assert ["reference-unused" in each for each in codes] == [False, True]


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
        {**DRAINS, "weight_sync": {"max_staleness_steps": 1, "on_stale": "wait"}},
        "weight_sync.on_stale",
        "not-supported_wait",
    ),
    ("not-supported", {**DRAINS, "checkpoint": {"every": {"epochs": 1}}}, "checkpoint.every", "not-supported_epochs"),
    (
        "not-used",
        {"runtime": {"ray": {"address": "auto", "num_cpus": 4}}},
        "runtime.ray.num_cpus",
        "reason=the cluster at runtime.ray.address is already running with its own number of cores",
    ),
    (
        "not-used",
        {**DRAINS, "schedule": {"total_epochs": 2}},
        "schedule.total_epochs",
        "reason=a run that trains on a buffer reads no training data; it ends with the buffer or at schedule.",
    ),
    (
        "not-supported",
        {"data": {"train": [{"path": "org/data", "sampling": {"temperature": 0.5}}]}},
        "data.train[0].sampling.temperature",
        "not-supported_temperature own=0.5 temperature=1.0",
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
                "the policy.s workers",
            ),
            (
                "micro_batch",
                {"size": 8},
                {"algorithm": {"kl_in_loss": {"estimator": "full"}}},
                "reason=full distributions are compared within each training micro-batch",
            ),
            ("precision", {}, {"model": {"lora": {}}, "algorithm": {"kl_in_loss": {}}}, "the policy.s workers"),
            ("compile", False, {"model": {"lora": {}}, "algorithm": {"kl_in_loss": {}}}, "the policy.s workers"),
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
            "responses to each dataset once",
        )
        for key, rollout, algorithm in (
            ("algorithm.filters", {}, {"filters": ["zero_variance_groups"]}),
            ("rollout.timeouts.response", {"timeouts": {"response": 9.0}}, {}),
            ("rollout.oversampling.ratio", {"oversampling": {"ratio": 0.1}}, {}),
        )
    ],
    ("not-supported", {"run": {"mode": "train_only"}}, "buffer.type", "not-supported_memory-buffer"),
    (
        "not-supported",
        {
            "run": {"skip": {"rollout": "dump"}},
            "rollout": {
                "default_agent": "player",
                "agents": [{"type": "environment", "name": "player", "environment": {"type": "gymnasium", "id": "a"}}],
            },
        },
        "rollout.agents",
        "not-supported_agents",
    ),
    (
        "not-supported",
        {"run": {"mode": "train_only"}, "buffer": {"type": "sql"}},
        "buffer.url",
        "not-supported_no-buffer",
    ),
    (
        "not-supported",
        {"run": {"mode": "train_only"}, "buffer": {"type": "file"}},
        "buffer.path",
        "not-supported_no-buffer",
    ),
    (
        "not-used",
        {"run": {"mode": "rollout_only"}, "buffer": {"type": "sql"}, "weight_sync": {"method": "nccl"}},
        "weight_sync.method",
        "through a folder",
    ),
    (
        "not-supported",
        {"run": {"mode": "rollout_only"}, "buffer": {"type": "sql"}, "weight_sync": {"max_steps_ahead": 1.0}},
        "weight_sync.max_steps_ahead",
        "not-supported_two-runs",
    ),
    (
        "not-supported",
        {"buffer": {"type": "memory", "capacity": 64, "replay": {"enabled": True}}},
        "buffer.capacity",
        "not-supported_replay-capacity capacity=64 step=512",
    ),
    ("no-reward", {"run": {"mode": "rollout_only"}, "buffer": {"type": "sql"}, "rewards": []}, "rewards", "no-reward"),
    (
        "not-supported",
        {"algorithm": {"sample_strategy": "staleness_control", "sample_strategy_args": {"most": 1}}},
        "algorithm.sample_strategy_args",
        "not-supported_strategy-args unknown=most objective=rl strategy=staleness_control",
    ),
    ("no-model", {"model": {"path": ""}}, "model.path", "no-model"),
    ("no-data", {"data": {"train": []}}, "data.train", "no-data"),
    ("no-data", {"run": {"mode": "evaluate_only"}}, "data.eval", "no-data_evaluation"),
    ("no-data", {"data": {"train": [{}]}}, "data.train[0].path", "no-data_path"),
    ("no-reward", {"rewards": []}, "rewards", "no-reward"),
    ("reward-names", {"rewards": ["rule", "rule"]}, "rewards", "count=2 name=reward"),
    (
        "domain-weights",
        {"data": {"domain_weights": {"reward": 1, "code": 1}}},
        "data.domain_weights.code",
        "domain-weights name=code known=reward",
    ),
    (
        "domain-weights",
        {"data": {"domain_weights": {"reward": 1}}, "algorithm": {"objective": "sft"}},
        "data.domain_weights",
        "domain-weights_objective objective=sft",
    ),
    (
        "domain-weights",
        {"data": {"domain_weights": {"reward": 1}, "mixing": "weighted"}},
        "data.mixing",
        "domain-weights_mixing value=weighted",
    ),
    (
        "domain-weights",
        {"data": {"domain_weights": {"reward": 1}, "train": [{"path": "a.parquet", "weight": 2}]}},
        "data.train[0].weight",
        "domain-weights_source",
    ),
    (
        "judge-model",
        {"rewards": [{"type": "judge", "base_url": "http://a/v1"}]},
        "rewards[0].model",
        "name=reward",
    ),
    (
        "auxiliary-models",
        {"rewards": [{"type": "judge", "auxiliary_model": "a"}]},
        "rollout.auxiliary_models",
        "rollout.auxiliary_models has none",
    ),
    ("no-end", {"schedule": {"total_steps": None}}, "schedule", "no-end"),
    (
        "mini-batch-too-large",
        {"batch": {"mini_batch_responses": 1024}},
        "batch.mini_batch_responses",
        "64 prompts x 8 = 512",
    ),
    (
        "mini-batch-uneven",
        {"batch": {"mini_batch_responses": 200}},
        "batch.mini_batch_responses",
        "step=64 prompts x 8 = 512 responses full=2 mini=200 rest=112",
    ),
    (
        "idle-replicas",
        {"batch": {"mini_batch_responses": 4}},
        "batch.mini_batch_responses",
        "mini=4 replicas=8 idle=4",
    ),
    (
        "replicas-uneven",
        {"batch": {"prompts_per_step": 25, "mini_batch_responses": 100}},
        "batch.mini_batch_responses",
        "mini=100 replicas=8 each=12.5",
    ),
    (
        "sequence-over-micro",
        {"batch": {"micro_batch": {"size": 1000}}},
        "batch.micro_batch.size",
        "longest=1024 size=1000",
    ),
    (
        "context-too-short",
        {"model": {"max_context_tokens": 1000}},
        "model.max_context_tokens",
        "prompt=512 response=512 total=1024 context=1000",
    ),
    ("model-positions", {"rollout": {"max_response_tokens": 4000}}, "rollout.max_response_tokens", "longest=4512"),
    (
        "response-bounds",
        {"rollout": {"sampling": {"min_response_tokens": 600}}},
        "rollout.sampling.min_response_tokens",
        "least=600 most=512",
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
        "rollout.parallel.tensor_parallel_size",
        "engines of 3 devices",
    ),
    (
        "heads-undivided",
        {
            "model": {"path": "Qwen/Qwen2.5-7B"},
            "train": {"engine": {"type": "fsdp2", "ulysses_sequence_parallel_size": 8}},
        },
        "train.engine.ulysses_sequence_parallel_size",
        "size=8 .*heads=28 shared=4",
    ),
    (
        "heads-undivided",
        {
            "model": {"path": "Qwen/Qwen2.5-7B"},
            "rollout": {"engine": "vllm", "parallel": {"tensor_parallel_size": 8}},
        },
        "rollout.parallel.tensor_parallel_size",
        "size=8 .*heads=28 shared=4",
    ),
    (
        "engine-over-node",
        {"rollout": {"engine": "vllm", "parallel": {"tensor_parallel_size": 16}}, "placement": {"nodes": 2}},
        "rollout.parallel.tensor_parallel_size",
        "tensor=16 devices=8",
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
    ("not-used", {"train": {"engine": "megatron", "packing": False}}, "train.packing", "without padding"),
    *[
        ("not-used", {"train": {"engine": {"type": "megatron", **engine}, "memory": memory}}, f"train.{key}", words)
        for key, engine, memory, words in (
            ("memory.recompute_reentrant", {}, {"recompute_reentrant": True}, "as train.engine.recompute_granularity"),
            (
                "memory.recompute_activations",
                {"recompute_granularity": "selective"},
                {"recompute_activations": False},
                "Megatron recomputes only the activations",
            ),
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
        "mini=256 replicas=2 share=128 count=2 stages=4 idle=60%",
    ),
    (
        "context-parallel",
        {"train": {"engine": {"type": "megatron", "tensor_parallel_size": 4, "context_parallel_size": 2}}},
        "train.engine.context_parallel_size",
        "4 heads / tensor parallel size 4 = 1, .* context parallel size 2",
    ),
    *[
        ("megatron-layout", {"train": {"engine": {"type": "megatron", **engine}}}, f"train.engine.{key}", words)
        for key, engine, words in (
            (
                "tensor_parallel_size",
                {"tensor_parallel_size": 8},
                "role=policy reason=4 heads are not divisible by the tensor parallel size 8 advice=set train.engine.tensor_parallel_size to",
            ),
            ("pipeline_parallel_size", {"pipeline_parallel_size": 8}, "4 layers are not divisible by pipeline 8"),
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
            ("expert_parallel_size", {"expert_parallel_size": 8}, "8 devices, but the model has no experts"),
            (
                "expert_parallel_size",
                {"expert_parallel_size": 3},
                r"expert 3 \* expert_tensor 1 \* pipeline 1 = 3, .* 8 devices",
            ),
            ("moe.dispatcher", {"pipeline_parallel_size": 2, "moe": {"dispatcher": "allgather"}}, "equal length"),
            ("overlap_parameter_gather", {"overlap_parameter_gather": True}, "overlapped gradient"),
            (
                "moe.layer_recompute",
                {"moe": {"layer_recompute": True}, "recompute_granularity": "full"},
                "full recomputation",
            ),
        )
    ],
    *[
        ("not-supported", {"train": {"engine": {"type": "megatron", **engine}}}, f"train.engine.{key}", words)
        for key, engine, words in (
            ("transformer", {"transformer": {"num_layer": 3}}, "TransformerConfig has no num_layer"),
            ("transformer", {"transformer": {"moe_z_loss_coeff": "big"}}, "is 'big'; .* Optional.float."),
            ("transformer", {"transformer": {"recompute_method": "block"}}, "its own key"),
            ("ddp", {"ddp": {"bucket_sise": 3}}, "DistributedDataParallelConfig has no bucket_sise"),
            ("optimizer_overrides", {"optimizer_overrides": {"adam_eps": True}}, "takes float"),
            ("optimizer_overrides", {"optimizer_overrides": {"clip_grad": 0.5}}, "its own key"),
            ("optimizer_overrides", {"optimizer_overrides": {"decoupled_lr": 0.1}}, "the engine needs None"),
        )
    ],
    *[
        ("not-supported", over({"train": {"engine": {"type": "megatron"}}}, change), key, words)
        for key, change, words in (
            ("model.modality", {"model": {"modality": "vision"}}, "read only text"),
            ("model.attention", {"model": {"attention": "sdpa"}}, "packs sequences"),
            ("train.precision.parameters", {"train": {"precision": {"parameters": "bfloat16"}}}, "in float32"),
            ("train.precision.reduce", {"train": {"precision": {"reduce": "float16"}}}, "reduces gradients"),
            (
                "train.memory.offload_activations",
                {"train": {"memory": {"offload_activations": True}}},
                "does not offload",
            ),
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
            (
                "train.lr_scheduler.type",
                {"train": {"lr_scheduler": {"type": "inverse_sqrt"}}},
                "over 10,000 steps",
            ),
            ("train.optimizer.module", {"train": {"optimizer": {"module": "torchao.optim"}}}, "Megatron-core"),
        )
    ],
    (
        "role-devices",
        {"placement": {"layout": "split", "rollout_devices": 8}},
        "placement.rollout_devices",
        "rollout=8 total=8",
    ),
    (
        "role-devices",
        {"placement": EXPLICIT},
        "placement.roles.policy.devices",
        "role-devices_outside wrong=9 last=7 nodes=1 devices=8",
    ),
    ("role-devices", {"placement": EXPLICIT}, "placement.roles.pilot", "role-devices_unknown role=pilot"),
    (
        "role-variables",
        {"runtime": {"role_env_vars": {"actor": {"A": "1"}}}},
        "runtime.role_env_vars.actor",
        "role=actor",
    ),
    ("cluster-too-small", {"placement": {"nodes": 2}}, "placement", "nodes=2 devices=8 known_nodes=1 known_devices=8"),
    (
        "staleness",
        {"weight_sync": {"max_steps_ahead": 2, "max_staleness_steps": 1}},
        "weight_sync.max_staleness_steps",
        "ahead=2.0 made=2 most=1",
    ),
    (
        "staleness",
        {"weight_sync": {"every": 2, "max_steps_ahead": 1, "max_staleness_steps": 1}},
        "weight_sync.max_staleness_steps",
        "ahead=1.0 made=2 most=1",
    ),
    (
        "staleness",
        {"weight_sync": {"every": 4, "max_staleness_steps": 2}},
        "weight_sync.max_staleness_steps",
        "staleness_sync every=4 behind=3 most=2",
    ),
    (
        "buffer-too-small",
        {"weight_sync": {"max_steps_ahead": 1}, "buffer": {"type": "memory", "capacity": 8}},
        "buffer.capacity",
        "capacity=8 responses=512",
    ),
    ("buffer-too-small", {"buffer": {"type": "sql", "capacity": 8}}, "buffer.capacity", "capacity=8 responses=512"),
    (
        "staleness",
        {**STALE, "weight_sync": {"every": 4}},
        "algorithm.sample_strategy_args",
        "staleness_strategy every=4 made=3",
    ),
    ("over-rollout", {"rollout": {"oversampling": {"ratio": 1.0}}}, "rollout.oversampling.ratio", "over-rollout"),
    (
        "difficulty-ahead",
        {"weight_sync": {"max_steps_ahead": 1}, "data": {"curriculum": {"order": "difficulty"}}},
        "data.curriculum.order",
        "difficulty-ahead",
    ),
    (
        "group-of-one",
        {"batch": {"responses_per_prompt": 1, **MOVED["batch"]}},
        "batch.responses_per_prompt",
        "name=grpo",
    ),
    (
        "old-pass-left-out",
        {"algorithm": {"advantage": {"type": "clipv"}, "old_log_probs": "rollout"}},
        "algorithm.old_log_probs",
        "name=clipv",
    ),
    ("gae-without-critic", {"algorithm": {"advantage": "gae"}}, "algorithm.advantage", "gae-without-critic"),
    ("critic-unused", {"critic": {}}, "critic", "name=grpo"),
    (
        "warmup-without-critic",
        {"schedule": {"critic_warmup_steps": 5}},
        "schedule.critic_warmup_steps",
        "steps=5 name=grpo",
    ),
    (
        "kl-off",
        {"algorithm": {"kl_in_loss": {"coefficient": 0.0}}},
        "algorithm.kl_in_loss.coefficient",
        "kl-off",
    ),
    (
        "kl-twice",
        {"algorithm": {"kl_in_loss": {"coefficient": 0.002}, "kl_in_reward": {"coefficient": 0.1}}},
        "algorithm.kl_in_reward.coefficient",
        "loss=0.002",
    ),
    *[
        ("updates-rounded-away", change, f"{role}.precision.parameters", "rate=1e-0[56]")
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
        "kl-without-pull",
    ),
    ("reference-unused", {"reference": {"model": {"path": "org/other"}}}, "reference.model", "reference-unused"),
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
        "learning-rate",
    ),
    (
        "warmup",
        {"train": {"lr_scheduler": {"warmup_steps": 1, "warmup_ratio": 0.1}}},
        "train.lr_scheduler",
        "warmup",
    ),
    (
        "warmup",
        {"train": {"lr_scheduler": {"type": "cosine", "step_unit": "optimizer_step", "warmup_steps": 21}}},
        "train.lr_scheduler.warmup_steps",
        "warmup_long warmup=21 total=20 unit=optimizer_step",
    ),
    (
        "clip-range",
        {"algorithm": {"policy_loss": {"type": "ppo_clip", "clip_low": 1.5, "clip_high": 2}}},
        "algorithm.policy_loss.clip_low",
        "low=1.5",
    ),
    (
        "clip-range",
        {"algorithm": {"policy_loss": {"type": "gspo", "clip_high": 1e-4}}},
        "algorithm.policy_loss.clip_high",
        "clip-range_high high=0.0001 low=0.0003",
    ),
    (
        "clip-range",
        {"algorithm": {"policy_loss": {"type": "ppo_clip", "dual_clip": 1.1}}},
        "algorithm.policy_loss.dual_clip",
        "clip-range_dual dual=1.1 bound=1.2",
    ),
    (
        "evaluation-never",
        {"data": {"eval": [{"path": "org/set"}]}, "schedule": {"evaluate_at_start": False}},
        "data.eval",
        "count=1",
    ),
    (
        "evaluation-without-data",
        {"schedule": {"evaluate_every": 5}},
        "schedule.evaluate_every",
        "evaluation-without-data",
    ),
    ("path-missing", {"model": {"path": "./nowhere"}}, "model.path", "path=./nowhere"),
    ("path-missing", {"critic": {"model": {"path": "./no"}}}, "critic.model.path", "path=./no"),
    ("path-missing", {"reference": {"model": {"path": "./no"}}}, "reference.model.path", "path=./no"),
    (
        "path-missing",
        {"data": {"train": [{"path": "nowhere.parquet"}]}},
        "data.train[0].path",
        "path=nowhere.parquet",
    ),
    ("path-missing", {"rewards": [{"type": "function", "path": "no.py"}]}, "rewards[0].path", "path=no.py"),
    (
        "path-missing",
        {"data": {"operators": [{"type": "external", "kind": "data_juicer", "args": {"config_path": "dj.yaml"}}]}},
        "data.operators[0].args.config_path",
        "path=dj.yaml",
    ),
    (
        "path-missing",
        {"checkpoint": {"resume": "path", "resume_path": "/no"}},
        "checkpoint.resume_path",
        "path=/no",
    ),
    ("hub-name", {"model": {"path": "Qwen/Qwen2.5-1.5B"}}, "model.path", "path=Qwen/Qwen2.5-1.5B"),
    ("resume-path", {"checkpoint": {"resume": "path"}}, "checkpoint.resume_path", "resume-path"),
    ("resume-path", {"checkpoint": {"resume_path": "/no"}}, "checkpoint.resume_path", "resume-path_unread resume=auto"),
    ("remote-path", {"checkpoint": {"remote": "oss"}}, "checkpoint.remote", "path=oss"),
    ("remote-path", {"checkpoint": {"folder": "s3://b/c"}}, "checkpoint.folder", "remote-path_folder path=s3://b/c"),
    (
        "no-data-juicer",
        {"data": {"operators": [{"type": "external", "kind": "text_length_filter"}]}},
        "service.data_juicer",
        "no-data-juicer",
    ),
    ("never-saved", {"checkpoint": {"at_end": False, "export": "never"}}, "checkpoint", "never-saved"),
    ("tracker", {"tracking": ["swanlab"]}, "tracking[0].mode", "tracker=swanlab mode=cloud"),
    ("tracker-twice", {"tracking": ["console", "console"]}, "tracking", "tracker=console count=2"),
    (
        "literal-secret",
        {"tracking": [{"type": "wandb", "mode": "offline", "api_key": "x"}]},
        "tracking[0].api_key",
        "expression=",
    ),
    ("folder-name", {"run": {"name": "x\ntouch y #"}}, "run.name", "reason=it contains a line end"),
    ("secret-in-name", {"run": {"name": "x-${oc.env:HF_TOKEN}"}}, "run.name", r"value=x-\$\{oc\.env:HF_TOKEN\}"),
    (
        "literal-secret",
        {"runtime": {"env_vars": {"HF_TOKEN": "x"}}},
        "runtime.env_vars.HF_TOKEN",
        "expression=",
    ),
    (
        "not-supported",
        {"rollout": {"engine": "sglang", "parallel": {"data_parallel_size": 2}}},
        "rollout.parallel.data_parallel_size",
        "only vLLM has replicas",
    ),
    (
        "not-used",
        {"rollout": {"engine": "transformers", "parallel": {"tensor_parallel_size": 2}}},
        "rollout.parallel.tensor_parallel_size",
        "only vLLM and SGLang engines",
    ),
    (
        "not-supported",
        {"algorithm": {"router_replay": "recompute", "old_log_probs": "rollout"}},
        "algorithm.router_replay",
        "not-supported_replay-rollout",
    ),
    (
        "not-supported",
        {"algorithm": {"router_replay": "recompute", "objective": "mix"}},
        "algorithm.router_replay",
        "not-supported_replay-mix",
    ),
    (
        "not-supported",
        {"algorithm": {"router_replay": "rollout"}, "rollout": {"engine": "vllm"}},
        "algorithm.router_replay",
        "reason=vLLM reports chosen experts only in its V2 model runner, ",
    ),
    (
        "not-used",
        {"algorithm": {"router_replay": "recompute"}, "train": {"fused_kernels": {"prefix_grouping": True}}},
        "train.fused_kernels.prefix_grouping",
        r"reason=prefix grouping needs FSDP2 with packed sequences \(model\.attention auto\) and no router replay",
    ),
    ("not-supported", {"rollout": {"engine": "external"}}, "rollout.engine", "not-supported_endpoint-address"),
    (
        "not-supported",
        {"rollout": {"engine": {"type": "external", "base_url": "http://a/v1"}}},
        "rollout.engine",
        "not-supported_endpoint-trains",
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
    assert re.search(words, said(mine[0])), said(mine[0])
    assert mine[0].level is LEVELS[code]


def said(finding: Finding) -> str:
    """What a finding says, without its sentence: the id of its message and the variables, as ``memory reason=...``."""
    return " ".join([finding.id, *(f"{name}={value}" for name, value in finding.params.items())])


OF_FILES = {code for code in LEVELS if code.startswith(("code-", "data-", "model-files", "model-tokenizer", "here-"))}
"""Codes of rules that read files or ask the machine: ``test_user_code.py``, ``test_data_files.py``, ``test_here.py`` provoke them."""


def test_every_code_is_provoked_by_a_test() -> None:
    elsewhere = {"stage", "memory", "not-applied", "mistyped-key", "runner-refuses", "runner-ignores", "runner-release"}
    assert set(LEVELS) - {code for code, *_ in PROVOKED} == elsewhere | OF_FILES


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
    (finding,) = (each for each in found(good, {"train": {"packing": False}}, cluster=tight) if each.code == "memory")
    assert finding.key == "train.engine"
    assert finding.hint == "use more GPUs, or GPUs with more memory"
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
    started = time.process_time()
    check(config, cluster=Cluster(128, 8, "cuda", gpu="H100"))
    assert time.process_time() - started < 2


def test_the_page_of_messages_has_every_code() -> None:
    codes = {code_of(id_) for id_ in catalogue("en") if has(f"{id_}.about")}
    assert codes >= set(LEVELS)
    assert all(f"\n### `{code}`\n" in messages() for code in codes)


def test_the_page_of_messages_shows_reasons_that_rlctl_gives() -> None:
    """An example that no code says any more fails, and so does a line of the page that is values alone."""
    entries = [line.partition(" = ")[2] for entry in catalogue("en").values() for line in entry.splitlines()]
    texts = [*reasons("zh"), *(re.sub(r"\{ \$\w+ \}", "{x}", entry) for entry in entries)]
    with_words = [text for text in texts if len(re.sub(r"\{.*?\}|\W", "", text)) > 8]
    known = [re.sub(r"\\{.*?\\}", ".*", re.escape(text)) for text in with_words]
    given = [values["reason"] for values in EXAMPLES.values()]
    assert not [text for text in given if not any(re.fullmatch(pattern, text) for pattern in known)]
    assert not re.findall(r"^- `(?:<\w+>|\W)*`", messages(), re.MULTILINE)


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


def test_a_finding_holds_for_every_runner_unless_the_code_says_what_others_do() -> None:
    """No list says what a runner may hide: a code that is new holds for all of them."""
    assert {code_of(id_) for id_ in ELSEWHERE} <= set(LEVELS)
    for code in LEVELS.keys() - ELSEWHERE.keys():
        assert runners_of(code) == RUNNERS
        assert {level_for(code, runner) for runner in RUNNERS} == {LEVELS[code]}
    assert all(other.why and set(other.levels) < set(RUNNERS) for other in ELSEWHERE.values())


@pytest.mark.parametrize(
    ("change", "id_", "levels"),
    [
        ({"batch": {"mini_batch_responses": 200}}, "mini-batch-uneven", ["warning"] * 4),
        ({"checkpoint": {"at_end": False, "every": None, "export": "never"}}, "never-saved", ["warning"] * 4),
        ({"checkpoint": {"resume": "path"}}, "resume-path", ["error"] * 4),
        ({"checkpoint": {"resume_path": "a"}}, "resume-path_unread", ["error", *["warning"] * 3]),
        ({"model": {"max_context_tokens": 512}}, "context-too-short", ["error", "warning", None, "warning"]),
        ({"batch": {"mini_batch_responses": 4}}, "idle-replicas", ["warning", None, None, None]),
        ({"tracking": ["console", "console"]}, "tracker-twice", ["warning", None, None, None]),
    ],
)
def test_a_finding_has_the_level_of_the_runner(
    good: dict[str, Any], change: dict[str, Any], id_: str, levels: list[str | None]
) -> None:
    config = config_from(over(good, change))
    found = [[item for item in check(config, runner=runner) if item.id == id_] for runner in RUNNERS]
    assert [str(items[0].level) if items else None for items in found] == levels
    assert all(item.runners == runners_of(id_) for items in found for item in items)


def test_a_message_says_what_the_runner_does(good: dict[str, Any]) -> None:
    config = config_from(over(good, {"model": {"max_context_tokens": 512}}))
    said_of = {
        runner: [f.message for f in check(config, runner=runner) if f.code == "context-too-short"] for runner in RUNNERS
    }
    assert "verl cuts" in said_of["verl"][0]
    assert "verl" not in said_of["rlctl"][0]


def test_a_fix_that_makes_another_problem_is_not_suggested(good: dict[str, Any]) -> None:
    """200 prompts x 1 in mini-batches of 7: what divides the step is a mini-batch for fewer replicas than there are, or too uneven."""
    change = {"batch": {"prompts_per_step": 200, "responses_per_prompt": 1, "mini_batch_responses": 7}}
    config = config_from(over(good, change))
    for found in check(config):
        for key, value in found.candidates:
            plain = over(good, change)
            place = plain
            for part in key[:-1]:
                place = place.setdefault(part, {})
            place[key[-1]] = value
            grave = (item for item in check(config_from(plain)) if item.level is not Level.NOTE)
            after = {(item.id, item.key) for item in grave}
            before = {(item.id, item.key) for item in check(config)}
            assert (found.id, found.key) not in after
            assert after <= before


def test_a_problem_without_a_single_fix_says_so(good: dict[str, Any]) -> None:
    change = {"placement": {"nodes": 2}, "train": {"engine": {"type": "megatron", "tensor_parallel_size": 16}}}
    found = found_in = [
        f for f in check(config_from(over(good, change)), cluster=H100) if f.code == "cluster-too-small"
    ]
    assert found_in[0].hint.startswith("use a larger cluster, or fewer devices with smaller parallel sizes")
    assert found[0].fixes == ()


def test_one_engine_on_part_of_a_node_spans_no_nodes(good: dict[str, Any]) -> None:
    split = {
        "placement": {"layout": "split", "rollout_devices": 6},
        "rollout": {"engine": "vllm", "parallel": {"tensor_parallel_size": 6}},
    }
    codes = {item.code for item in check(config_from(over(good, split)))}
    assert "engine-over-node" not in codes


@pytest.mark.parametrize(("runner", "fits"), [("rlctl", False), ("verl", True)])
def test_pools_of_another_framework_may_share_a_machine(good: dict[str, Any], runner: str, fits: bool) -> None:
    """4 + 4 GPUs of verl's fully asynchronous trainer on one machine of eight."""
    config = config_from(over(good, {"placement": {"nodes": 2, "devices_per_node": 4}}))
    codes = {item.code for item in check(config, cluster=H100, runner=runner)}
    assert ("cluster-too-small" not in codes) is fits
    assert "cluster-too-small" in {item.code for item in check(config, cluster=Cluster(1, 7, "cuda"), runner=runner)}


def test_an_auxiliary_model_that_is_too_large_for_its_devices_is_one_finding(good: dict[str, Any]) -> None:
    """The memory of such a config cannot be estimated, which is no finding of its own."""
    model = {"name": "judge", "path": good["model"]["path"], "tensor_parallel_size": 16}
    config = over(good, {"rollout": {"engine": "vllm", "auxiliary_models": [model]}})
    codes = [item.code for item in check(config_from(config), cluster=H100)]
    assert codes.count("auxiliary-models") == 1
    assert "memory" not in codes
