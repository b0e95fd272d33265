"""Tables: what Megatron-core and Hugging Face call the same weights, and how the workers that share one cut it.

A rule is read in both directions. Megatron names a layer's weights under ``decoder.layers.3.``, Hugging Face under
``model.layers.3.``; of experts ``*`` stands for the expert's number. A layout says of which rows (or columns) of which
Hugging Face tensors a worker's share is made, one after another:

    WHOLE       of one tensor, all of it, on every worker
    ROWS        its share of the rows
    COLUMNS     its share of the columns
    VOCABULARY  rows; those after the vocabulary's end are padding, and zero
    GATED       its share of the rows of the gate, then of the up projection
    QKV         its share of the rows of: the queries of the first group, its key, its value, those of the second, and so on

Where a rule has ``stacked``, Transformers keeps all experts of a layer in one parameter of that name; files have one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said


@dataclass(frozen=True, slots=True)
class Heads:
    """What the fused queries, keys and values are cut by, and the vocabulary."""

    queries: int
    groups: int
    size: int
    vocabulary: int

    @classmethod
    def of(cls, hf_config: Any) -> Heads:
        """Read them from a Hugging Face config."""
        queries = hf_config.num_attention_heads
        groups = getattr(hf_config, "num_key_value_heads", None) or queries
        size = getattr(hf_config, "head_dim", None) or hf_config.hidden_size // queries
        return cls(queries, groups, size, hf_config.vocab_size)


class Block(NamedTuple):
    """Rows, or columns, of a rule's Hugging Face tensor of this number."""

    tensor: int
    start: int
    stop: int


Blocks = Callable[[int, int, Heads], list[Block]]
"""Of the worker's rank among those that share the weight, and the length of its share."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How workers share a weight."""

    dim: int
    """0 cuts rows, 1 columns."""
    shared: bool
    """Whether each worker has a part; else all have all of it."""
    blocks: Blocks


def _whole(rank: int, length: int, heads: Heads) -> list[Block]:
    return [Block(0, 0, length)]


def _share(rank: int, length: int, heads: Heads) -> list[Block]:
    return [Block(0, rank * length, (rank + 1) * length)]


def _vocabulary(rank: int, length: int, heads: Heads) -> list[Block]:
    start, stop = rank * length, min((rank + 1) * length, heads.vocabulary)
    return [Block(0, start, stop)] if start < stop else []


def _gated(rank: int, length: int, heads: Heads) -> list[Block]:
    half = length // 2
    return [Block(0, rank * half, (rank + 1) * half), Block(1, rank * half, (rank + 1) * half)]


def _qkv(rank: int, length: int, heads: Heads) -> list[Block]:
    start, stop, place = rank * length, (rank + 1) * length, 0
    blocks = []
    for tensor, first, last in _interleaved(heads):
        low, high = max(start, place), min(stop, place + last - first)
        if low < high:
            blocks.append(Block(tensor, first + low - place, first + high - place))
        place += last - first
    return blocks


def _interleaved(heads: Heads) -> Iterator[Block]:
    """Queries, key and value of each group."""
    each = heads.queries // heads.groups * heads.size
    for group in range(heads.groups):
        yield Block(0, group * each, (group + 1) * each)
        yield Block(1, group * heads.size, (group + 1) * heads.size)
        yield Block(2, group * heads.size, (group + 1) * heads.size)


WHOLE = Layout(0, False, _whole)
ROWS = Layout(0, True, _share)
COLUMNS = Layout(1, True, _share)
VOCABULARY = Layout(0, True, _vocabulary)
GATED = Layout(0, True, _gated)
QKV = Layout(0, True, _qkv)


@dataclass(frozen=True, slots=True)
class WeightNameRule:
    """One weight in both."""

    megatron: str
    hugging_face: tuple[str, ...]
    layout: Layout
    stacked: str = ""


EDGES = (
    WeightNameRule("embedding.word_embeddings.weight", ("model.embed_tokens.weight",), VOCABULARY),
    WeightNameRule("decoder.final_layernorm.weight", ("model.norm.weight",), WHOLE),
    WeightNameRule("output_layer.weight", ("lm_head.weight",), VOCABULARY),
)
"""What is before and after the layers."""

VALUE_HEAD = (
    WeightNameRule("value_head.weight", ("score.weight",), WHOLE),
    WeightNameRule("value_head.bias", ("score.bias",), WHOLE),
)
"""What a critic has after its layers; where a file lacks it, it is drawn."""

ATTENTION = (
    WeightNameRule("input_layernorm.weight", ("input_layernorm.weight",), WHOLE),
    WeightNameRule("self_attention.linear_qkv.weight", tuple(f"self_attn.{x}_proj.weight" for x in "qkv"), QKV),
    WeightNameRule("self_attention.linear_qkv.bias", tuple(f"self_attn.{x}_proj.bias" for x in "qkv"), QKV),
    WeightNameRule("self_attention.linear_proj.weight", ("self_attn.o_proj.weight",), COLUMNS),
)
"""With the norm before it."""

NORMED_HEADS = (
    WeightNameRule("self_attention.q_layernorm.weight", ("self_attn.q_norm.weight",), WHOLE),
    WeightNameRule("self_attention.k_layernorm.weight", ("self_attn.k_norm.weight",), WHOLE),
)

