"""Megatron-core's own configs from section ``train`` and a model's ``config.json``: one table for each, overrides last.

    transformer_config   TransformerConfig               sizes of the model, parallel sizes, precision, recomputation, MoE
    ddp_config           DistributedDataParallelConfig   how gradients are reduced
    optimizer_config     OptimizerConfig                 the optimizer; rates and weight decay come from ``schedule``

Megatron-core checks what it is given; what it refuses becomes a ``PlanError``. Names and types of overrides are checked by
``rlctl.planning.megatron.options``, which needs no import of Megatron-core.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.enums import AttnBackend
from transformers import PretrainedConfig

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.train import Megatron, Optimizer, Train
from rlctl.planning.megatron import options
from rlctl.planning.megatron.sizes import padded_vocabulary
from rlctl.runtime.train.megatron.names import FAMILIES

__all__ = ["ddp_config", "optimizer_config", "padded_vocabulary", "transformer_config"]

Made = TypeVar("Made", TransformerConfig, DistributedDataParallelConfig, OptimizerConfig)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "adamw": {"optimizer": "adam", "decoupled_weight_decay": True},
    "adam": {"optimizer": "adam", "decoupled_weight_decay": False},
    "sgd": {"optimizer": "sgd"},
}
"""What Megatron-core calls ``train.optimizer.type``."""


def transformer_config(
    train: Train, hf_config: PretrainedConfig, *, device: str = "cpu", fused: bool = False
) -> TransformerConfig:
    """Return the config of a model's layers, spread as ``train.engine`` says.

    ``fused``: whether Megatron-core computes an activation in one compiled pass, and keeps its input only.

    Raises:
        PlanError: a model that is not known here, or settings that Megatron-core refuses.
    """
    engine = _engine(train)
    values = {
        **_model(hf_config),
        **_experts(engine, hf_config),
        **_layout(engine),
        **_precision(train),
        **_recompute(engine),
        "use_cpu_initialization": device == "cpu",
        "bias_activation_fusion": fused,
    }
    return _make(TransformerConfig, values, engine, "transformer")


def ddp_config(train: Train) -> DistributedDataParallelConfig:
    """Return how gradients are reduced over replicas.

    Raises:
        PlanError: settings that Megatron-core refuses.
    """
    engine = _engine(train)
    values = {
        "grad_reduce_in_fp32": train.precision.reduce == "float32",
        "use_distributed_optimizer": engine.distributed_optimizer,
        "overlap_grad_reduce": engine.overlap_gradient_reduce,
        "overlap_param_gather": engine.overlap_parameter_gather,
    }
    return _make(DistributedDataParallelConfig, values, engine, "ddp")


def optimizer_config(train: Train) -> OptimizerConfig:
    """Return the optimizer. Rates and weight decay are of the first step; the engine sets them anew for each.

    Raises:
        PlanError: an optimizer that Megatron-core does not have, or settings that it refuses.
    """
    engine, settings, compute = _engine(train), train.optimizer, train.precision.compute
    values = {
        **_optimizer(settings),
        "lr": settings.lr,
        "weight_decay": settings.weight_decay,
        "clip_grad": settings.max_grad_norm or 0.0,
        "bf16": compute == "bfloat16",
        "fp16": compute == "float16",
        "params_dtype": getattr(torch, compute),
        "use_distributed_optimizer": engine.distributed_optimizer,
        "overlap_param_gather": engine.overlap_parameter_gather,
    }
    return _make(OptimizerConfig, values, engine, "optimizer_overrides")


def _engine(train: Train) -> Megatron:
    if not isinstance(train.engine, Megatron):
        raise PlanError(
            said("the Megatron engine was given train.engine {choice}; expected megatron", choice=train.engine.choice)
        )
    return train.engine


def _model(hf: PretrainedConfig) -> dict[str, Any]:
    """Sizes and kinds of layers; dropout as the model has it, which is none in these families."""
    _check_model(hf)
    heads = hf.num_attention_heads
    return {
        "num_layers": hf.num_hidden_layers,
        "hidden_size": hf.hidden_size,
        "num_attention_heads": heads,
        "num_query_groups": hf.num_key_value_heads or heads,
        "kv_channels": getattr(hf, "head_dim", None) or hf.hidden_size // heads,
        "ffn_hidden_size": hf.intermediate_size,
        "attention_dropout": hf.attention_dropout,
        "hidden_dropout": 0.0,
        "layernorm_epsilon": hf.rms_norm_eps,
        "normalization": "RMSNorm",
        "activation_func": F.silu,
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "add_qkv_bias": hf.model_type == "qwen2",
        "qk_layernorm": hf.model_type in ("qwen3", "qwen3_moe"),
        "init_method_std": hf.initializer_range,
    }


def _check_model(hf: PretrainedConfig) -> None:
    if hf.model_type not in FAMILIES:
        raise PlanError(
            said(
                "the Megatron engine has no layers for {model_type} models; it has {names}",
                model_type=hf.model_type,
                names=", ".join(FAMILIES),
            ),
            hint="set train.engine to fsdp2",
        )
    unlike = {
        "hidden_act": (getattr(hf, "hidden_act", "silu"), "silu"),
        "attention_bias": (bool(getattr(hf, "attention_bias", False)), False),
        "mlp_bias": (bool(getattr(hf, "mlp_bias", False)), False),
        "use_sliding_window": (bool(getattr(hf, "use_sliding_window", False)), False),
    }
    for name, (got, expected) in unlike.items():
        if got != expected:
            raise PlanError(
                said(
                    "the model's {name} is {got}; the Megatron engine computes {model_type} models with {expected}",
                    name=name,
                    got=got,
                    model_type=hf.model_type,
                    expected=expected,
                ),
                hint="set train.engine to fsdp2",
            )


def _experts(engine: Megatron, hf: PretrainedConfig) -> dict[str, Any]:
    """Experts. No loss balances them, as in verl: the policy's own loss is all there is."""
    dispatcher = {"moe_token_dispatcher_type": engine.moe.dispatcher or "alltoall"}
    if hf.model_type != "qwen3_moe":
        return dispatcher
    moe, layers = engine.moe, range(hf.num_hidden_layers)
    dense = [layer in (hf.mlp_only_layers or ()) or (layer + 1) % hf.decoder_sparse_step != 0 for layer in layers]
    return {
        **dispatcher,
        "num_moe_experts": hf.num_experts,
        "moe_ffn_hidden_size": hf.moe_intermediate_size,
        "moe_layer_freq": [0 if is_dense else 1 for is_dense in dense],
        "moe_router_topk": hf.num_experts_per_tok,
        "moe_router_pre_softmax": not hf.norm_topk_prob,
        "moe_router_score_function": "softmax",
        "moe_router_load_balancing_type": "none",
        "moe_aux_loss_coeff": 0.0,
        "moe_grouped_gemm": moe.grouped_gemm,
        "moe_shared_expert_overlap": moe.shared_expert_overlap,
        "moe_layer_recompute": moe.layer_recompute,
    }


