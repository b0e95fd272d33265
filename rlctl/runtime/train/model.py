"""The Transformers model that an engine trains: loaded, given its attention, and asked for logits where they are needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedModel

from rlctl.config.sections.model import Model
from rlctl.config.sections.train import MemorySettings
from rlctl.errors import RunError
from rlctl.runtime.train import attention

END_TO_END = (attention.PACKED,)
"""Attention implementations that take sequences laid end to end."""

VALUE_HEAD = {"num_labels": 1, "classifier_dropout": 0.0, "hidden_dropout": 0.0, "summary_dropout_prob": 0.0}
"""What a critic's config.json is changed by: one number a token, and no dropout before it, as verl loads critics."""


def load(
    model: Model, memory: MemorySettings, *, dtype: torch.dtype, train: bool, value_head: bool = False
) -> PreTrainedModel:
    """Load weights in ``dtype`` on CPU.

    With ``value_head`` the model says one number a token (``ForTokenClassification``); a head that the weights lack is
    drawn from torch's generator, so seed it alike on every worker.

    Raises:
        RunError: there is no such model, or Transformers cannot make it.
    """
    attention.register()
    wanted = None if model.attention == "auto" else model.attention
    options: dict[str, Any] = {"attn_implementation": wanted, "trust_remote_code": model.trust_remote_code}
    try:
        if value_head:
            options["config"] = AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
            options["config"].update(VALUE_HEAD)
        kind = AutoModelForTokenClassification if value_head else AutoModelForCausalLM
        loaded = kind.from_pretrained(model.path, dtype=dtype, **options)
    except (OSError, ValueError, ImportError) as error:
        raise RunError(
            f"the model {model.path} could not be loaded: {error}", hint="check model.path and model.attention"
        ) from error
    if wanted is None and _takes_any_attention(loaded):
        loaded.set_attn_implementation(attention.PACKED)
    if train and memory.recompute_activations:
        loaded.gradient_checkpointing_enable({"use_reentrant": memory.recompute_reentrant})
    if not train:
        loaded.requires_grad_(False)
    return loaded


def pads(model: PreTrainedModel) -> bool:
    """Return whether the model needs padded rows."""
    return model.config._attn_implementation not in END_TO_END


def _takes_any_attention(model: PreTrainedModel) -> bool:
    """Whether an attention of ours reaches every layer, and nothing else carries state from token to token."""
    return bool(model._supports_attention_backend) and not getattr(model, "_is_stateful", False)


def _head(model: PreTrainedModel) -> torch.nn.Module:
    """The last layer: from hidden states to logits, or to a value."""
    found = model.get_output_embeddings()
    return found if found is not None else [m for m in model.children() if isinstance(m, torch.nn.Linear)][-1]


class SelectedLogits:
    """Computes logits only where they are asked for: most of a prompt's are never looked at."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._select: Tensor | None = None
        _head(model).register_forward_pre_hook(self._pick)

    def __call__(self, inputs: dict[str, Any], select: Tensor) -> Tensor:
        """Return logits [N, V], of a value head [N, 1], at the places ``select`` [N] of the flattened inputs."""
        self._select = select
        logits: Tensor = self._model(**inputs, use_cache=False).logits
        return logits

    def _pick(self, module: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Tensor]:
        return (args[0].flatten(0, -2).index_select(0, self._select),)
