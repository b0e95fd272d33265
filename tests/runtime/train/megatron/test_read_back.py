"""Every key of the Megatron parts of verl, Trinity and ROLL is read back from the live configs of a started engine.

A row is a key of a dialect, what is written there, and where Megatron-core has it then. Rows of one start are one file. What
spreads a model over several workers is read from the config that they would be started with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import Qwen3MoeConfig

from rlctl.adapters.engine.tree import put
from rlctl.config import Config
from rlctl.config.sections.train import Train
from rlctl.documents import parse_dotted, read_yaml
from rlctl.runtime.train.megatron.arguments import ddp_config, optimizer_config, transformer_config
from rlctl.translation.translate import read_document
from tests.runtime.train.megatron import read_back_jobs
from tests.runtime.train.megatron.read_back_jobs import TICKS, megatrons_own
from tests.runtime.train.processes import Workers

VERL: dict[str, Any] = {
    "data": {"train_files": "train.parquet", "val_files": "test.parquet", "train_batch_size": 8},
    "actor_rollout_ref": {
        "model": {"path": "org/model"},
        "actor": {
            "strategy": "megatron",
            "ppo_mini_batch_size": 8,
            "use_dynamic_bsz": True,
            "ppo_max_token_len_per_gpu": 64,
        },
        "rollout": {"name": "vllm", "n": 2},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "trainer": {"n_gpus_per_node": 1, "nnodes": 1},
}
TRINITY: dict[str, Any] = {
    "mode": "both",
    "algorithm": {"algorithm_type": "grpo", "repeat_times": 8},
    "model": {"model_path": "org/model", "max_prompt_tokens": 512, "max_response_tokens": 512, "max_model_len": 1024},
    "cluster": {"node_num": 1, "gpu_per_node": 8},
    "buffer": {"batch_size": 32, "explorer_input": {"taskset": {"name": "t", "path": "data"}}},
    "trainer": {"trainer_strategy": "megatron", "save_interval": 10},
}
ROLL: dict[str, Any] = {
    "exp_name": "demo",
    "pretrain": "org/model",
    "rollout_batch_size": 8,
    "num_return_sequences_in_group": 2,
    "prompt_length": 64,
    "response_length": 64,
    "max_steps": TICKS,
    "adv_estimator": "grpo",
    "actor_train": {
        "training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1},
        "strategy_args": {"strategy_name": "megatron_train", "strategy_config": {}},
        "device_mapping": "list(range(0,1))",
    },
    "actor_infer": {"strategy_args": {"strategy_name": "vllm"}, "device_mapping": "list(range(0,1))"},
    "rewards": {"math_rule": {"worker_cls": "roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker"}},
}
BASES = {"verl": ("verl@0.9", VERL), "trinity": ("trinity@0.6", TRINITY), "roll": ("roll", ROLL)}
KEYS = {
    "verl": {
        "optim": "actor_rollout_ref.actor.optim",
        "megatron": "actor_rollout_ref.actor.megatron",
        "transformer": "actor_rollout_ref.actor.megatron.override_transformer_config",
        "ddp": "actor_rollout_ref.actor.megatron.override_ddp_config",
        "moe": "actor_rollout_ref.actor.megatron.override_mcore_model_config.moe_config",
    },
    "trinity": {
        "optim": "algorithm.optimizer",
        "megatron": "trainer.megatron",
        "plain": "trainer.trainer_config.actor_rollout_ref.actor.megatron",
        "transformer": "trainer.trainer_config.actor_rollout_ref.actor.megatron.override_transformer_config",
        "ddp": "trainer.trainer_config.actor_rollout_ref.actor.megatron.override_ddp_config",
    },
    "roll": {
        "optim": "actor_train.training_args",
        "kwargs": "actor_train.training_args.lr_scheduler_kwargs",
        "megatron": "actor_train.strategy_args.strategy_config",
    },
}
"""Blocks of each dialect."""


@dataclass(frozen=True)
class Row:
    """A key of a dialect and where it is read back."""

    dialect: str
    start: str
    """Rows of the same start are written together."""
    block: str
    key: str
    written: Any
    where: str
    """``transformer``, ``ddp`` or ``optimizer``: a config of Megatron-core; ``engine``: what the engine does."""
    name: str
    found: Any


def same(dialect: str, start: str, block: str, where: str, **values: Any) -> list[Row]:
    """Rows whose key and value are those of Megatron-core's config."""
    return [Row(dialect, start, block, name, value, where, name, value) for name, value in values.items()]


