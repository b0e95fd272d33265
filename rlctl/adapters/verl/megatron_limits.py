"""What Megatron-core 0.16 refuses of the settings that verl hands to it: ``TransformerConfig`` and ``OptimizerConfig``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.verl.combination_limits import MEGATRON, OVERRIDES, model_row, needed_row, pair_row
from rlctl.adapters.verl.requirement_values import ACTOR, MAIN, MODEL, strategy
from rlctl.adapters.verl.value_limits import LOADED, Applies, count_rows, name_row, value_row
from rlctl.common.messages.reasons import said

SOURCE = "megatron/core/transformer/transformer_config.py, TransformerConfig.__post_init__"
OPTIMIZER = "megatron/core/optimizer/optimizer_config.py, OptimizerConfig.__post_init__"
RECOMPUTED = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
BALANCING = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")
VIRTUAL = f"{MEGATRON}.virtual_pipeline_model_parallel_size"


def _key(name: str) -> str:
    return f"{OVERRIDES}.{name}"


def _on(*names: str) -> Applies:
    """Whether Megatron trains, with all of some settings."""
    return lambda values: strategy(values) == "megatron" and all(values[_key(name)] for name in names)


def _size(values: Values, name: str) -> int:
    return values.number(f"{MEGATRON}.{name}_parallel_size")


def _excluded(name: str, other: str, excluded: Applies, fix: object = "false", key: str = "") -> Requirement:
    """A setting that another one excludes; ``key`` is that of the other if it is none of ``TransformerConfig``."""
    return pair_row(_key(name), key or _key(other), lambda v: _on(name)(v) and excluded(v), SOURCE, fix, LOADED)


def _is(name: str, *wanted: Any) -> Applies:
    return lambda values: values[_key(name)] in wanted


def _is_set(name: str) -> Applies:
    return lambda values: values[_key(name)] is not None


def _recomputation() -> Iterator[Requirement]:
    """Recomputing and offloading activations."""
    for name in ("recompute_method", "recompute_num_layers"):
        full: Applies = lambda v: _on()(v) and _is("recompute_granularity", "full")(v)  # noqa: E731
        yield needed_row(_key(name), _key("recompute_granularity"), full, SOURCE, LOADED)
    yield _excluded("recompute_num_layers", "recompute_granularity", _is("recompute_granularity", "selective"), "null")
    yield _excluded(
        "distribute_saved_activations",
        "",
        lambda v: (
            bool(v[_key("recompute_granularity")])
            and v[f"{MEGATRON}.sequence_parallel"]
            and _size(v, "tensor_model") > 1
        ),
        key=f"{MEGATRON}.sequence_parallel",
    )
    for name, names, applies in (
        ("recompute_modules", RECOMPUTED, lambda v: _on()(v) and _is("recompute_granularity", "selective")(v)),
        ("offload_modules", OFFLOADED, _on("fine_grained_activation_offloading")),
    ):
        yield value_row(
            _key(name),
            lambda value, names=names: set(value) <= set(names),  # type: ignore[misc]
            said("a list of names from {names}", names=", ".join(names)),
            SOURCE,
            f"[{names[0]}]",
            LOADED,
            applies,
        )
    yield _excluded("cpu_offloading", "recompute_granularity", _is_set("recompute_granularity"))
    yield _excluded(
        "cpu_offloading",
        "",
        lambda v: _size(v, "pipeline_model") > 1,
        key=f"{MEGATRON}.pipeline_model_parallel_size",
    )
    yield _excluded("cpu_offloading", "fine_grained_activation_offloading", _on("fine_grained_activation_offloading"))
    yield needed_row(
        _key("offload_modules"),
        _key("fine_grained_activation_offloading"),
        _on("fine_grained_activation_offloading"),
        SOURCE,
        LOADED,
    )
    yield _excluded(
        "offload_modules",
        "fine_grained_activation_offloading",
        lambda v: (
            v[_key("fine_grained_activation_offloading")]
            and "attn_proj" in v[_key("offload_modules")]
            and "core_attn" not in v[_key("offload_modules")]
        ),
        "[core_attn, attn_proj]",
    )


def _precision() -> Iterator[Requirement]:
    """Numbers of 8 and 4 bits, and the optimizer's states."""
    yield _excluded("fp4", "fp8", _is_set("fp8"), "null")
    for name in ("fp8", "fp4"):
        yield _excluded(f"{name}_param", name, lambda v, name=name: not v[_key(name)])  # type: ignore[misc]
    yield _excluded("moe_router_padding_for_quantization", "fp8", lambda v: not v[_key("fp8")] and not v[_key("fp4")])
    optim = f"{ACTOR}.optim"
    precise = f"{optim}.use_precision_aware_optimizer"
    for other, excluded in (
        (f"{optim}.optimizer", lambda v: v.written(f"{optim}.optimizer") and v[f"{optim}.optimizer"] != "adam"),
        (f"{MEGATRON}.use_distributed_optimizer", lambda v: v[f"{MEGATRON}.use_distributed_optimizer"] is False),
    ):
        yield pair_row(
            precise,
            other,
            lambda v, excluded=excluded: _on()(v) and v[precise] and excluded(v),  # type: ignore[misc]
            OPTIMIZER,
            "false",
            LOADED,
        )


