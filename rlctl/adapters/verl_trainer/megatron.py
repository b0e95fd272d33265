"""Blocks of verl's Megatron engine. verl passes its overrides to Megatron unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlctl.adapters.engine.combined_rows import Switches
from rlctl.adapters.engine.rules import FROM_SCHEMA, SAME, Converter, DialectKey, Key, Rule, Tree
from rlctl.adapters.engine.values import Partly

SIZES = (
    ("tensor_model_parallel_size", "tensor_parallel_size"),
    ("pipeline_model_parallel_size", "pipeline_parallel_size"),
    ("virtual_pipeline_model_parallel_size", "virtual_pipeline_parallel_size"),
    ("context_parallel_size", "context_parallel_size"),
    ("expert_model_parallel_size", "expert_parallel_size"),
    ("expert_tensor_parallel_size", "expert_tensor_parallel_size"),
    ("sequence_parallel", "sequence_parallel"),
)
"""How a model is split: verl's key, and the canonical one."""
DATACLASS: Mapping[str, Any] = {
    **dict.fromkeys(("tensor_model_parallel_size", "pipeline_model_parallel_size"), 1),
    **dict.fromkeys(("context_parallel_size", "expert_model_parallel_size"), 1),
    **dict.fromkeys(("virtual_pipeline_model_parallel_size", "expert_tensor_parallel_size")),
    "sequence_parallel": True,
}
"""What a block says that is handed on as a mapping: ``McoreEngineConfig`` in ``verl/workers/config/engine.py``."""
RECOMPUTE = {
    "recompute_granularity": "recompute_granularity",
    "recompute_method": "recompute_method",
    "recompute_num_layers": "recompute_layers",
    "recompute_modules": "recompute_modules",
}
"""verl's keys, whose defaults frameworks set apart, with the canonical ones."""
MOE = (
    ("moe_token_dispatcher_type", "moe.dispatcher", None),
    ("moe_grouped_gemm", "moe.grouped_gemm", False),
    ("moe_shared_expert_overlap", "moe.shared_expert_overlap", False),
    ("moe_layer_recompute", "moe.layer_recompute", False),
)
OVERLAPS = (
    ("overlap_grad_reduce", "overlap_gradient_reduce", False),
    ("overlap_param_gather", "overlap_parameter_gather", False),
)
GRANULARITY = Partly({None: "none"})


def overrides(
    block: str,
    to: str,
    recompute: tuple[Any, Any, Any, Any],
    *,
    default: Callable[[str, Any], Any] = lambda name, value: value,
    like: str = "",
    modules: Converter = SAME,
    since: tuple[str, str] = ("", ""),
) -> list[Rule]:
    """The overrides of a block: those that have canonical keys, and the rest unchanged.

    Args:
        block: the place of the block.
        to: the canonical engine.
        recompute: the defaults of ``RECOMPUTE``.
        default: makes a key's default of its name in the block and the usual one.
        like: the block that this one follows.
        modules: how the names of recomputed modules change.
        since: the first releases that read overrides of DDP and of the transformer.
    """
    ddp, transformer = "override_ddp_config", "override_transformer_config"
    convert: dict[str, Converter] = {"recompute_granularity": GRANULARITY, "recompute_modules": modules}
    typed = (*((key, field, value) for (key, field), value in zip(RECOMPUTE.items(), recompute, strict=True)), *MOE)

    def row(within: str, key: str, field: str, value: Any) -> Key:
        name = f"{within}.{key}"
        first = since[within == transformer]
        return Key(f"{block}.{name}", f"{to}.{field}", default(name, value), convert.get(key, SAME), since=first)

    return [
        *(row(ddp, *each) for each in OVERLAPS),
        Tree(f"{block}.{ddp}", f"{to}.ddp", since[0], but=tuple(key for key, _, _ in OVERLAPS)),
        *(row(transformer, *each) for each in typed),
        Tree(
            f"{block}.{transformer}",
            f"{to}.transformer",
            since[1],
            but=tuple(key for key, _, _ in typed),
            like=f"{like}.{transformer}" if like else "",
        ),
    ]


BRIDGES = {"mbridge": (True, True), "megatron_bridge": (True, False), "builtin": (False, None)}
"""How Hugging Face weights are converted, as two switches."""


def bridge(block: str, to: str, default: Any = FROM_SCHEMA, *, if_written: bool = False, missing: str = "") -> Switches:
    """The two switches of a block."""
    return Switches(
        (DialectKey(f"{block}.use_mbridge", default), DialectKey(f"{block}.vanilla_mbridge", default)),
        f"{to}.bridge",
        BRIDGES,
        open=("auto",),
        missing=missing,
        if_written=if_written,
        formula="use_mbridge, vanilla_mbridge",
    )
