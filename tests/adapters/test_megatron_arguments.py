"""Arguments that Megatron-core refuses together are errors, each tried on its own ``TransformerConfig``."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from rlctl.adapters.verl.combination_limits import MEGATRON as SECTION
from rlctl.adapters.verl.combination_limits import OVERRIDES
from rlctl.adapters.verl.megatron_arguments import LINEAR
from rlctl.documents import read_yaml, write_yaml
from rlctl.translation.acceptance import findings_of
from rlctl.translation.translate import read_document
from tests.adapters.refused import MEGATRON, changed, tree

DENSE, EXPERTS, LATENT = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"
SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "context_parallel_size",
)
GRAPH, PARTS = {"cuda_graph_impl": "transformer_engine"}, {"recompute_granularity": "selective"}
OVERLAP = {
    "overlap_moe_expert_parallel_comm": True,
    "expert_model_parallel_size": 2,
    "moe_token_dispatcher_type": "alltoall",
}
DROPS = {"moe_expert_capacity_factor": 1.0, "moe_token_dispatcher_type": "alltoall"}

CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"fp8": "hybrid", "first_last_layers_bf16": True}, "first_last_layers_bf16", DENSE),
    (
        {
            "fp8": "hybrid",
            "fp8_recipe": "tensorwise",
            "first_last_layers_bf16": True,
            "num_layers_at_start_in_bf16": 29,
        },
        "num_layers_at_start_in_bf16",
        DENSE,
    ),
    (
        {"fp8": "hybrid", "fp8_recipe": "tensorwise", "first_last_layers_bf16": True, "num_layers_at_end_in_bf16": -1},
        "num_layers_at_end_in_bf16",
        DENSE,
    ),
    ({"fp8": "hybrid", "fp8_recipe": "custom"}, "fp8_quantizer_factory", DENSE),
    ({"fp4": "e2m1", "fp4_recipe": "custom"}, "fp4_quantizer_factory", DENSE),
    (
        {"moe_enable_deepep": True, "moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"},
        "moe_enable_deepep",
        EXPERTS,
    ),
    (
        {
            "moe_expert_capacity_factor": 1.0,
            "moe_router_load_balancing_type": ["sinkhorn"],
            "moe_aux_loss_coeff": [0.1],
        },
        "moe_router_load_balancing_type",
        EXPERTS,
    ),
    (
        {"moe_router_load_balancing_type": ["aux_loss", "none"], "moe_aux_loss_coeff": [0.1]},
        "moe_aux_loss_coeff",
        EXPERTS,
    ),
    ({"cpu_offloading": True, "cpu_offloading_num_layers": 28}, "cpu_offloading_num_layers", DENSE),
    ({**PARTS, "recompute_modules": ["moe_act"], "moe_grouped_gemm": False}, "recompute_modules", EXPERTS),
    ({**PARTS, "recompute_modules": ["mla_up_proj"]}, "recompute_modules", DENSE),
    (
        {
            **PARTS,
            "recompute_modules": ["shared_experts"],
            "moe_shared_expert_overlap": True,
            "moe_shared_expert_intermediate_size": 64,
            "moe_token_dispatcher_type": "alltoall",
        },
        "recompute_modules",
        EXPERTS,
    ),
    (
        {**PARTS, "recompute_modules": ["layernorm"], "fp8": "hybrid", "fp8_recipe": "delayed"},
        "recompute_modules",
        DENSE,
    ),
    (
        {
            "moe_layer_recompute": True,
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
        "moe_layer_recompute",
        EXPERTS,
    ),
    ({"bias_activation_fusion": True, "use_te_activation_func": True}, "bias_activation_fusion", DENSE),
    ({"bias_activation_fusion": True, "glu_linear_offset": 1.0}, "glu_linear_offset", DENSE),
    ({"fused_single_qkv_rope": True, "attention_output_gate": True}, "fused_single_qkv_rope", DENSE),
    ({"rotary_interleaved": True}, "rotary_interleaved", LATENT),
    ({"attention_output_gate": True}, "attention_output_gate", LATENT),
    ({"cache_mla_latents": True, "apply_rope_fusion": True}, "cache_mla_latents", LATENT),
    ({"add_bias_linear": True, "expert_tensor_parallel_size": 2}, "add_bias_linear", EXPERTS),
    (
        {"moe_router_enable_expert_bias": True, "moe_router_score_function": "softmax"},
        "moe_router_enable_expert_bias",
        EXPERTS,
    ),
    (
        {"moe_router_padding_for_quantization": True, "fp4": "e2m1", "moe_token_dispatcher_type": "allgather"},
        "moe_router_padding_for_quantization",
        EXPERTS,
    ),
    (
        {"moe_router_topk": 1, "moe_router_score_function": "softmax", "moe_router_pre_softmax": False},
        "moe_router_topk",
        EXPERTS,
    ),
    (
        {"moe_router_topk_limited_devices": 2, "moe_router_group_topk": 2, "moe_router_num_groups": 4},
        "moe_router_topk_limited_devices",
        EXPERTS,
    ),
    ({"moe_router_group_topk": 2, "moe_router_num_groups": 7}, "moe_router_num_groups", EXPERTS),
    ({"moe_router_group_topk": 8, "moe_router_num_groups": 4}, "moe_router_group_topk", EXPERTS),
    ({"num_moe_experts": 0}, "num_moe_experts", EXPERTS),
    ({"moe_ffn_hidden_size": 64}, "moe_ffn_hidden_size", DENSE),
    ({"moe_shared_expert_intermediate_size": 0}, "moe_shared_expert_intermediate_size", EXPERTS),
    ({**GRAPH, "enable_cuda_graph": True}, "cuda_graph_impl", DENSE),
    ({"enable_cuda_graph": True, "external_cuda_graph": True}, "enable_cuda_graph", DENSE),
    ({"cuda_graph_scope": 3}, "cuda_graph_scope", DENSE),
    ({"cuda_graph_scope": ["full", "attn"]}, "cuda_graph_scope", DENSE),
    ({"cuda_graph_scope": ["attention"]}, "cuda_graph_scope", DENSE),
    ({**GRAPH, "cuda_graph_scope": "full_iteration"}, "cuda_graph_scope", DENSE),
    ({**GRAPH, **DROPS, "cuda_graph_scope": ["moe", "moe_router"]}, "cuda_graph_scope", EXPERTS),
    ({**GRAPH, "cuda_graph_scope": ["moe_preprocess"]}, "cuda_graph_scope", EXPERTS),
    ({**GRAPH, "cuda_graph_scope": ["moe"]}, "cuda_graph_scope", DENSE),
    ({**GRAPH, "cuda_graph_scope": ["moe"]}, "cuda_graph_scope", EXPERTS),
    ({**GRAPH, "cuda_graph_scope": ["mlp"]}, "cuda_graph_scope", EXPERTS),
    ({**GRAPH, **DROPS, "cuda_graph_scope": ["moe_router", "moe_preprocess"]}, "cuda_graph_scope", EXPERTS),
    (
        {
            **GRAPH,
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
            "cuda_graph_scope": ["attn"],
        },
        "recompute_granularity",
        DENSE,
    ),
    (
        {**GRAPH, **PARTS, "recompute_modules": ["moe"], "cuda_graph_scope": ["moe_router"]},
        "recompute_modules",
        EXPERTS,
    ),
    ({**GRAPH, **PARTS, "attention_dropout": 0.1, "cuda_graph_scope": ["attn"]}, "attention_dropout", DENSE),
    (
        {**GRAPH, **PARTS, "recompute_modules": ["mlp"], "hidden_dropout": 0.1, "attention_dropout": 0.0},
        "hidden_dropout",
        DENSE,
    ),
    (
        {
            **GRAPH,
            **PARTS,
            "recompute_modules": ["moe"],
            "moe_input_jitter_eps": 0.1,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
        },
        "moe_input_jitter_eps",
        EXPERTS,
    ),
    (
        {"moe_token_dispatcher_type": "allgather", "variable_seq_lengths": True},
        "moe_token_dispatcher_type",
        EXPERTS,
    ),
    ({**OVERLAP, "mtp_num_layers": 2}, "mtp_num_layers", EXPERTS),
    ({**OVERLAP, "mtp_num_layers": 1}, "overlap_moe_expert_parallel_comm", EXPERTS),
    ({**OVERLAP, "cuda_graph_impl": "local", "cuda_graph_scope": ["attn"]}, "cuda_graph_impl", EXPERTS),
    ({**OVERLAP, "delay_wgrad_compute": True, "moe_use_legacy_grouped_gemm": True}, "delay_wgrad_compute", EXPERTS),
    ({"context_parallel_size": 2, "cp_comm_type": ["p2p"]}, "cp_comm_type", DENSE),
    ({"context_parallel_size": 2, "cp_comm_type": 3}, "cp_comm_type", DENSE),
    ({"flash_decode": True, "no_rope_freq": 4}, "flash_decode", DENSE),
    ({"no_rope_freq": 3}, "no_rope_freq", DENSE),
    ({"no_rope_freq": [0, 1]}, "no_rope_freq", DENSE),
    ({"transformer_impl": "inference_optimized", "normalization": "LayerNorm"}, "transformer_impl", DENSE),
    *(
        ({"transformer_impl": "inference_optimized", "normalization": "RMSNorm", name: True}, "transformer_impl", DENSE)
        for name in ("layernorm_zero_centered_gamma", "add_bias_linear", "add_qkv_bias", "use_kitchen")
    ),
    ({"inference_fuse_tp_communication": True}, "inference_fuse_tp_communication", DENSE),
    ({"batch_invariant_mode": True, "attention_backend": "fused"}, "batch_invariant_mode", DENSE),
    (
        {"experimental_attention_variant": "dsa", "context_parallel_size": 2},
        "experimental_attention_variant",
        LATENT,
    ),
    (
        {"experimental_attention_variant": "dsa", "apply_rope_fusion": True},
        "experimental_attention_variant",
        LATENT,
    ),
    ({"apply_rope_fusion": True, "rope_type": "rope"}, "apply_rope_fusion", LATENT),
    *(
        (
            {"experimental_attention_variant": "gated_delta_net", **dict.fromkeys(LINEAR, 4), name: None, **changes},
            name,
            DENSE,
        )
        for name, changes in (
            *((name, {}) for name in LINEAR),
            ("linear_num_value_heads", {"linear_num_key_heads": 4, "linear_num_value_heads": 6}),
            ("linear_num_key_heads", {"linear_num_key_heads": 3, "tensor_model_parallel_size": 2}),
            (
                "linear_num_value_heads",
                {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "tensor_model_parallel_size": 4},
            ),
        )
    ),
    ({"defer_embedding_wgrad_compute": True}, "defer_embedding_wgrad_compute", DENSE),
    (
        {
            "defer_embedding_wgrad_compute": True,
            "pipeline_model_parallel_size": 2,
            "gradient_accumulation_fusion": False,
        },
        "defer_embedding_wgrad_compute",
        DENSE,
    ),
    (
        {
            "defer_embedding_wgrad_compute": True,
            "pipeline_model_parallel_size": 2,
            "gradient_accumulation_fusion": True,
            "wgrad_deferral_limit": -1,
        },
        "wgrad_deferral_limit",
        DENSE,
    ),
    ({"overlap_p2p_comm_warmup_flush": True}, "overlap_p2p_comm_warmup_flush", DENSE),
    (
        {"overlap_p2p_comm_warmup_flush": True, "overlap_p2p_comm": True, "batch_p2p_comm": True},
        "overlap_p2p_comm_warmup_flush",
        DENSE,
    ),
    (
        {"account_for_embedding_in_pipeline_split": True, "pipeline_model_parallel_size": 2},
        "account_for_embedding_in_pipeline_split",
        DENSE,
    ),
    (
        {
            "pipeline_model_parallel_layout": "Et*14|t*7|t*7|L",
            "pipeline_model_parallel_size": 2,
            "virtual_pipeline_model_parallel_size": 4,
        },
        "pipeline_model_parallel_layout",
        DENSE,
    ),
]
"""Arguments, the one that is told, and the model."""

SECTION_KEYS = (*SIZES, "virtual_pipeline_model_parallel_size", "expert_tensor_parallel_size")
FREE: list[tuple[dict[str, Any], str]] = [
    ({**GRAPH, "cuda_graph_scope": ["attn"]}, DENSE),
    ({**GRAPH, **DROPS, "moe_pad_expert_input_to_capacity": True, "cuda_graph_scope": "moe"}, EXPERTS),
    ({**PARTS, "recompute_modules": ["moe_act"], "moe_grouped_gemm": True}, EXPERTS),
    ({"moe_router_group_topk": 2, "moe_router_num_groups": 8}, EXPERTS),
    ({"cpu_offloading": True, "cpu_offloading_num_layers": 27}, DENSE),
    ({"no_rope_freq": 4}, DENSE),
    (
        {
            "pipeline_model_parallel_layout": "Et*14|t*7|t*7|L",
            "pipeline_model_parallel_size": 2,
            "virtual_pipeline_model_parallel_size": 2,
        },
        DENSE,
    ),
]
"""Arguments that Megatron-core takes."""


def found(arguments: dict[str, Any], model: str) -> list[str]:
    """The keys that are reported, without their section."""
    keys = {f"{SECTION if name in SECTION_KEYS else OVERRIDES}.{name}": value for name, value in arguments.items()}
    document = read_yaml(
        write_yaml(tree(changed("verl", {**MEGATRON, **keys, "actor_rollout_ref.model.path": model}))), "run.yaml"
    )
    loaded, report = read_document(document, dialect="verl")
    codes = [item for item in findings_of("verl", loaded, report, changed=False) if item.code == "runner-refuses"]
    return [item.key.removeprefix(f"{OVERRIDES}.") for item in codes]


def built(arguments: dict[str, Any], model: str) -> None:
    """Build Megatron-core's own config as verl does: of a model's shape, in bfloat16, with the arguments over it."""
    from megatron.core.transformer import transformer_config
    from torch.nn.functional import silu

    shapes = {DENSE: (28, 28, 4), EXPERTS: (48, 32, 4), LATENT: (61, 128, 128)}
    layers, heads, groups = shapes[model]
    given: dict[str, Any] = {
        "num_layers": layers,
        "hidden_size": heads * 64,
        "num_attention_heads": heads,
        "num_query_groups": groups,
        "bf16": True,
        "params_dtype": __import__("torch").bfloat16,
        "pipeline_dtype": __import__("torch").bfloat16,
        "activation_func": silu,
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "normalization": "RMSNorm",
        **({} if model == DENSE else {"num_moe_experts": 128, "moe_grouped_gemm": True}),
        **arguments,
    }
    kind = transformer_config.MLATransformerConfig if model == LATENT else transformer_config.TransformerConfig
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(**given)


@pytest.mark.parametrize(("arguments", "key", "model"), CASES, ids=lambda part: part if isinstance(part, str) else "")
def test_what_megatron_refuses_is_told(arguments: dict[str, Any], key: str, model: str) -> None:
    assert key in found(arguments, model)


@pytest.mark.parametrize(("arguments", "model"), FREE)
def test_what_megatron_takes_is_not(arguments: dict[str, Any], model: str) -> None:
    assert found(arguments, model) == []


@pytest.mark.upstream
def test_megatron_refuses_and_takes_the_same() -> None:
    for arguments, _, model in CASES:
        with pytest.raises((ValueError, AssertionError, KeyError, TypeError, NotImplementedError)):
            built(arguments, model)
    for arguments, model in FREE:
        built(arguments, model)
