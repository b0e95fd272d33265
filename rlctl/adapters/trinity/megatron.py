"""Trinity: a Megatron engine, of which verl's keys under ``trainer_config`` say most."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.checkpoint_path import checkpoint
from rlctl.adapters.engine.rules import (
    ABSENT,
    SAME,
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Tree,
    Writing,
)
from rlctl.adapters.engine.values import Partly
from rlctl.common.messages.reasons import said

MEGATRON = (
    ("tensor_model_parallel_size", "tensor_parallel_size", 1),
    ("pipeline_model_parallel_size", "pipeline_parallel_size", 1),
    ("virtual_pipeline_model_parallel_size", "virtual_pipeline_parallel_size", None),
    ("context_parallel_size", "context_parallel_size", 1),
    ("expert_model_parallel_size", "expert_parallel_size", 1),
    ("expert_tensor_parallel_size", "expert_tensor_parallel_size", None),
    ("sequence_parallel", "sequence_parallel", True),
)
"""What Trinity has keys of its own for since 0.6."""
RECOMPUTE = (
    ("recompute_granularity", "recompute_granularity", "full"),
    ("recompute_method", "recompute_method", "uniform"),
    ("recompute_num_layers", "recompute_layers", 1),
    ("recompute_modules", "recompute_modules", ["core_attn"]),
)
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


def megatron(block: str, to: str) -> list[Rule]:
    """What only verl's keys say of a Megatron engine; verl takes what stands in its overrides as it is."""
    transformer, ddp = f"{block}.override_transformer_config", f"{block}.override_ddp_config"
    none = Partly({None: "none"})
    return [
        Key(f"{block}.use_distributed_optimizer", f"{to}.distributed_optimizer", True),
        checkpoint(block, to, "trinity"),
        *(
            Key(f"{transformer}.{key}", f"{to}.{field}", default, none if field.endswith("granularity") else SAME)
            for key, field, default in (*RECOMPUTE, *MOE)
        ),
        Tree(transformer, f"{to}.transformer", but=tuple(key for key, _, _ in (*RECOMPUTE, *MOE))),
        *(Key(f"{ddp}.{key}", f"{to}.{field}", default) for key, field, default in OVERLAPS),
        Tree(ddp, f"{to}.ddp", but=tuple(key for key, _, _ in OVERLAPS)),
        _bridge(block, f"{to}.bridge"),
    ]


def _bridge(block: str, to: str) -> CustomRule:
    """How Hugging Face weights are converted: two switches as one word."""
    keys = (f"{block}.use_mbridge", f"{block}.vanilla_mbridge")

    def read(view: Reading) -> Iterator[Flow]:
        if view.written(*keys):
            word = (
                "builtin"
                if not view.get(keys[0], True)
                else "mbridge"
                if view.get(keys[1], True)
                else "megatron_bridge"
            )
            yield Flow(view.to(to), word, tuple(view.path(key) for key in keys))

    def write(view: Writing) -> Iterator[Out]:
        word, used = view.get(to), (view.to(to),)
        if word == "auto":
            yield Flow((), None, used)
        elif word in ("builtin", "mbridge", "megatron_bridge"):
            yield Flow(view.path(keys[0]), word != "builtin", used)
            if word != "builtin":
                yield Flow(view.path(keys[1]), word == "mbridge", used, always=word != "mbridge")
        elif isinstance(word, str):
            yield Inexpressible(used, said("Trinity's Megatron has no {word}", word=word))

    return CustomRule("Megatron's bridge", tuple(DialectKey(key, ABSENT) for key in keys), (to,), read, write)
