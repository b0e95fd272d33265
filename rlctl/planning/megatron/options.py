"""The settings of Megatron-core's three config classes, and whether values put over them fit.

They are read from the source of the installed package, which is not imported: names and types are those of its release.

    train.engine.transformer          TransformerConfig, and ModelParallelConfig, which it extends
    train.engine.ddp                  DistributedDataParallelConfig
    train.engine.optimizer_overrides  OptimizerConfig
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlctl.common.errors import nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.train import Megatron

FILES = {
    "TransformerConfig": ("model_parallel_config.py", "transformer/transformer_config.py"),
    "DistributedDataParallelConfig": ("distributed/distributed_data_parallel_config.py",),
    "OptimizerConfig": ("optimizer/optimizer_config.py",),
}
"""Where a class and those that it extends are, below ``megatron/core``."""
EXTENDED = {"TransformerConfig": ("ModelParallelConfig",)}
KINDS = {
    "transformer": "TransformerConfig",
    "ddp": "DistributedDataParallelConfig",
    "optimizer_overrides": "OptimizerConfig",
}
"""The class that each key of ``train.engine`` is put over."""

OWN: Mapping[str, Mapping[str, str]] = {
    "transformer": {
        "tensor_model_parallel_size": "train.engine.tensor_parallel_size",
        "pipeline_model_parallel_size": "train.engine.pipeline_parallel_size",
        "virtual_pipeline_model_parallel_size": "train.engine.virtual_pipeline_parallel_size",
        "context_parallel_size": "train.engine.context_parallel_size",
        "expert_model_parallel_size": "train.engine.expert_parallel_size",
        "expert_tensor_parallel_size": "train.engine.expert_tensor_parallel_size",
        "sequence_parallel": "train.engine.sequence_parallel",
        "recompute_granularity": "train.engine.recompute_granularity",
        "recompute_method": "train.engine.recompute_method",
        "recompute_num_layers": "train.engine.recompute_layers",
        "recompute_modules": "train.engine.recompute_modules",
        "moe_token_dispatcher_type": "train.engine.moe.dispatcher",
        "moe_grouped_gemm": "train.engine.moe.grouped_gemm",
        "moe_shared_expert_overlap": "train.engine.moe.shared_expert_overlap",
        "moe_layer_recompute": "train.engine.moe.layer_recompute",
        **dict.fromkeys(("bf16", "fp16", "params_dtype", "pipeline_dtype"), "train.precision.compute"),
    },
    "ddp": {
        "use_distributed_optimizer": "train.engine.distributed_optimizer",
        "overlap_grad_reduce": "train.engine.overlap_gradient_reduce",
        "overlap_param_gather": "train.engine.overlap_parameter_gather",
    },
    "optimizer_overrides": {
        "use_distributed_optimizer": "train.engine.distributed_optimizer",
        "overlap_param_gather": "train.engine.overlap_parameter_gather",
        "lr": "train.optimizer.lr",
        "min_lr": "train.lr_scheduler.min_lr",
        "weight_decay": "train.optimizer.weight_decay",
        "clip_grad": "train.optimizer.max_grad_norm",
        **dict.fromkeys(("bf16", "fp16", "params_dtype"), "train.precision.compute"),
    },
}
"""Settings that a key of the config holds: said there, and nowhere else."""

SETTLED: Mapping[str, Mapping[str, Any]] = {
    "transformer": {"calculate_per_token_loss": True, "batch_p2p_comm": False},
    "optimizer_overrides": {"decoupled_lr": None, "decoupled_min_lr": None},
}
"""Settings that the engine's own passes and steps need as they are; whatever else is written is refused."""

ACCELERATIONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("apply_rope_fusion", "moe_permute_fusion", "moe_router_fusion", "tp_comm_overlap"), "transformer_engine"
    ),
    "gradient_accumulation_fusion": "fused_weight_gradient_mlp_cuda",
}
"""Settings of ``transformer`` that change no number and need a package on a GPU: left off where it is not installed."""