DENSE = (
    WeightNameRule("pre_mlp_layernorm.weight", ("post_attention_layernorm.weight",), WHOLE),
    WeightNameRule("mlp.linear_fc1.weight", ("mlp.gate_proj.weight", "mlp.up_proj.weight"), GATED),
    WeightNameRule("mlp.linear_fc2.weight", ("mlp.down_proj.weight",), COLUMNS),
)

EXPERTS = (
    WeightNameRule("mlp.router.weight", ("mlp.gate.weight",), WHOLE),
    WeightNameRule(
        "mlp.experts.*.linear_fc1.weight",
        ("mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"),
        GATED,
        stacked="mlp.experts.gate_up_proj",
    ),
    WeightNameRule(
        "mlp.experts.*.linear_fc2.weight",
        ("mlp.experts.*.down_proj.weight",),
        COLUMNS,
        stacked="mlp.experts.down_proj",
    ),
)

FAMILIES: dict[str, tuple[WeightNameRule, ...]] = {
    "llama": ATTENTION + DENSE,
    "qwen2": ATTENTION + DENSE,
    "qwen3": ATTENTION + NORMED_HEADS + DENSE,
    "qwen3_moe": ATTENTION + NORMED_HEADS + DENSE + EXPERTS,
}
"""Rules of a layer, by ``model_type`` of the Hugging Face config."""

LAYER = "decoder.layers."
HUGGING_FACE_LAYER = "model.layers."

ADAPTERS = ".adapters."
"""What is between a Megatron layer and the Hugging Face name of one of its adapters."""

UNUSED = {
    "rotary_emb.inv_freq": "it is worked out from the config",
    "lm_head.weight": "the output is tied to the embedding, or is a critic's value",
    "score.weight": "only a critic has a value head",
    "score.bias": "only a critic has a value head",
}
"""How a tensor of a file may end that nothing is filled from, where no rule takes it, and why."""


class Names:
    """The rules of one model."""

    def __init__(self, hf_config: Any) -> None:
        """Take the rules of the model's family.

        Raises:
            RunError: there are none.
        """
        family = hf_config.model_type
        if family not in FAMILIES:
            raise RunError(
                said(
                    "the Megatron engine has no weight tables for {family} models; it has them for {names}",
                    family=family,
                    names=", ".join(FAMILIES),
                ),
                hint="set train.engine.type to fsdp2",
            )
        self.family = family
        self.heads = Heads.of(hf_config)
        tied = (WeightNameRule("output_layer.weight", ("model.embed_tokens.weight",), VOCABULARY),)
        edges = EDGES[:2] + tied if hf_config.tie_word_embeddings else EDGES
        self._edges = {rule.megatron: rule for rule in edges + VALUE_HEAD}
        self._layer = {rule.megatron: rule for rule in FAMILIES[family]}

    def rule(self, name: str) -> WeightNameRule:
        """Return the rule of a Megatron weight, its names with the layer in them.

        Raises:
            RunError: the tables do not know it.
        """
        if ADAPTERS in name:
            return self._rule_of_adapter(name)
        found = self._edges.get(name)
        if name.startswith(LAYER):
            layer, _, rest = name.removeprefix(LAYER).partition(".")
            found = self._layer.get(rest)
            if found is not None:
                return _of_layer(found, layer)
        if found is None:
            raise RunError(
                said(
                    "the Megatron engine's weight tables for {family} models have no entry for {name}",
                    family=self.family,
                    name=name,
                ),
                hint="the model's config.json or train.engine.transformer adds a weight that models of this family don't have",
            )
        return found

    def _rule_of_adapter(self, name: str) -> WeightNameRule:
        """Of ``LAYER.adapters.q_proj.lora_A``: one matrix is cut as the layer's weight is, the other is whole."""
        layer, _, rest = name.partition(ADAPTERS)
        of, _, matrix = rest.partition(".")
        rule = self.rule(f"{layer}.weight")
        [weight] = (each for each in rule.hugging_face if last_of(each) == of)
        cut = {"lora_A": COLUMNS if rule.layout.dim else WHOLE, "lora_B": WHOLE if rule.layout.dim else ROWS}[matrix]
        of_peft = f"{owner_of(weight)}.{matrix}.default.weight"
        return WeightNameRule(name, (of_peft,), cut if rule.layout.shared else WHOLE)

    def adapted(self) -> set[str]:
        """The linear layers that may have an adapter, as Hugging Face names them within a layer; and a critic's head."""
        rules = (rule for rule in self._layer.values() if rule.layout.shared and not rule.stacked)
        return {owner_of(name) for rule in rules for name in rule.hugging_face if name.endswith(".weight")} | {"score"}


def owner_of(weight: str) -> str:
    """The layer that has a Hugging Face weight."""
    return weight.removesuffix(".weight")


def last_of(weight: str) -> str:
    """The name of that layer in its parent."""
    return owner_of(weight).rpartition(".")[2]


def _of_layer(rule: WeightNameRule, layer: str) -> WeightNameRule:
    prefix = f"{HUGGING_FACE_LAYER}{layer}."
    return WeightNameRule(
        f"{LAYER}{layer}.{rule.megatron}",
        tuple(prefix + name for name in rule.hugging_face),
        rule.layout,
        stacked=rule.stacked and prefix + rule.stacked,
    )
