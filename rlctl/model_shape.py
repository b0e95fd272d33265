"""The size of a model from its ``config.json``: parameters, layers, cache. No torch, no download.

Families: Llama, Mistral, Qwen2, Qwen3 and Qwen3-MoE, whose blocks are

    q, k, v projections [hidden x heads * head_dim] (+ bias in Qwen2, + q and k norms in Qwen3), o projection,
    gate, up and down projections (one such triple an expert, and a router, in MoE layers), two norms

between an embedding and, unless tied to it, a head. Source: the modeling files of these families in Transformers;
a test counts the same configs there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rlctl.filenames import expanded

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")
"""Values of ``model_type`` that are understood."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What memory and time depend on."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    """Whether the head is the embedding."""
    attention_bias: bool
    mlp_bias: bool
    dense_layers: int
    """Layers with one MLP for all tokens."""
    intermediate: int
    """Width of that MLP."""
    experts: int = 0
    """Experts of each other layer."""
    experts_per_token: int = 0
    expert_intermediate: int = 0
    """Width of one expert."""
    max_positions: int | None = None
    """Longest sequence the model was made for, in tokens."""

    @property
    def attention_width(self) -> int:
        """heads * head_dim."""
        return self.heads * self.head_dim

    @property
    def _attention(self) -> int:
        kv = self.kv_heads * self.head_dim
        weights = 2 * self.hidden * self.attention_width + 2 * self.hidden * kv
        if self.family == "qwen2":
            return weights + self.attention_width + 2 * kv
        bias = self.attention_width + 2 * kv + self.hidden if self.attention_bias else 0
        return weights + bias + self._head_norms

    @property
    def _head_norms(self) -> int:
        """Of queries and keys, in one layer."""
        return 2 * self.head_dim if self.family in ("qwen3", "qwen3_moe") else 0

    def _block(self, mlps: int, width: int) -> int:
        bias = 2 * width + self.hidden if self.mlp_bias else 0
        return self._attention + mlps * (3 * self.hidden * width + bias) + 2 * self.hidden

    @property
    def layer_parameters(self) -> int:
        """Parameters of the largest layer."""
        router = self.hidden * self.experts
        moe = self._block(self.experts, self.expert_intermediate) + router if self.experts else 0
        dense = self._block(1, self.intermediate) if self.dense_layers else 0
        return max(moe, dense)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding; of the head too where it is not tied."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self._layers(self.experts) + self.embedding_parameters + self.hidden

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with: without the embedding's rows, with the head, with its experts only."""
        return self._layers(self.experts_per_token) + self.vocabulary * self.hidden + self.hidden

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts of all layers."""
        return (self.layers - self.dense_layers) * self.experts * 3 * self.hidden * self.expert_intermediate

    @property
    def norm_parameters(self) -> int:
        """Parameters of the norms of all layers; the final one is not in a layer."""
        return self.layers * (2 * self.hidden + self._head_norms)

    @property
    def router_parameters(self) -> int:
        """Parameters that choose experts, of all layers."""
        return (self.layers - self.dense_layers) * self.hidden * self.experts

    def _layers(self, experts: int) -> int:
        dense = self.dense_layers * self._block(1, self.intermediate)
        router = self.hidden * self.experts
        return dense + (self.layers - self.dense_layers) * (self._block(experts, self.expert_intermediate) + router)

    def cache_values_per_token(self) -> int:
        """Numbers that the key-value cache holds for one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim


def read_shape(model_path: str) -> ModelShape | None:
    """The shape of a model in a local folder; None for a hub name, and for a family or file that is not understood."""
    file = expanded(model_path) / "config.json"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return shape_of(data) if isinstance(data, dict) else None


def shape_of(data: dict[str, Any]) -> ModelShape | None:
    """The shape that the contents of a ``config.json`` describe, None where they are not understood."""
    family = data.get("model_type")
    if family not in FAMILIES:
        return None
    try:
        return _shape(family, data)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _shape(family: str, data: dict[str, Any]) -> ModelShape:
    layers, heads = data["num_hidden_layers"], data["num_attention_heads"]
    experts = (data.get("num_experts") or data.get("num_local_experts") or 0) if family == "qwen3_moe" else 0
    return ModelShape(
        family=family,
        layers=layers,
        hidden=data["hidden_size"],
        heads=heads,
        kv_heads=data.get("num_key_value_heads") or heads,
        head_dim=data.get("head_dim") or (128 if family == "qwen3" else data["hidden_size"] // heads),
        vocabulary=data["vocab_size"],
        tied=bool(data.get("tie_word_embeddings", False)),
        attention_bias=bool(data.get("attention_bias", False)),
        mlp_bias=bool(data.get("mlp_bias", False)),
        dense_layers=_dense_layers(data, layers) if experts else layers,
        intermediate=data["intermediate_size"],
        experts=experts,
        experts_per_token=data["num_experts_per_tok"] if experts else 0,
        expert_intermediate=data["moe_intermediate_size"] if experts else 0,
        max_positions=data.get("max_position_embeddings"),
    )


def _dense_layers(data: dict[str, Any], layers: int) -> int:
    """Layers of a MoE model without experts, by Transformers' rule: listed, or not at a whole sparse step."""
    listed, step = data.get("mlp_only_layers") or [], data.get("decoder_sparse_step", 1)
    return sum(layer in listed or (layer + 1) % step != 0 for layer in range(layers))