SIZES = {
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2,
    "virtual_pipeline_model_parallel_size": 2,
    "context_parallel_size": 2,
    "expert_model_parallel_size": 2,
    "expert_tensor_parallel_size": 1,
    "sequence_parallel": True,
}
SELECTIVE = {"recompute_granularity": "selective", "recompute_modules": ["layernorm", "mlp"]}
FULL = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2}
EXPERTS = {"moe_token_dispatcher_type": "allgather", "moe_grouped_gemm": True}

ROWS: list[Row] = [
    # verl
    *same("verl", "built", "megatron", "transformer", **SIZES),
    Row("verl", "a", "optim", "lr", 3e-4, "optimizer", "lr", 3e-4),
    Row("verl", "a", "optim", "weight_decay", 0.25, "optimizer", "weight_decay", 0.25),
    Row("verl", "a", "optim", "weight_decay", 0.25, "engine", "decays", [[0.0, 0.25]] * TICKS),
    Row("verl", "a", "optim", "betas", [0.8, 0.95], "optimizer", "adam_beta1", 0.8),
    Row("verl", "a", "optim", "betas", [0.8, 0.95], "optimizer", "adam_beta2", 0.95),
    Row("verl", "a", "optim", "clip_grad", 0.5, "optimizer", "clip_grad", 0.5),
    Row("verl", "a", "optim", "clip_grad", 0.5, "engine", "clips_at", 0.5),
    Row("verl", "a", "optim", "use_checkpoint_opt_param_scheduler", True, "engine", "takes_schedule", True),
    Row("verl", "b", "optim", "use_checkpoint_opt_param_scheduler", False, "engine", "takes_schedule", False),
    Row("verl", "a", "optim", "optimizer", "adam", "engine", "kind", "AdamW"),
    Row("verl", "b", "optim", "optimizer", "sgd", "engine", "kind", "SGD"),
    Row("verl", "b", "optim", "optimizer", "sgd", "optimizer", "optimizer", "sgd"),
    Row(
        "verl",
        "b",
        "optim",
        "override_optimizer_config",
        {"initial_loss_scale": 64.0},
        "optimizer",
        "initial_loss_scale",
        64.0,
    ),
    *same("verl", "a", "transformer", "transformer", **SELECTIVE),
    *same("verl", "b", "transformer", "transformer", **FULL),
    *same("verl", "a", "transformer", "transformer", **EXPERTS),
    *same("verl", "b", "transformer", "transformer", moe_token_dispatcher_type="alltoall", moe_grouped_gemm=False),
    Row("verl", "a", "transformer", "moe_grouped_gemm", True, "engine", "experts", ["GroupedExperts"]),
    *same("verl", "built", "transformer", "transformer", moe_shared_expert_overlap=True, moe_layer_recompute=True),
    *same("verl", "built", "transformer", "transformer", moe_token_dispatcher_type="flex"),
    *same("verl", "b", "transformer", "transformer", moe_z_loss_coeff=1e-3, moe_router_dtype="fp32"),
    Row("verl", "a", "moe", "freeze_moe_router", True, "engine", "trains_routers", False),
    Row("verl", "b", "moe", "freeze_moe_router", False, "engine", "trains_routers", True),
    *same("verl", "a", "ddp", "ddp", overlap_grad_reduce=True, overlap_param_gather=True, bucket_size=4000),
    *same("verl", "b", "ddp", "ddp", overlap_grad_reduce=False, overlap_param_gather=False),
    Row("verl", "a", "megatron", "use_distributed_optimizer", True, "ddp", "use_distributed_optimizer", True),
    Row("verl", "a", "megatron", "use_distributed_optimizer", True, "optimizer", "use_distributed_optimizer", True),
    Row("verl", "b", "megatron", "use_distributed_optimizer", False, "optimizer", "use_distributed_optimizer", False),
    # Trinity
    *same("trinity", "built", "megatron", "transformer", **SIZES),
    Row("trinity", "a", "optim", "lr", 3e-4, "optimizer", "lr", 3e-4),
    Row("trinity", "a", "optim", "weight_decay", 0.25, "engine", "decays", [[0.0, 0.25]] * TICKS),
    Row("trinity", "a", "optim", "betas", [0.8, 0.95], "optimizer", "adam_beta2", 0.95),
    Row("trinity", "a", "optim", "clip_grad", 0.5, "engine", "clips_at", 0.5),
    Row("trinity", "a", "optim", "optimizer_type", "adam", "engine", "kind", "AdamW"),
    *same("trinity", "a", "transformer", "transformer", **SELECTIVE),
    *same("trinity", "b", "transformer", "transformer", **FULL),
    *same("trinity", "a", "transformer", "transformer", **EXPERTS),
    *same("trinity", "built", "transformer", "transformer", recompute_granularity="selective"),
    *same("trinity", "built", "transformer", "transformer", moe_shared_expert_overlap=True, moe_layer_recompute=True),
    *same("trinity", "a", "ddp", "ddp", overlap_grad_reduce=True, overlap_param_gather=True, bucket_size=4000),
    Row("trinity", "b", "plain", "use_distributed_optimizer", False, "optimizer", "use_distributed_optimizer", False),
    # ROLL
    *same("roll", "built", "megatron", "transformer", **SIZES),
    Row("roll", "a", "optim", "learning_rate", 3e-4, "optimizer", "lr", 3e-4),
    Row("roll", "a", "optim", "weight_decay", 0.25, "engine", "decays", [[0.0, 0.25]] * TICKS),
    Row("roll", "a", "optim", "adam_beta1", 0.8, "optimizer", "adam_beta1", 0.8),
    Row("roll", "a", "megatron", "adam_epsilon", 1e-6, "optimizer", "adam_eps", 1e-6),
    Row("roll", "b", "megatron", "optimizer", "sgd", "engine", "kind", "SGD"),
    *same("roll", "a", "megatron", "transformer", **SELECTIVE),
    *same("roll", "b", "megatron", "transformer", **FULL),
    *same("roll", "a", "megatron", "transformer", **EXPERTS),
    *same("roll", "built", "megatron", "transformer", moe_shared_expert_overlap=True, moe_layer_recompute=True),
    *same("roll", "a", "megatron", "ddp", overlap_grad_reduce=True, use_distributed_optimizer=True),
]


