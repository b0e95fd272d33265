"""Memory of FSDP2 on one device: what a pass of one micro-batch needs on top of the states that stay.

States: parameters, gradients and optimizer, each divided by the devices of a shard. On top of them a step has moments,
of which the largest counts. With the bytes c of the compute type, r of the reduce type and p of the parameters, T tokens,
N of them counted, root = embedding, output head and final norm, which are gathered during the whole pass, and L = the
largest layer:

    gather    2 root c + 2 L c                    the first layer is gathered while the root's buffer still exists
    loss      root c + L c + saved + logits c     logits [N, vocabulary], worked on in chunks in 4 bytes
    slope     root c + saved + 2 logits c + n chunk 4        the gradient of the logits, in chunks too
    head      root c + head c + saved + logits c
    layer     root c + 3 L c + head c + saved + one layer + temporaries of its MLP; gradients of its experts
    reduce    root c + 3 L c + head c + L r + saved          gradients of a layer before they are scattered
    root      root (c + r)                        gradients of the root, at the end

The root stays gathered from the forward to the backward pass. n is 1 number a logit, or 3 if the loss reads the entropy.
A framework that holds whole logits (``Pass.whole``) has one moment for loss and slope:

    whole     root c + L c + saved + b [T, vocabulary]        b: bytes of ``WholeLogits``; logits of prompts too

Gradients that stay unsharded between micro-batches (``Pass.kept_gradients``) are part of every moment of training, and the
optimizer step is a moment of its own. ``saved`` is what autograd keeps: the input of every layer if activations are
recomputed, else all of ``saved_bytes``.
tests/planning/memory/test_fsdp.py compares all of this with the live storages of a real step under FakeTensorMode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlctl.planning.memory_terms import WholeLogits
from rlctl.planning.models import Layer, ModelShape

LOGIT_CHUNK = 2**25
"""Logits that are worked on at a time in 4 bytes, on a GPU (``runtime/algorithms/entropy.py``)."""
PRODUCT_CHUNK = 2**26
"""Logits of one product of hidden states and head, where they are never whole."""
GRADIENT_CHUNK = 5 * 2**26
"""Logits whose gradient goes into the head at a time; fewer on GPUs with less than 80 GB."""
SLOPE_NUMBERS, ENTROPY_SLOPE_NUMBERS = 1, 3
"""Of 4 bytes, for each logit whose gradient is worked out: the slope, and with the entropy log-probs and probabilities."""
FLOAT32_ROUTERS = ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "kimi_k2")
"""Families whose router works on hidden states in float32."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes on one device at one moment of a pass, on top of the states."""

    gathered: float
    """Whole parameters and gradients of the layers at work, and buffers of their collectives."""
    activations: float
    logits: float = 0.0
    step: float = 0.0
    """What the optimizer step allocates."""

    @property
    def all(self) -> float:
        return self.gathered + self.activations + self.logits + self.step


@dataclass(frozen=True, slots=True)
class Pass:
    """One micro-batch on one device."""

    shape: ModelShape
    tokens: float
    counted: float
    """Tokens whose log-probs are computed."""
    compute: int
    """Bytes of the compute type."""
    reduce: int
    """Bytes in which gradients are reduced."""
    shard: int
    """Devices that share one copy."""
    has_head: bool = True
    """Whether there are logits; a critic has a value a token."""
    reshard: bool = True
    recompute: bool = True
    offload_activations: bool = False
    fused: bool = False
    """Whether log-probs are computed from hidden states, and logits are never whole."""
    trained: float = 1.0
    """Share of the parameters that have gradients."""
    reads_entropy: bool = False
    """Whether the loss has a gradient of the entropy."""
    whole: WholeLogits | None = None
    """Bytes of logits that are held whole, those of prompts included; None if they are worked on in chunks."""
    eager_entropy: bool = False
    """Whether the entropy of whole logits is computed without torch.compile, neither chunked nor recomputed."""
    kept_gradients: int = 0
    """Bytes of each unsharded gradient that stays between micro-batches."""
    optimizer_step: int = 0
    """Bytes for each parameter of a shard that an optimizer step allocates and frees again."""

    @property
    def whole_logits(self) -> float:
        """Bytes of whole logits in a pass with gradient."""
        if self.whole is None:
            return 0.0
        each = self.whole.train_entropy if self.reads_entropy else self.whole.train
        eager = self.whole.eager_entropy if self.reads_entropy and self.eager_entropy else 0.0
        return self.tokens * self.shape.vocabulary * (each + eager)

    @property
    def whole_forward(self) -> float:
        """Bytes of whole logits in a pass without gradient."""
        if self.whole is None:
            return 0.0
        each = self.whole.forward_entropy if self.reads_entropy else self.whole.forward
        eager = self.whole.eager_entropy if self.reads_entropy and self.eager_entropy else 0.0
        return self.tokens * self.shape.vocabulary * (each + eager)


def saved_bytes(shape: ModelShape, layer: Layer, compute: int) -> float:
    """Bytes per token that autograd keeps of one layer, as Transformers computes it with sequences laid end to end.

    A norm keeps its input in float32, the normed input and, before a projection, its output; attention keeps queries, keys,
    values and its output twice; an MLP keeps gate, activated gate, up and their product; an expert also its input and output.
    """
    hidden, gemma = shape.hidden, shape.family.startswith("gemma")
    norm = 4 + (4 if gemma else compute)
    norms = hidden * (layer.wide_norms * norm + 2 * compute)
    if layer.head_norms:
        norms += norm * (layer.query_width + layer.key_width)
    heads = 4 * shape.heads
    attention = compute * (layer.query_width + layer.key_width + layer.value_width + 2 * layer.output_width) + heads
    mlp = 4 * compute * layer.mlp_width
    if layer.experts:
        mlp += layer.experts_per_token * (4 * compute * layer.expert_width + 2 * compute * hidden)
        mlp += 8 * layer.experts + (4 * hidden if shape.family in FLOAT32_ROUTERS else 0)
    return norms + attention + mlp