DTYPES = ("float32", "bfloat16", "float16", "fp32", "bf16", "fp16")
"""What stands for a number type in a config."""
PLAIN: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list, tuple),
    "dict": (dict,),
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that cannot be put over Megatron's."""

    key: str
    """Of ``train.engine``: ``transformer``, ``ddp`` or ``optimizer_overrides``."""
    name: str
    message: str
    hint: str


def installed() -> Path | None:
    """The folder ``megatron/core`` of the installed package; None where there is none."""
    found = importlib.util.find_spec("megatron")
    places = [Path(place) / "core" for place in (found.submodule_search_locations or ())] if found is not None else []
    return next((place for place in places if (place / "model_parallel_config.py").is_file()), None)


@cache
def settings_of(kind: str) -> Mapping[str, ast.expr]:
    """The settings of a class by name, each with its annotation; empty where Megatron-core is not installed."""
    core = installed()
    if core is None:
        return {}
    names = (kind, *EXTENDED.get(kind, ()))
    trees = [ast.parse((core / file).read_text(encoding="utf-8")) for file in FILES[kind]]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef) and node.name in names]
    fields = (line for each in classes for line in each.body if isinstance(line, ast.AnnAssign))
    return {line.target.id: line.annotation for line in fields if isinstance(line.target, ast.Name)}


def misfits(engine: Megatron) -> Iterator[Misfit]:
    """What is put over Megatron's settings and does not fit; nothing where Megatron-core is not installed."""
    for key, kind in KINDS.items():
        known = settings_of(kind)
        for name, value in getattr(engine, key).items() if known else ():
            own = OWN[key].get(name)
            if name not in known:
                message = said("Megatron-core's {kind} has no {name}", kind=kind, name=name)
                yield Misfit(key, name, message, nearest(name, known) or "remove it: nothing would read it")
            elif own is not None:
                yield Misfit(key, name, said("{name} has its own key", name=name), said("set {key} instead", key=own))
            elif (needed := SETTLED.get(key, {}).get(name, value)) != value:
                yield Misfit(
                    key,
                    name,
                    said("{name} is {value!r}; the engine needs {needed!r}", name=name, value=value, needed=needed),
                    "remove it",
                )
            elif not fits(known[name], value):
                expected = ast.unparse(known[name])
                yield Misfit(
                    key,
                    name,
                    said(
                        "{name} is {value!r}; {kind} takes {expected}",
                        name=name,
                        value=value,
                        kind=kind,
                        expected=expected,
                    ),
                    said("write it as {expected}", expected=expected),
                )


def left_off(engine: Megatron) -> list[str]:
    """The accelerations that are asked for and whose package is not installed here."""
    wanted = [name for name in ACCELERATIONS if engine.transformer.get(name)]
    return [name for name in wanted if importlib.util.find_spec(ACCELERATIONS[name]) is None]


def fits(annotation: ast.expr, value: Any) -> bool:
    """Whether a value of a config is what an annotation says; functions cannot be written in a config."""
    match annotation:
        case ast.Constant(value=None):
            return value is None
        case ast.Name(id=name) if name in PLAIN:
            return isinstance(value, PLAIN[name]) and (name == "bool" or not isinstance(value, bool))
        case ast.Name(id="Callable"):
            return False
        case ast.Name():
            return isinstance(value, str)  # an enumeration, by the name of a member
        case ast.Attribute(attr="dtype"):
            return isinstance(value, str) and value.removeprefix("torch.") in DTYPES
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return value is None or fits(inner, value)
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=options)):
            return any(fits(option, value) for option in options)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            options = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return value in [option.value for option in options if isinstance(option, ast.Constant)]
        case ast.Subscript(value=ast.Name(id="List" | "list"), slice=inner):
            return isinstance(value, list | tuple) and all(fits(inner, each) for each in value)
        case ast.Subscript(value=ast.Name(id="Tuple" | "tuple")):
            return isinstance(value, list | tuple)
    return False
