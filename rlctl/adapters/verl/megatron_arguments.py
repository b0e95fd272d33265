"""Arguments of Megatron-core 0.16 that exclude each other, each with whether a file has both.

A row asks only for what the file writes: what verl fills in for a model is not known here, so a setting that is not written
excludes nothing, but for those whose value verl never changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlctl.adapters.engine.model_limits import shape_at
from rlctl.adapters.engine.requirements import Values
from rlctl.adapters.verl.combination_limits import MEGATRON, OVERRIDES
from rlctl.adapters.verl.requirement_values import MODEL
from rlctl.planning.models import ModelShape


class Given:
    """The arguments that a file gives to Megatron-core."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __call__(self, name: str, default: Any = None) -> Any:
        """The value of an argument; ``default`` where the file has none."""
        value = self._values[f"{OVERRIDES}.{name}"]
        return default if value is None else value

    def size(self, name: str) -> int:
        """A parallel size, as ``pipeline_model_parallel``."""
        return self._values.number(f"{MEGATRON}.{name}_size")

    @property
    def virtual(self) -> int | None:
        size = self._values[f"{MEGATRON}.virtual_pipeline_model_parallel_size"]
        return None if size is None else int(size)

    @property
    def shape(self) -> ModelShape | None:
        """The model; None if rlctl does not know it."""
        return shape_at(self._values, f"{MODEL}.path")

    @property
    def scopes(self) -> list[str]:
        """The parts that CUDA graphs hold, as Megatron-core reads the list or the words with commas."""
        scope = self("cuda_graph_scope", [])
        return scope.split(",") if isinstance(scope, str) else list(scope)

    @property
    def graphs(self) -> str:
        """The implementation of CUDA graphs; empty without."""
        chosen = str(self("cuda_graph_impl", "none"))
        return "" if chosen == "none" else chosen

    @property
    def recomputed(self) -> list[str]:
        """The modules that are recomputed."""
        chosen = list(self("recompute_modules", ["core_attn"]))
        return chosen if self("recompute_granularity") == "selective" else []


Refused = Callable[[Given], object]
Pair = tuple[str, str, Refused, object]


LINEAR = tuple(
    f"linear_{part}"
    for part in (
        "attention_freq",
        "conv_kernel_dim",
        "key_head_dim",
        "value_head_dim",
        "num_key_heads",
        "num_value_heads",
    )
)
"""Arguments of Gated DeltaNet, which a model without it lacks."""


def is_linear(g: Given) -> bool:
    return bool(g("experimental_attention_variant") == "gated_delta_net")


def lacks_linear(g: Given) -> bool:
    return is_linear(g) and g.shape is not None and all(kind.attention != "linear" for kind in g.shape.kinds)


def is_latent(shape: ModelShape) -> bool:
    return any(kind.attention == "latent" for kind in shape.kinds)


def scoped(g: Given, *names: str) -> bool:
    return bool(g.graphs) and any(name in g.scopes for name in names)


def whole_graph(g: Given) -> bool:
    """Whether a graph holds a whole layer, or the whole step."""
    return bool(g.graphs) and (g.scopes in ([], ["full"]) or "full_iteration" in g.scopes)