def root_parameters(each: Pass) -> float:
    """Parameters outside the layers, which are gathered for the whole pass."""
    shape = each.shape
    layers = sum(kind.count * kind.parameters() for kind in shape.kinds)
    root = shape.parameters - layers
    return root if each.has_head or shape.tied else root - shape.head_parameters


def training_moments(each: Pass) -> Iterator[Moment]:
    """Of a forward and a backward pass, and of the optimizer step."""
    trained = each.shape.parameters * each.trained
    kept = each.kept_gradients * trained * (1 - 1 / each.shard)
    for moment in _passing(each):
        yield replace(moment, gathered=moment.gathered + kept)
    yield Moment(0.0, 0.0, step=each.optimizer_step * trained / each.shard)


def _passing(each: Pass) -> Iterator[Moment]:
    """Of a forward and a backward pass, without gradients that stay."""
    shape, c = each.shape, each.compute
    root, layer = root_parameters(each), shape.layer_parameters
    layers = sum(kind.count * kind.parameters() for kind in shape.kinds)
    held = c * (root + (0 if each.reshard else layers))
    widest = max(shape.kinds, key=lambda kind: saved_bytes(shape, kind, c))
    one = each.tokens * saved_bytes(shape, widest, c)
    inputs = each.tokens * c * shape.hidden
    kept = (
        inputs * shape.layers
        if each.recompute
        else each.tokens * sum(kind.count * saved_bytes(shape, kind, c) for kind in shape.kinds)
    )
    if each.offload_activations:
        kept = 2 * inputs if each.recompute else one
    gemma = shape.family.startswith("gemma")
    final = each.tokens * shape.hidden * (4 + (4 if gemma else c)) + each.counted * shape.hidden * c
    wide = each.counted * shape.vocabulary if each.has_head else 0.0
    chunk = 4 * min(LOGIT_CHUNK, wide)
    head = c * shape.head_parameters * each.trained if each.has_head else 0.0
    width = max(kind.mlp_width + kind.experts_per_token * kind.expert_width for kind in shape.kinds)
    copies = 1 + max(kind.experts_per_token for kind in shape.kinds)  # of a token: one for each of its experts
    temporary = each.tokens * (2 * c * width + 2 * c * shape.hidden * copies)
    gradients = layer * each.trained
    numbers = ENTROPY_SLOPE_NUMBERS if each.reads_entropy else SLOPE_NUMBERS
    yield Moment(2 * c * root + 2 * c * layer, inputs)
    if each.fused:
        part = min(PRODUCT_CHUNK, wide)
        yield Moment(held + c * layer, kept + final, part * (c + 8))
        gradient = shape.head_parameters * each.trained
        part = min(GRADIENT_CHUNK, wide) if each.trained else part
        yield Moment(held, kept + final, part * (c + 4 * numbers) + 4 * gradient)
        yield Moment(held, kept + final, part * (c + 4) + (4 + c) * gradient)
    elif each.whole is not None:
        yield Moment(held + c * layer + head, kept + final, each.whole_logits if each.has_head else 0.0)
    else:
        yield Moment(held + c * layer, kept + final, c * wide + 2 * chunk)
        yield Moment(held, kept + final, 2 * c * wide + numbers * chunk)
        yield Moment(held, kept + final, c * wide + head)
    working = held + (3 if each.reshard else 1) * c * layer + head
    experts = max(kind.experts * kind.expert_parameters for kind in shape.kinds) * c * each.trained
    yield Moment(working + experts, (kept + one if each.recompute else kept) + temporary)
    before = kept if each.recompute else max(0.0, kept - one)
    yield Moment(working + gradients * (each.reduce + 4 / each.shard), before + inputs)
    yield Moment(root * each.trained * (c + each.reduce), inputs)


def forward_moments(each: Pass) -> Iterator[Moment]:
    """Of a pass without gradient, whose logits are worked out in chunks."""
    shape, c = each.shape, each.compute
    root, layer = root_parameters(each), shape.layer_parameters
    inputs = each.tokens * c * shape.hidden
    width = max(kind.mlp_width + kind.experts_per_token * kind.expert_width for kind in shape.kinds)
    layers = sum(kind.count * kind.parameters() for kind in shape.kinds)
    held = c * (root + (0 if each.reshard else layers))
    part = (c + 8) * min(PRODUCT_CHUNK, each.counted * shape.vocabulary) if each.has_head else 0.0
    if each.whole is not None and each.has_head and not each.fused:
        part = each.whole_forward
    yield Moment(2 * c * root + 2 * c * layer, inputs)
    yield Moment(held + 3 * c * layer, each.tokens * 3 * c * width + 4 * inputs)
    yield Moment(held + c * layer, each.tokens * 4 * shape.hidden + 2 * inputs, part)


def peak(moments: Iterator[Moment]) -> Moment:
    """The moment that needs most."""
    return max(moments, key=lambda moment: moment.all)