def config_of(dialect: str, keys: dict[str, Any]) -> Config:
    """What rlctl reads of a small file of a dialect."""
    name, base = BASES[dialect]
    tree: dict[str, Any] = yaml.safe_load(yaml.safe_dump(base))
    for key, value in keys.items():
        put(tree, parse_dotted(key), value)
    loaded, report = read_document(read_yaml(yaml.safe_dump(tree), "run.yaml"), dialect=name, environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    return loaded.config


def written(dialect: str, start: str) -> dict[str, Any]:
    """The keys of a start."""
    rows = [row for row in ROWS if (row.dialect, row.start) == (dialect, start)]
    return {f"{KEYS[dialect][row.block]}.{row.key}": row.written for row in rows}


def section(config: Config) -> Train:
    """Section ``train``, in the number type of these tests."""
    return replace(config.train, precision=replace(config.train.precision, compute="float32"))


Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def read_back(one: Workers, families: dict[str, Path]) -> Callable[[str, str], Found]:
    """The configs of a start, which is made once."""

    @cache
    def of(dialect: str, start: str) -> Found:
        train = section(config_of(dialect, written(dialect, start)))
        if start == "built":
            many = Qwen3MoeConfig(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, num_experts=4)
            made = {"transformer": transformer_config(train, many), "ddp": ddp_config(train)}
            return {name: vars(each) for name, each in {**made, "optimizer": optimizer_config(train)}.items()}
        [found] = one.run(read_back_jobs.started, families["qwen3_moe"], train)
        return dict(found)

    return of


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.dialect}-{row.start}-{row.key}-{row.name}")
def test_a_key_is_read_back(row: Row, read_back: Callable[[str, str], Found]) -> None:
    assert read_back(row.dialect, row.start)[row.where][row.name] == row.found


