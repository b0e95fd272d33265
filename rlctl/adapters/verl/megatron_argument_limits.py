"""What Megatron-core 0.16 refuses of its arguments: verl hands ``override_transformer_config`` to ``TransformerConfig``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.requirements import Requirement
from rlctl.adapters.verl.combination_limits import MEGATRON, OVERRIDES, model_row, needed_row, pair_row
from rlctl.adapters.verl.megatron_arguments import (
    LINEAR,
    PAIRS,
    Given,
    Refused,
    is_latent,
    is_linear,
    lacks_linear,
    scoped,
)
from rlctl.adapters.verl.megatron_limits import BALANCING
from rlctl.adapters.verl.requirement_values import MODEL, strategy
from rlctl.adapters.verl.value_limits import LOADED, Applies, name_row, value_row
from rlctl.common.messages.reasons import said

SOURCE = "megatron/core/transformer/transformer_config.py, TransformerConfig.__post_init__"
PARALLEL = "megatron/core/model_parallel_config.py, ModelParallelConfig.__post_init__"
BUFFERS = "megatron/core/distributed/distributed_data_parallel_config.py, DistributedDataParallelConfig.__post_init__"
DDP = f"{MEGATRON}.override_ddp_config"
SCOPES = ("full_iteration", "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")
"""Parts of a layer that a CUDA graph may hold; ``full`` is the whole layer."""


def _on(refused: Refused) -> Applies:
    """Whether Megatron trains, and refuses."""
    return lambda values: strategy(values) == "megatron" and refused(Given(values))


def _pairs() -> Iterator[Requirement]:
    for name, other, refused, fix in PAIRS:
        yield pair_row(f"{OVERRIDES}.{name}", f"{OVERRIDES}.{other}", _on(refused), SOURCE, fix, LOADED)
    for name, size, refused in (
        (
            "pipeline_model_parallel_layout",
            "virtual_pipeline_model_parallel_size",
            lambda g: g.virtual is not None and _virtual(g) not in (None, g.virtual),
        ),
        (
            "experimental_attention_variant",
            "context_parallel_size",
            lambda g: (
                g("experimental_attention_variant") in ("dsa", "gated_delta_net") and g.size("context_parallel") > 1
            ),
        ),
    ):
        yield pair_row(f"{OVERRIDES}.{name}", f"{MEGATRON}.{size}", _on(refused), SOURCE, "null", LOADED)
    for heads in ("linear_num_key_heads", "linear_num_value_heads"):
        yield pair_row(
            f"{OVERRIDES}.{heads}",
            f"{MEGATRON}.tensor_model_parallel_size",
            _on(lambda g, heads=heads: is_linear(g) and g(heads) % g.size("tensor_model_parallel")),  # type: ignore[misc]
            SOURCE,
            "null",
            LOADED,
        )
    variant = f"{OVERRIDES}.experimental_attention_variant"
    yield needed_row(f"{OVERRIDES}.{LINEAR[0]}", variant, _on(lacks_linear), SOURCE, LOADED)
    for key in (f"{OVERRIDES}.{name}" for name in LINEAR[1:]):  # which have defaults, so only a written null is none
        yield needed_row(key, variant, lambda v, key=key: v.written(key) and _on(is_linear)(v), SOURCE, LOADED)  # type: ignore[misc]
    for name, other, excluded in (
        ("defer_embedding_wgrad_compute", "", lambda g: g.size("pipeline_model_parallel") == 1),
        (
            "defer_embedding_wgrad_compute",
            "gradient_accumulation_fusion",
            lambda g: g("gradient_accumulation_fusion") is False,
        ),
        ("overlap_p2p_comm_warmup_flush", "overlap_p2p_comm", lambda g: not g("overlap_p2p_comm")),
        ("overlap_p2p_comm_warmup_flush", "batch_p2p_comm", lambda g: g("batch_p2p_comm")),
    ):
        key = f"{OVERRIDES}.{other}" if other else f"{MEGATRON}.pipeline_model_parallel_size"
        both = _on(lambda g, name=name, excluded=excluded: g(name) and excluded(g))  # type: ignore[misc]
        yield pair_row(f"{OVERRIDES}.{name}", key, both, PARALLEL, "false", LOADED)
    reuse, gather = f"{DDP}.reuse_grad_buf_for_mxfp8_param_ag", f"{DDP}.fp8_param_gather"
    yield pair_row(reuse, gather, lambda v: _on(bool)(v) and v[reuse] and not v[gather], BUFFERS, "false", LOADED)


def _virtual(g: Given) -> int | None:
    """The virtual stages of a layout: its stages by the pipeline's; None for one that cannot be counted."""
    layout = g("pipeline_model_parallel_layout")
    stages = _stages(layout) if isinstance(layout, str) else len(layout) if isinstance(layout, list) else 0
    size = g.size("pipeline_model_parallel")
    return stages // size if stages and stages % size == 0 else None


