"""Every key of the Megatron engine is where Megatron-core reads it, and what it would refuse is refused before a launch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.enums import AttnBackend
from transformers import LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config, Qwen3MoeConfig

from rlctl.common.errors import PlanError
from rlctl.config.sections.train import Megatron, Moe, Optimizer, PrecisionSettings, Train
from rlctl.planning.megatron import options
from rlctl.runtime.train.megatron.arguments import ddp_config, optimizer_config, transformer_config

SIZES = {
    "vocab_size": 66,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.05,
}
EXPERTS = Qwen3MoeConfig(
    **SIZES, moe_intermediate_size=24, num_experts=4, num_experts_per_tok=2, mlp_only_layers=[1], norm_topk_prob=True
)
SHARED = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}

READ_BACK: Mapping[str, tuple[dict[str, Any], str, str, Any]] = {
    "tensor_parallel_size": (SHARED, "transformer", "tensor_model_parallel_size", 2),
    "pipeline_parallel_size": (SHARED, "transformer", "pipeline_model_parallel_size", 2),
    "virtual_pipeline_parallel_size": (
        {"virtual_pipeline_parallel_size": 2, **SHARED},
        "transformer",
        "virtual_pipeline_model_parallel_size",
        2,
    ),
    "context_parallel_size": ({"context_parallel_size": 4}, "transformer", "context_parallel_size", 4),
    "expert_parallel_size": ({"expert_parallel_size": 2}, "transformer", "expert_model_parallel_size", 2),
    "expert_tensor_parallel_size": (
        {"expert_tensor_parallel_size": 2},
        "transformer",
        "expert_tensor_parallel_size",
        2,
    ),
    "sequence_parallel": (
        {"sequence_parallel": True, "tensor_parallel_size": 2},
        "transformer",
        "sequence_parallel",
        True,
    ),
    "distributed_optimizer": ({"distributed_optimizer": False}, "optimizer", "use_distributed_optimizer", False),
    "overlap_gradient_reduce": ({"overlap_gradient_reduce": True}, "ddp", "overlap_grad_reduce", True),
    "overlap_parameter_gather": ({"overlap_parameter_gather": True}, "ddp", "overlap_param_gather", True),
    "recompute_granularity": ({"recompute_granularity": "full"}, "transformer", "recompute_granularity", "full"),
    "recompute_method": (
        {"recompute_granularity": "full", "recompute_method": "block"},
        "transformer",
        "recompute_method",
        "block",
    ),
    "recompute_layers": (
        {"recompute_granularity": "full", "recompute_layers": 2},
        "transformer",
        "recompute_num_layers",
        2,
    ),
    "recompute_modules": (
        {"recompute_granularity": "selective", "recompute_modules": ("mlp", "layernorm")},
        "transformer",
        "recompute_modules",
        ["mlp", "layernorm"],
    ),
    "moe": ({"moe": Moe(dispatcher="allgather")}, "transformer", "moe_token_dispatcher_type", "allgather"),
    "transformer": ({"transformer": {"moe_z_loss_coeff": 0.5}}, "transformer", "moe_z_loss_coeff", 0.5),
    "ddp": ({"ddp": {"bucket_size": 10}}, "ddp", "bucket_size", 10),
    "optimizer_overrides": (
        {"optimizer_overrides": {"initial_loss_scale": 32768}},
        "optimizer",
        "initial_loss_scale",
        32768,
    ),
}
"""By key: a setting, and where Megatron-core has it."""

BY_THE_ENGINE = {
    "offload",
    "offload_gradients",
    "distributed_checkpointing",
    "checkpoint_path",
    "bridge",
}
"""Keys of which Megatron-core's configs know nothing: the engine, or the support table, goes by them."""


def made(engine: Megatron, hf_config: PretrainedConfig = EXPERTS, **train: Any) -> dict[str, Any]:
    section = Train(engine=engine, **train)
    return {
        "transformer": transformer_config(section, hf_config),
        "ddp": ddp_config(section),
        "optimizer": optimizer_config(section),
    }


