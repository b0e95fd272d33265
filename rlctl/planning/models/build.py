"""The shape of a model of any family that Transformers knows: built on the meta device, and counted.

Only where Transformers is installed, and only for a local ``config.json`` of a family that ``families`` does not have.
Nothing of the folder is executed: a model that brings code of its own has no shape here.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlctl.planning.models.shape import Layer, ModelShape


def can_build() -> bool:
    """Whether Transformers and torch are installed."""
    return find_spec("transformers") is not None and find_spec("torch") is not None


@lru_cache(maxsize=8)
def built_shape(folder: str, modified: float) -> ModelShape | None:
    """Count the model of a folder; None if Transformers does not know it.

    Args:
        folder: with a ``config.json``.
        modified: when that file was written last, so that a changed one is counted again.
    """
    if not can_build():
        return None
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(Path(folder), trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        return _counted(model, config.get_text_config())
    except Exception:  # noqa: BLE001 - whatever a config makes Transformers raise, its size is not known
        return None


def _counted(model: Any, config: Any) -> ModelShape:
    """Parameters as they are; widths as the config names them."""
    names = set(model._no_split_modules or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    hidden, heads = config.hidden_size, config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    dim = getattr(config, "head_dim", None) or hidden // heads
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None) or 0
    counts = [_size(layer) for layer in layers]
    kinds = tuple(
        Layer(
            count=counts.count(size),
            attention="full",
            attention_parameters=size - (norms := _norms(layers[counts.index(size)])),
            norm_parameters=norms,
            query_width=heads * dim,
            key_width=kv_heads * dim,
            value_width=kv_heads * dim,
            output_width=heads * dim,
            cache=2 * kv_heads * dim,
            mlp_width=getattr(config, "intermediate_size", 4 * hidden) * max(1, experts and config.num_experts_per_tok),
        )
        for size in dict.fromkeys(counts)
    )
    tied = head is None or head.weight is embedding.weight
    own = _size(embedding) + (0 if tied else _size(head))
    return ModelShape(
        family=config.model_type,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        vocabulary=embedding.weight.shape[0],
        tied=tied,
        kinds=kinds,
        intermediate=getattr(config, "intermediate_size", 4 * hidden),
        max_positions=getattr(config, "max_position_embeddings", None),
        final_norm_parameters=_size(model) - sum(counts) - own,
    )


def _size(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _norms(layer: Any) -> int:
    return sum(parameter.numel() for parameter in layer.parameters() if parameter.dim() == 1)