def _stages(layout: str) -> int:
    """The stages of a layout as ``Et*3|(tt|)*29,m|L``."""
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda match: match[1] * min(int(match[2]), 9999), layout.replace(",", ""))
    return text.count("|") + 1


def _values() -> Iterator[Requirement]:
    """Arguments with values that Megatron-core does not have."""
    for end in ("start", "end"):
        name = f"num_layers_at_{end}_in_bf16"
        yield value_row(
            f"{OVERRIDES}.{name}",
            lambda value: False,
            said("at least 0 and at most the layers of a pipeline stage"),
            SOURCE,
            1,
            LOADED,
            _on(
                lambda g, name=name: (  # type: ignore[misc]
                    g("fp8")
                    and g("first_last_layers_bf16")
                    and _outside(g, g(name, 1), g.size("pipeline_model_parallel"))
                )
            ),
        )
    yield value_row(
        f"{OVERRIDES}.cpu_offloading_num_layers",
        lambda value: False,
        said("at least 0 and fewer than the model's layers"),
        SOURCE,
        1,
        LOADED,
        _on(lambda g: g("cpu_offloading") and _outside(g, g("cpu_offloading_num_layers", 0), 1, spare=1)),
    )
    for bits in ("fp8", "fp4"):
        yield needed_row(
            f"{OVERRIDES}.{bits}_quantizer_factory",
            f"{OVERRIDES}.{bits}_recipe",
            _on(lambda g, bits=bits: g(bits) and g(f"{bits}_recipe") == "custom"),  # type: ignore[misc]
            SOURCE,
            LOADED,
        )
    balancing = "moe_router_load_balancing_type"
    yield value_row(
        f"{OVERRIDES}.{balancing}",
        lambda value: set(value) <= set(BALANCING),
        said("a list of names from {names}", names=", ".join(BALANCING)),
        SOURCE,
        "aux_loss",
        LOADED,
        _on(lambda g: g("moe_expert_capacity_factor") and isinstance(g(balancing), list)),
    )
    yield value_row(
        f"{OVERRIDES}.moe_aux_loss_coeff",
        lambda value: False,
        said("a list as long as that of {key}", key=f"{OVERRIDES}.{balancing}"),
        SOURCE,
        "[0.001]",
        LOADED,
        _on(lambda g: isinstance(g(balancing), list) and not _as_long(g("moe_aux_loss_coeff"), g(balancing))),
    )
    yield value_row(
        f"{OVERRIDES}.cuda_graph_scope",
        lambda value: isinstance(value, str | list),
        said("a list of names from {names}", names=", ".join(SCOPES)),
        SOURCE,
        "[attn]",
        LOADED,
        _on(bool),
    )
    yield value_row(
        f"{OVERRIDES}.cuda_graph_scope",
        lambda value: False,
        said("a list of names from {names}", names=", ".join(SCOPES)),
        SOURCE,
        "[attn]",
        LOADED,
        _on(lambda g: g.scopes not in ([], ["full"]) and not set(g.scopes) <= set(SCOPES)),
    )
    yield value_row(
        f"{OVERRIDES}.cuda_graph_scope",
        lambda value: False,
        said("at most one of moe and moe_router, and moe_preprocess with moe_router only"),
        SOURCE,
        "[attn]",
        LOADED,
        _on(
            lambda g: (
                (scoped(g, "moe") and scoped(g, "moe_router"))
                or (g.graphs == "transformer_engine" and scoped(g, "moe_preprocess") and not scoped(g, "moe_router"))
            )
        ),
    )
    yield value_row(
        f"{OVERRIDES}.cp_comm_type",
        lambda value: isinstance(value, str | list),
        said("a name, or a list of one for each layer"),
        SOURCE,
        "p2p",
        LOADED,
        _on(lambda g: g.size("context_parallel") > 1),
    )
    for name in ("cp_comm_type", "no_rope_freq"):
        yield value_row(
            f"{OVERRIDES}.{name}",
            lambda value: False,
            said("a list of one for each of the model's layers"),
            SOURCE,
            "null",
            LOADED,
            _on(
                lambda g, name=name: (  # type: ignore[misc]
                    (name != "cp_comm_type" or g.size("context_parallel") > 1)
                    and isinstance(g(name), list)
                    and g.shape is not None
                    and len(g(name)) != g.shape.layers
                )
            ),
        )
    yield value_row(
        f"{OVERRIDES}.no_rope_freq",
        lambda value: False,
        said("a divisor of the model's layers"),
        SOURCE,
        "null",
        LOADED,
        _on(
            lambda g: (
                type(g("no_rope_freq")) is int and g.shape is not None and g.shape.layers % (g("no_rope_freq") or 1)
            )
        ),
    )
    yield value_row(
        f"{OVERRIDES}.wgrad_deferral_limit",
        lambda value: value >= 0,
        said("{low} or more", low=0),
        PARALLEL,
        0,
        LOADED,
        _on(lambda g: g("defer_embedding_wgrad_compute")),
    )
    yield name_row(
        f"{OVERRIDES}.transformer_impl",
        ("local", "transformer_engine", "inference_optimized"),
        SOURCE,
        LOADED,
        applies=_on(bool),
    )