@pytest.mark.parametrize("key", READ_BACK)
def test_a_key_of_the_engine_is_where_megatron_reads_it(key: str) -> None:
    settings, where, name, expected = READ_BACK[key]
    assert getattr(made(Megatron(**settings))[where], name) == expected
    assert getattr(made(Megatron())[where], name) != expected


def test_sequence_parallelism_can_be_left_off() -> None:
    assert made(Megatron(tensor_parallel_size=2, sequence_parallel=False))["transformer"].sequence_parallel is False


def test_the_attention_is_rlctls_own_whatever_backend_is_named() -> None:
    config = made(Megatron(transformer={"attention_backend": "flash"}))["transformer"]
    assert config.attention_backend is AttnBackend.auto


def test_number_types_are_written_as_words() -> None:
    engine = Megatron(transformer={"autocast_dtype": "fp16"})
    assert made(engine)["transformer"].autocast_dtype is torch.float16


def test_every_key_of_the_engine_is_read_back_or_left_to_the_engine() -> None:
    assert {field.name for field in dataclasses.fields(Megatron)} == {*READ_BACK, *BY_THE_ENGINE}


@pytest.mark.parametrize(
    ("moe", "name", "expected"),
    [
        (Moe(), "moe_token_dispatcher_type", "alltoall"),
        (Moe(dispatcher="flex"), "moe_token_dispatcher_type", "flex"),
        (Moe(shared_expert_overlap=True), "moe_shared_expert_overlap", True),
        (Moe(layer_recompute=True), "moe_layer_recompute", True),
        (Moe(layer_recompute=True), "recompute_modules", ["core_attn", "moe"]),
    ],
)
def test_settings_of_experts_reach_megatron(moe: Moe, name: str, expected: Any) -> None:
    assert getattr(made(Megatron(moe=moe))["transformer"], name) == expected


@pytest.mark.parametrize(
    ("train", "where", "name", "expected"),
    [
        ({}, "transformer", "params_dtype", torch.bfloat16),
        ({}, "transformer", "bf16", True),
        ({}, "optimizer", "bf16", True),
        ({"precision": PrecisionSettings(compute="float16")}, "optimizer", "fp16", True),
        ({"precision": PrecisionSettings(compute="float32")}, "transformer", "params_dtype", torch.float32),
        ({"precision": PrecisionSettings(compute="float32")}, "optimizer", "bf16", False),
        ({}, "ddp", "grad_reduce_in_fp32", True),
        ({"precision": PrecisionSettings(reduce="bfloat16")}, "ddp", "grad_reduce_in_fp32", False),
        ({"optimizer": Optimizer(lr=3e-4)}, "optimizer", "lr", 3e-4),
        ({"optimizer": Optimizer(weight_decay=0.3)}, "optimizer", "weight_decay", 0.3),
        ({"optimizer": Optimizer(betas=(0.8, 0.9))}, "optimizer", "adam_beta1", 0.8),
        ({"optimizer": Optimizer(betas=(0.8, 0.9))}, "optimizer", "adam_beta2", 0.9),
        ({"optimizer": Optimizer(epsilon=1e-5)}, "optimizer", "adam_eps", 1e-5),
        ({"optimizer": Optimizer(max_grad_norm=None)}, "optimizer", "clip_grad", 0.0),
        ({"optimizer": Optimizer(max_grad_norm=0.5)}, "optimizer", "clip_grad", 0.5),
        ({"optimizer": Optimizer(type="adam")}, "optimizer", "decoupled_weight_decay", False),
        ({"optimizer": Optimizer(type="sgd", args={"momentum": 0.5})}, "optimizer", "sgd_momentum", 0.5),
    ],
)
def test_precision_and_optimizer_reach_megatron(train: dict[str, Any], where: str, name: str, expected: Any) -> None:
    assert getattr(made(Megatron(), **train)[where], name) == expected