PLAIN = {"lr": 2e-3, "lr_warmup_steps": 3, "lr_warmup_init": 1e-4, "min_lr": 1e-4, "lr_decay_steps": 9}
WSD = {"lr_decay_style": "WSD", "lr_wsd_decay_steps": 4}
CURVES: list[dict[str, Any]] = [
    {**PLAIN, "lr_decay_style": "constant"},
    {**PLAIN, "lr_decay_style": "linear"},
    {**PLAIN, "lr_decay_style": "cosine"},
    {**PLAIN, "lr_decay_style": "inverse-square-root"},
    {**PLAIN, "lr_decay_style": "linear", "lr_warmup_steps": -1, "lr_decay_steps": None},
    *({**PLAIN, **WSD, "lr_wsd_decay_style": style} for style in ("exponential", "linear", "cosine", "minus_sqrt")),
    {**PLAIN, "lr_decay_style": "cosine", "weight_decay_incr_style": "linear"},
    {**PLAIN, "lr_decay_style": "cosine", "weight_decay_incr_style": "cosine"},
]
"""Of verl's ``optim`` block."""


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: "-".join(str(value) for value in curve.values()))
def test_rates_and_decays_are_those_of_megatrons_own_scheduler(
    curve: dict[str, Any], one: Workers, families: dict[str, Path]
) -> None:
    decay = 0.25
    keys = {f"{KEYS['verl']['optim']}.{name}": value for name, value in {**curve, "weight_decay": decay}.items()}
    [found] = one.run(read_back_jobs.started, families["llama"], section(config_of("verl", keys)))
    rates, decays = megatrons_own(
        init_lr=curve["lr_warmup_init"],
        max_lr=curve["lr"],
        min_lr=curve["min_lr"],
        lr_warmup_steps=max(curve["lr_warmup_steps"], 0),
        lr_decay_steps=curve["lr_decay_steps"] or TICKS,
        lr_decay_style=curve["lr_decay_style"],
        start_wd=decay,
        end_wd=decay,
        wd_incr_steps=TICKS,
        wd_incr_style=curve.get("weight_decay_incr_style", "constant"),
        wsd_decay_steps=curve.get("lr_wsd_decay_steps"),
        lr_wsd_decay_style=curve.get("lr_wsd_decay_style"),
    )
    assert found["engine"]["rates"] == pytest.approx(rates, rel=1e-12)
    assert found["engine"]["decays"] == decays


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_number_types_reach_all_three_configs(compute: str, one: Workers, families: dict[str, Path]) -> None:
    train = config_of("verl", {}).train
    train = replace(train, precision=replace(train.precision, compute=compute))
    [found] = one.run(read_back_jobs.started, families["llama"], train)
    flag, dtype = {"bfloat16": "bf16", "float16": "fp16"}[compute], getattr(torch, compute)
    for where in ("transformer", "optimizer"):
        assert (found[where][flag], found[where]["params_dtype"]) == (True, dtype)
    assert found["ddp"]["grad_reduce_in_fp32"] is True
