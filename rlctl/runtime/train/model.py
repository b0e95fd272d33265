"""The Transformers model that an engine trains: loaded, with its attention and kernels, and with what is not trained of it."""

from __future__ import annotations

import fnmatch
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.attention import activate_flash_attention_impl
from transformers import AutoConfig, AutoModelForTokenClassification, PreTrainedModel

from rlctl.common.errors import PlanError, RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import FusedKernels, MemorySettings
from rlctl.planning import arithmetic
from rlctl.runtime.models.config import changed_config, files_are_told, import_modules
from rlctl.runtime.models.vision import auto_class, set_text_attention
from rlctl.runtime.train import attention
from rlctl.runtime.train.sharded_loading import BareModel, bare

END_TO_END = (attention.PACKED,)
"""Attention implementations that take sequences laid end to end."""

VALUE_HEAD = {"num_labels": 1, "classifier_dropout": 0.0, "hidden_dropout": 0.0, "summary_dropout_prob": 0.0}
"""What a critic's config.json is changed by: one number a token, and no dropout before it, as verl loads critics."""


def load(
    model: Model,
    memory: MemorySettings,
    *,
    dtype: torch.dtype,
    train: bool,
    packing: bool = True,
    value_head: bool = False,
    whole: bool = True,
) -> tuple[PreTrainedModel, BareModel | None]:
    """Load weights in ``dtype`` on CPU, with an attention that takes packed sequences if ``packing``.

    Without ``whole`` the model has no memory yet if its files allow that: ``BareModel.fill`` gives each worker its own part.

    With ``value_head`` the model says one number a token (``ForTokenClassification``); a head that the weights lack is
    drawn from torch's generator, so seed it alike on every worker.

    Raises:
        RunError: there is no such model, or Transformers cannot make it.
    """
    attention.register()
    import_modules(model)
    packing = packing and model.attention in arithmetic.PACKING_ATTENTION
    wanted = None if packing or model.attention == "auto" else model.attention
    options: dict[str, Any] = {"attn_implementation": wanted, "trust_remote_code": model.trust_remote_code}
    what, hint = said("the model {path} could not be loaded", path=model.path), "check model.path and model.attention"
    try:
        with files_are_told(what, hint):
            config = changed_config(model, model.path)
            config = config or AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
            if value_head:
                config.update(VALUE_HEAD)
            kind = AutoModelForTokenClassification if value_head else auto_class(config)
            empty = None if whole else bare(kind, model.path, config, dtype=dtype, **options)
            if empty is not None:
                loaded = empty.model
            else:
                loaded = kind.from_pretrained(model.path, config=config, dtype=dtype, **options)
            if packing and _takes_any_attention(loaded):
                _pack(loaded, model.attention)
            elif wanted is None and model.attention != "auto":
                loaded.set_attn_implementation(model.attention)
    except ImportError as error:
        raise RunError(said("{what}: {error}", what=what, error=error), hint=hint) from error
    if train and memory.recompute_activations:
        loaded.gradient_checkpointing_enable({"use_reentrant": memory.recompute_reentrant})
    if not train:
        loaded.requires_grad_(False)
    return loaded, empty


def _pack(model: PreTrainedModel, wanted: str) -> None:
    """Have a model take sequences laid end to end, on a GPU by PyTorch's flash attention, of version 3 if that is ``wanted``.

    Raises:
        ImportError: version 3 is not installed.
    """
    if wanted == "flash_attention_3" and torch.cuda.is_available():
        activate_flash_attention_impl("FA3")
    set_text_attention(model, attention.PACKED)


def freeze(model: PreTrainedModel, patterns: Sequence[str]) -> None:
    """Leave parameters untrained whose name matches one of ``patterns``, as a whole or as a module's with all below it.

    Raises:
        PlanError: a pattern matches none, or nothing is left to train.
    """
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            raise PlanError(
                said(
                    "model.freeze names {pattern}, which no parameter of {kind} matches",
                    pattern=pattern,
                    kind=type(model).__name__,
                ),
                hint=nearest(pattern, names) or said("parameter names look like {names}", names=names[0]),
            )
    for name, parameter in model.named_parameters():
        if any(_matches(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if patterns and not any(parameter.requires_grad for parameter in model.parameters()):
        raise PlanError("model.freeze leaves no parameter to train", hint="name fewer parameters")


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")


def use_liger(model: PreTrainedModel) -> None:
    """Put Liger's kernels into a model; its own loss stays out, as log-probs are worked out here.

    Raises:
        PlanError: Liger is not installed, or has no kernels for this kind of model.
    """
    check_liger()
    from liger_kernel.transformers import _apply_liger_kernel_to_instance
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    if model.config.model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise PlanError(
            said(
                "train.fused_kernels.liger is set, but Liger has no kernels for {model_type} models",
                model_type=model.config.model_type,
            ),
            hint="set train.fused_kernels.liger to false",
        )
    _apply_liger_kernel_to_instance(model=model, cross_entropy=False, fused_linear_cross_entropy=False)


def check_kernels(kernels: FusedKernels, device: str) -> None:
    """Refuse kernels that are not here.

    Raises:
        PlanError: Liger is asked for and not installed, or there is no GPU for it.
    """
    if not kernels.liger:
        return
    check_liger()
    if device != "cuda":
        raise PlanError(
            "train.fused_kernels.liger is set, but Liger's kernels need a GPU",
            hint="set train.fused_kernels.liger to false",
        )


def check_liger() -> None:
    """Refuse where Liger is not installed.

    Raises:
        PlanError: it is not.
    """
    if importlib.util.find_spec("liger_kernel") is None:
        raise PlanError(
            "train.fused_kernels.liger is set, but liger-kernel is not installed",
            hint="pip install liger-kernel on every machine of the run, or set train.fused_kernels.liger to false",
        )


def pads(model: PreTrainedModel) -> bool:
    """Return whether the model needs padded rows."""
    return model.config._attn_implementation not in END_TO_END


def _takes_any_attention(model: PreTrainedModel) -> bool:
    """Whether an attention of ours reaches every layer, and nothing else carries state from token to token."""
    return bool(model._supports_attention_backend) and not getattr(model, "_is_stateful", False)