PAIRS: tuple[Pair, ...] = (
    (
        "first_last_layers_bf16",
        "fp8_recipe",
        lambda g: g("fp8") and g("first_last_layers_bf16") and g("fp8_recipe", "delayed") == "delayed",
        "false",
    ),
    (
        "moe_enable_deepep",
        "moe_flex_dispatcher_backend",
        lambda g: g("moe_enable_deepep") and g("moe_flex_dispatcher_backend") == "hybridep",
        "false",
    ),
    (
        "recompute_modules",
        "moe_grouped_gemm",
        lambda g: "moe_act" in g.recomputed and g("moe_grouped_gemm") is False,
        "[core_attn]",
    ),
    (
        "recompute_modules",
        "moe_shared_expert_overlap",
        lambda g: "shared_experts" in g.recomputed and g("moe_shared_expert_overlap"),
        "[core_attn]",
    ),
    (
        "recompute_modules",
        "fp8_recipe",
        lambda g: {"moe_act", "layernorm"} & set(g.recomputed) and g("fp8") and g("fp8_recipe", "delayed") == "delayed",
        "[core_attn]",
    ),
    (
        "moe_layer_recompute",
        "recompute_granularity",
        lambda g: g("moe_layer_recompute") and g("recompute_granularity") == "full",
        "false",
    ),
    (
        "bias_activation_fusion",
        "use_te_activation_func",
        lambda g: g("bias_activation_fusion") and g("use_te_activation_func"),
        "false",
    ),
    (
        "glu_linear_offset",
        "bias_activation_fusion",
        lambda g: (
            g("glu_linear_offset", 0) != 0
            and g("bias_activation_fusion")
            and g.shape is not None
            and g.shape.family != "gpt_oss"
        ),
        0.0,
    ),
    (
        "fused_single_qkv_rope",
        "attention_output_gate",
        lambda g: g("fused_single_qkv_rope") and g("attention_output_gate"),
        "false",
    ),
    (
        "moe_router_enable_expert_bias",
        "moe_router_score_function",
        lambda g: g("moe_router_enable_expert_bias") and g("moe_router_score_function", "sigmoid") != "sigmoid",
        "false",
    ),
    (
        "moe_router_padding_for_quantization",
        "moe_token_dispatcher_type",
        lambda g: (
            g("moe_router_padding_for_quantization")
            and (g("fp8") or g("fp4"))
            and g("moe_token_dispatcher_type") in ("allgather", "alltoall_seq")
        ),
        "false",
    ),
    (
        "moe_router_topk",
        "moe_router_pre_softmax",
        lambda g: (
            g("moe_router_topk") == 1
            and g("moe_router_score_function") == "softmax"
            and g("moe_router_pre_softmax") is False
            and g("moe_router_load_balancing_type") != "sinkhorn"
        ),
        2,
    ),
    (
        "moe_router_topk_limited_devices",
        "moe_router_group_topk",
        lambda g: g("moe_router_topk_limited_devices") and g("moe_router_group_topk"),
        "null",
    ),
    (
        "moe_router_group_topk",
        "moe_router_num_groups",
        lambda g: g("moe_router_group_topk", 0) > g("moe_router_num_groups", math.inf),
        1,
    ),
    (
        "cuda_graph_impl",
        "enable_cuda_graph",
        lambda g: g.graphs and g("enable_cuda_graph"),
        "none",
    ),
    (
        "cuda_graph_impl",
        "external_cuda_graph",
        lambda g: g.graphs and g("external_cuda_graph"),
        "none",
    ),
    (
        "enable_cuda_graph",
        "external_cuda_graph",
        lambda g: g("enable_cuda_graph") and g("external_cuda_graph"),
        "false",
    ),
    (
        "cuda_graph_scope",
        "cuda_graph_impl",
        lambda g: g.graphs == "transformer_engine" and "full_iteration" in g.scopes,
        "[attn]",
    ),
    (
        "cuda_graph_scope",
        "moe_pad_expert_input_to_capacity",
        lambda g: scoped(g, "moe") and not (g("moe_expert_capacity_factor") and g("moe_pad_expert_input_to_capacity")),
        "[attn]",
    ),
    (
        "cuda_graph_scope",
        "moe_expert_capacity_factor",
        lambda g: (
            scoped(g, "moe_preprocess")
            and g("moe_expert_capacity_factor")
            and not g("moe_pad_expert_input_to_capacity")
            and g("moe_token_dispatcher_type") == "alltoall"
        ),
        "[attn]",
    ),
    (
        "recompute_granularity",
        "cuda_graph_scope",
        lambda g: g.graphs and g("recompute_granularity") == "full" and g.scopes != ["full_iteration"],
        "null",
    ),
    (
        "recompute_modules",
        "cuda_graph_scope",
        lambda g: g.graphs == "transformer_engine" and "moe" in g.recomputed and scoped(g, "moe_router"),
        "[core_attn]",
    ),
    (
        "attention_dropout",
        "cuda_graph_scope",
        lambda g: (
            g("attention_dropout", 0) != 0 and "core_attn" in g.recomputed and (whole_graph(g) or scoped(g, "attn"))
        ),
        0.0,
    ),
    (
        "hidden_dropout",
        "cuda_graph_scope",
        lambda g: (
            g("hidden_dropout", 0) != 0
            and any(name in g.recomputed and (whole_graph(g) or scoped(g, name)) for name in ("mlp", "moe"))
        ),
        0.0,
    ),
    (
        "moe_input_jitter_eps",
        "cuda_graph_scope",
        lambda g: (
            g("moe_input_jitter_eps") is not None and "moe" in g.recomputed and (whole_graph(g) or scoped(g, "moe"))
        ),
        "null",
    ),
    (
        "moe_token_dispatcher_type",
        "variable_seq_lengths",
        lambda g: g("moe_token_dispatcher_type") == "allgather" and g("variable_seq_lengths") is True,
        "alltoall",
    ),
    (
        "mtp_num_layers",
        "overlap_moe_expert_parallel_comm",
        lambda g: g("overlap_moe_expert_parallel_comm") and g("mtp_num_layers", 0) > 1,
        1,
    ),
    (
        "overlap_moe_expert_parallel_comm",
        "mtp_num_layers",
        lambda g: (
            g("overlap_moe_expert_parallel_comm")
            and g("mtp_num_layers") == 1
            and g.size("pipeline_model_parallel") == 1
        ),
        "false",
    ),
    (
        "cuda_graph_impl",
        "overlap_moe_expert_parallel_comm",
        lambda g: (
            g("overlap_moe_expert_parallel_comm")
            and g.graphs
            and (g.graphs != "transformer_engine" or scoped(g, "moe", "mlp"))
        ),
        "none",
    ),
    (
        "delay_wgrad_compute",
        "moe_use_legacy_grouped_gemm",
        lambda g: g("delay_wgrad_compute") and g("moe_use_legacy_grouped_gemm"),
        "false",
    ),
    ("flash_decode", "no_rope_freq", lambda g: g("flash_decode") and g("no_rope_freq"), "false"),
    (
        "transformer_impl",
        "normalization",
        lambda g: g("transformer_impl") == "inference_optimized" and g("normalization", "RMSNorm") != "RMSNorm",
        "transformer_engine",
    ),
    *(
        (
            "transformer_impl",
            name,
            lambda g, name=name: g("transformer_impl") == "inference_optimized" and g(name),
            "transformer_engine",
        )
        for name in ("layernorm_zero_centered_gamma", "add_bias_linear", "add_qkv_bias", "use_kitchen")
    ),
    (
        "inference_fuse_tp_communication",
        "transformer_impl",
        lambda g: g("inference_fuse_tp_communication") and g("transformer_impl") != "inference_optimized",
        "false",
    ),
    (
        "batch_invariant_mode",
        "attention_backend",
        lambda g: g("batch_invariant_mode") and "flash" not in str(g("attention_backend", "auto")),
        "false",
    ),
    (
        "experimental_attention_variant",
        "apply_rope_fusion",
        lambda g: g("experimental_attention_variant") == "dsa" and g("apply_rope_fusion"),
        "null",
    ),
    (
        "cache_mla_latents",
        "apply_rope_fusion",
        lambda g: g("cache_mla_latents") and g("apply_rope_fusion"),
        "false",
    ),
    (
        "apply_rope_fusion",
        "rope_type",
        lambda g: (
            g("apply_rope_fusion") and g("rope_type", "yarn") != "yarn" and g.shape is not None and is_latent(g.shape)
        ),
        "false",
    ),
    (
        "linear_num_value_heads",
        "linear_num_key_heads",
        lambda g: is_linear(g) and g("linear_num_value_heads") % g("linear_num_key_heads"),
        "null",
    ),
    (
        "attention_output_gate",
        "multi_latent_attention",
        lambda g: g("attention_output_gate") and g("multi_latent_attention"),
        "false",
    ),
)
"""Arguments that exclude each other: the one to report, the other, whether a file has both, and a value that is taken."""