@pytest.mark.parametrize(
    ("kind", "bias", "norms"), [(LlamaConfig, False, False), (Qwen2Config, True, False), (Qwen3Config, False, True)]
)
def test_a_models_own_sizes_are_megatrons(kind: type[PretrainedConfig], bias: bool, norms: bool) -> None:
    config = transformer_config(Train(engine=Megatron()), kind(**SIZES))
    assert (config.add_qkv_bias, config.qk_layernorm, config.add_bias_linear) == (bias, norms, False)
    assert (config.num_layers, config.hidden_size, config.ffn_hidden_size) == (4, 32, 48)
    assert (config.num_attention_heads, config.num_query_groups, config.kv_channels) == (4, 2, 16)
    assert (config.layernorm_epsilon, config.init_method_std, config.normalization) == (1e-5, 0.05, "RMSNorm")
    assert (config.gated_linear_unit, config.activation_func) == (True, F.silu)
    assert (config.attention_dropout, config.hidden_dropout, config.num_moe_experts) == (0.0, 0.0, None)


def test_experts_are_routed_as_transformers_routes_them_and_no_loss_balances_them() -> None:
    config = made(Megatron())["transformer"]
    assert (config.num_moe_experts, config.moe_router_topk, config.moe_ffn_hidden_size) == (4, 2, 24)
    assert config.moe_layer_freq == [1, 0, 1, 1]
    assert config.moe_router_pre_softmax is False  # the chosen weights are normed: softmax over them alone
    assert (config.moe_router_load_balancing_type, config.moe_aux_loss_coeff) == ("none", 0.0)
    plain = Qwen3MoeConfig(**SIZES, num_experts=4, norm_topk_prob=False)
    assert transformer_config(Train(engine=Megatron()), plain).moe_router_pre_softmax is True


@pytest.mark.parametrize(
    ("engine", "hf_config", "train", "message"),
    [
        (Megatron(), MistralConfig(**SIZES), {}, "no layers for mistral"),
        (Megatron(), LlamaConfig(**{**SIZES, "attention_bias": True}), {}, "attention_bias is True"),
        (Megatron(tensor_parallel_size=3), EXPERTS, {}, "TransformerConfig refuses .*(3)"),
        (Megatron(pipeline_parallel_size=2, moe=Moe(dispatcher="allgather")), EXPERTS, {}, "does not support variable sequence length"),
        (Megatron(transformer={"num_layer": 2}), EXPERTS, {}, "TransformerConfig has no num_layer"),
        (Megatron(transformer={"attention_backend": "flsh"}), EXPERTS, {}, "flsh; expected one of flash, fused"),
        (Megatron(ddp={"overlap_grad_reduce": True}), EXPERTS, {}, "has its own key"),
        (Megatron(optimizer_overrides={"adam_eps": "small"}), EXPERTS, {}, "takes float"),
        (Megatron(), EXPERTS, {"optimizer": Optimizer(type="Muon")}, "Muon; the Megatron engine has adamw"),
        (Megatron(), EXPERTS, {"optimizer": Optimizer(args={"amsgrad": True})}, "args has amsgrad"),
    ],
)  # fmt: skip
def test_what_megatron_would_refuse_is_refused_with_its_key(
    engine: Megatron, hf_config: PretrainedConfig, train: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message) as refused:
        made(engine, hf_config, **train)
    assert refused.value.hint


def test_an_acceleration_without_its_package_is_left_off() -> None:
    engine = Megatron(transformer={"moe_permute_fusion": True, "bias_activation_fusion": True})
    here = [] if options.left_off(engine) == [] else ["moe_permute_fusion"]
    config = made(engine)["transformer"]
    assert options.left_off(engine) == here
    assert (config.moe_permute_fusion, config.bias_activation_fusion) == (not here, True)


@pytest.mark.parametrize("kind", [TransformerConfig, DistributedDataParallelConfig, OptimizerConfig])
def test_the_settings_read_from_the_source_are_those_of_the_class(kind: type) -> None:
    assert set(options.settings_of(kind.__name__)) == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("key", options.OWN)
def test_settings_with_a_key_of_their_own_are_megatrons(key: str) -> None:
    assert set(options.OWN[key]) <= set(options.settings_of(options.KINDS[key]))
