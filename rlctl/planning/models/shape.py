"""The shape of a decoder: how many parameters each part has, what a token leaves in the cache, how wide activations are.

Plain numbers. ``families`` makes them from a ``config.json``; memory, time and Megatron's layouts are computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal["full", "sliding", "latent", "linear"]
"""latent: DeepSeek's multi-head latent attention (MLA). linear: gated delta rule, which keeps a state and no cache."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of decoder layer. Parameters are counts; widths are values per token."""

    count: int
    """Layers of this kind."""
    attention: AttentionKind
    attention_parameters: int
    """Projections and their biases."""
    norm_parameters: int
    """All norms of the layer, those of queries and keys included."""
    query_width: int
    """Query heads x head dimension."""
    key_width: int
    value_width: int
    """Key-value heads x head dimension, as attention computes with them."""
    output_width: int
    """Query heads x value head dimension."""
    cache: int
    """Values per token in the KV cache."""
    window: int | None = None
    """Tokens that a sliding window keeps in the cache; None keeps all."""
    state: int = 0
    """Values per sequence that a linear attention keeps."""
    mlp_width: int = 0
    """Intermediate size of the dense MLP, or of the shared experts together."""
    mlp_parameters: int = 0
    """Dense MLP, or shared experts with their gate."""
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    expert_parameters: int = 0
    """One expert."""
    router_parameters: int = 0
    wide_norms: int = 2
    """Norms over the hidden size."""
    head_norms: bool = False
    """Whether queries and keys are normed by head."""

    def parameters(self, experts: int | None = None) -> int:
        """Parameters of one such layer, with all experts or with this many."""
        held = self.experts if experts is None else experts
        own = self.attention_parameters + self.norm_parameters + self.mlp_parameters + self.router_parameters
        return own + held * self.expert_parameters


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A whole model."""

    family: str
    """``model_type`` of the ``config.json``."""
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    """Whether the output head is the embedding."""
    kinds: tuple[Layer, ...]
    intermediate: int = 0
    """Intermediate size of a dense MLP; 0 if every layer has experts."""
    max_positions: int | None = None
    """Longest sequence, in tokens."""
    head_bias: bool = False
    final_norm_parameters: int = 0
    vision_parameters: int = 0
    """A vision tower that is trained and served with the model."""
    mtp_layers: int = 0
    """Multi-token prediction modules in the checkpoint; training and rollout leave them out."""
    softcapped: bool = False
    """Whether logits are capped by tanh after the output head."""

    @property
    def layers(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @property
    def dense_layers(self) -> int:
        """Layers without routed experts."""
        return sum(kind.count for kind in self.kinds if not kind.experts)

    @property
    def experts(self) -> int:
        """Routed experts of an MoE layer; 0 for a dense model."""
        return max(kind.experts for kind in self.kinds)

    @property
    def experts_per_token(self) -> int:
        return max(kind.experts_per_token for kind in self.kinds)

    @property
    def expert_intermediate(self) -> int:
        """Intermediate size of one expert."""
        return max(kind.expert_width for kind in self.kinds)

    def shares_heads(self, size: int) -> bool:
        """Whether ``size`` devices get whole attention heads, and whole key-value heads or copies of one."""
        return self.heads % size == 0 and (self.kv_heads % size == 0 or size % self.kv_heads == 0)

    @property
    def attention_width(self) -> int:
        """heads * head_dim."""
        return self.heads * self.head_dim

    @property
    def layer_parameters(self) -> int:
        """Parameters of the largest layer."""
        return max(kind.parameters() for kind in self.kinds)

    @property
    def head_parameters(self) -> int:
        """Parameters of the output head, whether tied or not."""
        return self.vocabulary * (self.hidden + self.head_bias)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding, and of the output head unless it is tied."""
        return self.vocabulary * self.hidden + (0 if self.tied else self.head_parameters)

    @property
    def parameters(self) -> int:
        """All parameters."""
        layers = sum(kind.count * kind.parameters() for kind in self.kinds)
        return layers + self.embedding_parameters + self.final_norm_parameters + self.vision_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with: the output head and its own experts, without the embedding's rows."""
        layers = sum(kind.count * kind.parameters(kind.experts_per_token) for kind in self.kinds)
        return layers + self.head_parameters + self.final_norm_parameters

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of all layers."""
        return sum(kind.count * kind.experts * kind.expert_parameters for kind in self.kinds)

    @property
    def norm_parameters(self) -> int:
        """Parameters of the norms of all layers, without the final norm."""
        return sum(kind.count * kind.norm_parameters for kind in self.kinds)

    @property
    def router_parameters(self) -> int:
        """Parameters that choose experts, of all layers."""
        return sum(kind.count * kind.router_parameters for kind in self.kinds)

    def cache_values(self, tokens: int) -> int:
        """Values that the KV cache, and the state of linear attention, hold for one sequence of ``tokens`` tokens."""
        return sum(
            kind.count * (kind.cache * (tokens if kind.window is None else min(tokens, kind.window)) + kind.state)
            for kind in self.kinds
        )

    def cache_values_per_token(self) -> int:
        """Values that the KV cache holds for one more token, while no sliding window is full."""
        return sum(kind.count * kind.cache for kind in self.kinds)