def _layout(engine: Megatron) -> dict[str, Any]:
    return {
        "tensor_model_parallel_size": engine.tensor_parallel_size,
        "pipeline_model_parallel_size": engine.pipeline_parallel_size,
        "virtual_pipeline_model_parallel_size": _chunks(engine),
        "context_parallel_size": engine.context_parallel_size,
        "expert_model_parallel_size": engine.expert_parallel_size,
        "expert_tensor_parallel_size": engine.expert_tensor_parallel_size,
        "sequence_parallel": engine.sequence_parallel and engine.tensor_parallel_size > 1,
        "variable_seq_lengths": engine.pipeline_parallel_size > 1,  # micro-batches are as long as their sequences
        "batch_p2p_comm": False,
        "overlap_p2p_comm": _chunks(engine) is not None,
    }


def _chunks(engine: Megatron) -> int | None:
    """Chunks of layers on a stage, where there is more than one."""
    chunks = engine.virtual_pipeline_parallel_size
    return chunks if chunks is not None and chunks > 1 else None


def _precision(train: Train) -> dict[str, Any]:
    compute = train.precision.compute
    dtype = getattr(torch, compute)
    return {
        "bf16": compute == "bfloat16",
        "fp16": compute == "float16",
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
    }


def _recompute(engine: Megatron) -> dict[str, Any]:
    """Full recomputation of every layer by itself, where nothing more is said."""
    granularity = engine.recompute_granularity
    if granularity == "none":
        return {}
    full = granularity == "full"
    return {
        "recompute_granularity": granularity,
        "recompute_method": engine.recompute_method or ("uniform" if full else None),
        "recompute_num_layers": (engine.recompute_layers or 1) if full else None,
        "recompute_modules": list(engine.recompute_modules) or None,
    }