def _experts() -> Iterator[Requirement]:
    """Routing and exchange of experts."""
    dispatcher = "moe_token_dispatcher_type"
    yield model_row(
        f"{MEGATRON}.expert_model_parallel_size",
        f"{MODEL}.path",
        lambda shape: not shape.experts,
        "has no experts",
        SOURCE,
        lambda v: _on()(v) and _size(v, "expert_model") > 1,
        1,
    )
    yield _excluded("moe_enable_deepep", dispatcher, lambda v: v[_key(dispatcher)] not in (None, "flex"))
    yield _excluded(
        "moe_pad_expert_input_to_capacity",
        dispatcher,
        lambda v: v[_key(dispatcher)] == "flex" and v[_key("moe_enable_deepep")],
    )
    yield _excluded("moe_shared_expert_overlap", dispatcher, lambda v: v[_key(dispatcher)] not in (None, "alltoall"))
    yield needed_row(
        _key("moe_expert_capacity_factor"),
        _key("moe_pad_expert_input_to_capacity"),
        _on("moe_pad_expert_input_to_capacity"),
        SOURCE,
        LOADED,
    )
    yield name_row(
        _key("moe_router_load_balancing_type"),
        BALANCING,
        SOURCE,
        LOADED,
        applies=lambda v: (
            _on("moe_expert_capacity_factor")(v) and isinstance(v[_key("moe_router_load_balancing_type")], str)
        ),
    )
    yield needed_row(
        _key("moe_router_num_groups"), _key("moe_router_group_topk"), _on("moe_router_group_topk"), SOURCE, LOADED
    )
    overlap = "overlap_moe_expert_parallel_comm"
    for name, excluded in (
        (dispatcher, lambda v: v[_key(dispatcher)] not in (None, "alltoall", "flex")),
        ("recompute_granularity", _is("recompute_granularity", "full")),
        ("recompute_method", _is_set("recompute_method")),
        ("recompute_num_layers", _is_set("recompute_num_layers")),
        ("moe_shared_expert_overlap", _on("moe_shared_expert_overlap")),
    ):
        yield _excluded(overlap, name, excluded)
    yield _excluded(
        overlap,
        "",
        lambda v: _size(v, "expert_model") == 1,
        key=f"{MEGATRON}.expert_model_parallel_size",
    )
    yield _excluded(
        overlap,
        "",
        lambda v: _size(v, "pipeline_model") > 1 and v[VIRTUAL] is None,
        key=VIRTUAL,
    )
    for name in ("delay_wgrad_compute", "ep_overlap_early_attn_memory_release"):
        yield _excluded(name, overlap, lambda v: not v[_key(overlap)])


def _pipeline() -> Iterator[Requirement]:
    """Layers of the first and the last stage, and CUDA graphs."""
    ends = tuple(f"num_layers_in_{end}_pipeline_stage" for end in ("first", "last"))
    yield from count_rows(tuple(map(_key, ends)), 1, SOURCE, applies=_on())
    for name in ends:
        yield pair_row(
            _key(name),
            VIRTUAL,
            lambda v, name=name: _on(name)(v) and v.number(_key(name)) % v.number(VIRTUAL),  # type: ignore[misc]
            SOURCE,
            "null",
            LOADED,
        )
        for other in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
            yield _excluded(name, other, _on(other), "null")
    for name in (*ends, "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        yield _excluded(name, "pipeline_model_parallel_layout", _on("pipeline_model_parallel_layout"), "null")
    yield name_row(_key("cuda_graph_impl"), ("none", "transformer_engine", "local"), SOURCE, LOADED, applies=_on())
    yield _excluded("cpu_offloading", "cuda_graph_impl", lambda v: v[_key("cuda_graph_impl")] not in (None, "none"))


UNCHOSEN = Requirement(
    f"{ACTOR}.strategy",
    lambda v: v.program == MAIN and v[f"{ACTOR}.strategy"] == "megatron" and not v.written("model_engine"),
    said(
        "{key} is megatron, but the command starts from the config of FSDP, which lacks the section {section}: verl stops when "
        "it "
        "makes its workers",
        key=f"{ACTOR}.strategy",
        section=MEGATRON,
    ),
    "verl/trainer/main_ppo.py, main",
    "add --config-name=ppo_megatron_trainer to the command",
    since="0.3",
    until="0.7",
)
"""Until 0.7 Megatron has a config of its own, which the command names."""

ROWS: tuple[Requirement, ...] = (UNCHOSEN, *_recomputation(), *_precision(), *_experts(), *_pipeline())