def _outside(g: Given, count: Any, stages: int, spare: int = 0) -> bool:
    """Whether a number of layers is below 0, or more than a stage has, less some that are spared."""
    return count < 0 or (g.shape is not None and count > g.shape.layers // stages - spare)


def _as_long(one: object, other: list[object]) -> bool:
    return isinstance(one, list) and len(one) == len(other)


def _models() -> Iterator[Requirement]:
    """Arguments that a model does not allow."""
    path = f"{MODEL}.path"
    for name, lacks, what, refused, fix in (
        (
            "rotary_interleaved",
            is_latent,
            "has multi-latent attention, which does not interleave",
            lambda g: g("rotary_interleaved"),
            "false",
        ),
        (
            "cuda_graph_scope",
            lambda shape: not shape.experts,
            "has no experts",
            lambda g: scoped(g, "moe", "moe_router"),
            "[attn]",
        ),
        (
            "cuda_graph_scope",
            lambda shape: shape.experts and not shape.dense_layers,
            "has experts in every layer",
            lambda g: scoped(g, "mlp") and g("moe_layer_freq", 1) == 1,
            "[attn]",
        ),
        (
            "recompute_modules",
            lambda shape: not is_latent(shape),
            "has no multi-latent attention",
            lambda g: "mla_up_proj" in g.recomputed,
            "[core_attn]",
        ),
        (
            "attention_output_gate",
            is_latent,
            "has multi-latent attention, which takes no output gate",
            lambda g: g("attention_output_gate"),
            "false",
        ),
        (
            "moe_ffn_hidden_size",
            lambda shape: not shape.experts,
            "has no experts",
            lambda g: g("num_moe_experts") is None and g("moe_ffn_hidden_size") is not None,
            "null",
        ),
    ):
        yield model_row(f"{OVERRIDES}.{name}", path, lacks, what, SOURCE, _on(refused), fix)
    yield value_row(
        f"{OVERRIDES}.moe_router_num_groups",
        lambda value: False,
        said("a divisor of the model's experts"),
        SOURCE,
        "null",
        LOADED,
        _on(
            lambda g: (
                g("moe_router_group_topk")
                and g.shape is not None
                and g.shape.experts
                and g.shape.experts % int(g("moe_router_num_groups", 1))
            )
        ),
    )
    for name, low in (("num_moe_experts", 1), ("moe_shared_expert_intermediate_size", 1)):
        yield value_row(
            f"{OVERRIDES}.{name}",
            lambda value: value >= 1,
            said("{low} or more", low=low),
            SOURCE,
            "null",
            LOADED,
            _on(bool),
        )
    yield pair_row(
        f"{OVERRIDES}.add_bias_linear",
        f"{MEGATRON}.expert_tensor_parallel_size",
        lambda v: (
            _on(lambda g: g("add_bias_linear") and g.shape is not None and g.shape.experts)(v)
            and v.number(f"{MEGATRON}.expert_tensor_parallel_size") > 1
        ),
        SOURCE,
        "false",
        LOADED,
    )
    for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        yield pair_row(
            f"{OVERRIDES}.{name}",
            f"{MEGATRON}.pipeline_model_parallel_size",
            _on(lambda g, name=name: g(name) and _uneven(g)),  # type: ignore[misc]
            SOURCE,
            "false",
            LOADED,
        )


def _uneven(g: Given) -> bool:
    """Whether layers, with the embedding and the loss as one each, do not divide into the stages."""
    if g.shape is None:
        return False
    counted = sum(bool(g(f"account_for_{name}_in_pipeline_split")) for name in ("embedding", "loss"))
    layers, size = g.shape.layers + counted, g.size("pipeline_model_parallel")
    return bool(layers % size or (layers // size) % (g.virtual or 1))


ROWS: tuple[Requirement, ...] = (*_pairs(), *_values(), *_models())