def _optimizer(settings: Optimizer) -> dict[str, Any]:
    kind = OPTIMIZERS.get(settings.type.lower())
    if kind is None or settings.module is not None:
        raise PlanError(
            said(
                "train.optimizer.type is {type}; the Megatron engine has {names}",
                type=settings.type if settings.module is None else f"{settings.module}.{settings.type}",
                names=", ".join(OPTIMIZERS),
            ),
            hint=nearest(settings.type, OPTIMIZERS) or "set it to adamw, and omit train.optimizer.module",
        )
    if kind["optimizer"] == "adam":
        taken: dict[str, Any] = {
            "adam_beta1": settings.betas[0],
            "adam_beta2": settings.betas[1],
            "adam_eps": settings.epsilon,
        }
        arguments = {}
    else:
        taken, arguments = {"sgd_momentum": 0.0}, {"momentum": "sgd_momentum"}
    for name, value in settings.args.items():
        if name not in arguments:
            raise PlanError(
                said(
                    "train.optimizer.args has {name}, which Megatron-core's {kind} does not have",
                    name=name,
                    kind=kind["optimizer"],
                ),
                hint="set train.engine.optimizer_overrides, which overrides its OptimizerConfig",
            )
        taken[arguments[name]] = value
    return {**kind, **taken}


def _make(made: type[Made], values: dict[str, Any], engine: Megatron, key: str) -> Made:
    """An instance with the overrides of ``train.engine`` over it.

    Raises:
        PlanError: an override that does not fit, or what the class itself refuses.
    """
    wrong = next((misfit for misfit in options.misfits(engine) if misfit.key == key), None)
    if wrong is not None:
        raise PlanError(said("train.engine.{key}: {message}", key=key, message=wrong.message), hint=wrong.hint)
    absent = options.left_off(engine) if key == "transformer" else []
    overrides = {
        name: _as_megatron_has(name, value) for name, value in getattr(engine, key).items() if name not in absent
    }
    overrides.pop("attention_backend", None)  # our own attention; two models of one process may not differ in it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to users of Transformer Engine, and of old names
            return made(**{**values, **overrides})
    except (ValueError, AssertionError, TypeError, NotImplementedError, ImportError) as error:
        raise PlanError(
            said(
                "Megatron-core's {made} refuses its settings: {names}",
                made=made.__name__,
                names=" ".join(str(error).split()),
            ),
            hint=said("change train.engine, or train.engine.{key}", key=key),
        ) from error


def _as_megatron_has(name: str, value: Any) -> Any:
    """A value of a config as Megatron-core takes it: number types and the attention backend are not text there."""
    if name == "attention_backend":
        return _member(AttnBackend, value)
    if name.endswith("_dtype") and name != "moe_router_dtype":
        text = str(value).removeprefix("torch.")
        return DTYPES.get(text) or getattr(torch, text)
    return value


def _member(kind: type[enum.Enum], value: str) -> enum.Enum:
    if value not in kind.__members__:
        raise PlanError(
            said(
                "train.engine.transformer.attention_backend is {value}; expected one of {names}",
                value=value,
                names=", ".join(kind.__members__),
            ),
            hint=nearest(value, kind.__members__),
        )
    return kind[value]
