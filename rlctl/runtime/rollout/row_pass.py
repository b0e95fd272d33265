"""The next token of each row, for models of Llama's form in float32 on a CPU: Transformers' formulas in half of its calls.

    Transformers, a layer     7 products, 2 rotations, masks in 4 dimensions, a module for each
    here                      4 products (queries, keys and values are one, gate and up are one), 1 rotation of queries and keys

A joined weight is the memory of its parts: the model's parameters become views of it, so new weights need nothing more.
Results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from rlctl.runtime.models.cpu_products import times
from rlctl.runtime.rollout.attention import GROUPED, grouped_attention
from rlctl.runtime.rollout.cache import RowCache, RowLayer

FAMILIES = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"})


def row_pass(model: PreTrainedModel) -> RowPass | None:
    """The pass of a model; None if it is of another form."""
    config = model.config
    plain = type(model).__name__ in FAMILIES and config.hidden_act == "silu" and not getattr(config, "mlp_bias", False)
    windows = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    float32 = {(parameter.dtype, parameter.device.type) for parameter in model.parameters()} == {(torch.float32, "cpu")}
    attends = config._attn_implementation == GROUPED
    return RowPass(model) if plain and not windows and float32 and attends else None


class RowPass:
    """The forward pass of one token a row."""

    def __init__(self, model: Any) -> None:
        self._text, self._head = model.model, model.lm_head
        self._layers = [_Layer(layer) for layer in model.model.layers]

    def __call__(self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: RowCache) -> Tensor:
        """Return logits [rows, vocab].

        Args:
            tokens: int64 [rows].
            positions: int64 [rows], of rotary angles.
            mask: [rows, 1, 1, slots]; None if every row sees all slots.
            cache: of the rows.
        """
        states = F.embedding(tokens, self._text.embed_tokens.weight)
        cos, sin = self._text.rotary_emb(states, positions[:, None])
        for layer, held in zip(self._layers, cache.rows_layers, strict=True):
            states = layer(states, cos, sin, mask, held)
        return times(_norm(states, self._text.norm), self._head.weight, self._head.bias)


class _Layer:
    """One layer of the model."""

    def __init__(self, layer: Any) -> None:
        attends, mlp = layer.self_attn, layer.mlp
        self._module, self._dim = layer, attends.head_dim
        self._heads = attends.q_proj.out_features // self._dim
        self._key_heads = attends.k_proj.out_features // self._dim
        parts = (attends.q_proj, attends.k_proj, attends.v_proj)
        self._inward = _joined([part.weight for part in parts])
        self._inward_bias = None if attends.q_proj.bias is None else _joined([part.bias for part in parts])
        self._gate_up = _joined([mlp.gate_proj.weight, mlp.up_proj.weight])

    def __call__(self, states: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, held: RowLayer) -> Tensor:
        layer, heads, rotated = self._module, self._heads, self._heads + self._key_heads
        joined = times(_norm(states, layer.input_layernorm), self._inward, self._inward_bias)
        joined = joined.view(len(states), -1, self._dim)
        turned = _rotated(joined[:, :rotated], cos, sin)[:, :, None]
        keys, values = held.update(turned[:, heads:], joined[:, rotated:, None])
        output, _ = grouped_attention(layer, turned[:, :heads], keys, values, mask)
        out = layer.self_attn.o_proj
        states = times(output.view(len(states), -1), out.weight, out.bias).add_(states)
        gate, up = times(_norm(states, layer.post_attention_layernorm), self._gate_up).chunk(2, 1)
        return times(F.silu(gate).mul_(up), layer.mlp.down_proj.weight).add_(states)


def _joined(parts: Sequence[torch.nn.Parameter]) -> Tensor:
    """One tensor of parts, which become views of it."""
    whole = torch.cat([part.detach() for part in parts])
    for part, own in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        part.data = own
    return whole


def _norm(states: Tensor, layer: Any) -> Tensor:
    return F.rms_norm(states, (states.shape[1],), layer.weight, layer.variance_epsilon)


def _rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[rows, heads, dim], turned by angles [rows, 1, dim]."""
    half = states.shape[2] // 2
    turned = states * cos
    turned[..., :half].addcmul_(states[..., half:], sin[..., :half], value=-1)
    turned[..., half:].addcmul_(states[..., :half], sin[..., half:])
    return turned
