"""Memory of Megatron-core on one worker: what a step needs on top of the states that stay (``rlctl.planning.megatron.sizes``).

With the bytes c of the compute type, T tokens of a micro-batch on this worker, N of them counted, t tensor workers, h the hidden
size, V the vocabulary and s = t under sequence parallelism, else 1, a step has these moments, of which the largest counts:

    loss      saved + final norm h (4 + c) T / s + 2 h c N + (c + 8) min(chunk, N V / t)
    slope     as loss, with n min(5 chunk, N V / t) + 4 h V / t
    layer     saved + temporaries of one layer; where activations are recomputed, one layer whole too

The head works on chunks of logits in one number of 4 bytes, or in three if the loss reads the entropy, and has them in c too: n
is c + 4 or c + 12. The gradient of its weight has 4 bytes. ``saved`` is what autograd keeps of each layer: as many micro-batches
at once as there are pipeline stages, each of a stage's share of the layers; under virtual pipelining (1 + (p - 1) / (p v)) of all
layers on the first stage (Korthikanti et al., arXiv:2205.05198, section 4.2.3), and on the last one ((v - 1) p + 1) / (p v) at
its first loss.
tests/runtime/train/megatron/test_memory_of_megatron.py compares this with what real workers allocate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlctl.config.sections.train import Megatron
from rlctl.planning.memory.fsdp import ENTROPY_SLOPE_NUMBERS, GRADIENT_CHUNK, PRODUCT_CHUNK, SLOPE_NUMBERS, Moment
from rlctl.planning.memory_terms import OWN, MemoryTerms
from rlctl.planning.models import Layer, ModelShape


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes per token that a worker keeps of one layer."""

    norms: float
    attention: float
    mlp: float

    @property
    def all(self) -> float:
        """Together."""
        return self.norms + self.attention + self.mlp


def saved_bytes(engine: Megatron, shape: ModelShape, layer: Layer, compute: int, *, fused: bool = False) -> Saved:
    """What autograd keeps of one layer.

    A norm keeps its input in float32 and the normed one, a projection its input; attention keeps queries once, keys and values
    twice (as they are, and repeated for the heads of the groups) and its output twice; an MLP keeps five numbers a column.

    Transformer Engine's layers (``fused``) keep less: a norm its input and output in the compute type, attention queries, keys
    and values once and its output, an MLP gate, up and their product, an expert its input too.
    """
    if fused:
        return _fused_bytes(engine, shape, layer, compute)
    sharing = engine.tensor_parallel_size if engine.sequence_parallel else 1
    norms = shape.hidden * (layer.wide_norms * (4 + compute) + 2 * compute)
    attention = layer.query_width + 2 * layer.key_width + 2 * layer.value_width + 2 * layer.output_width
    if layer.head_norms:
        attention += 3 * (layer.query_width + layer.key_width)
    mlp = 5 * compute * layer.mlp_width
    if layer.experts:
        mlp += layer.experts_per_token * compute * (5 * layer.expert_width + 2 * shape.hidden) + 8 * layer.experts
    return Saved(
        norms / sharing,
        (compute * attention + 4 * shape.heads) / engine.tensor_parallel_size,
        mlp / engine.tensor_parallel_size,
    )


def _fused_bytes(engine: Megatron, shape: ModelShape, layer: Layer, compute: int) -> Saved:
    """What Transformer Engine's layers keep."""
    sharing = engine.tensor_parallel_size if engine.sequence_parallel else 1
    attention = layer.query_width + layer.key_width + layer.value_width + layer.output_width
    if layer.head_norms:
        attention += layer.query_width + layer.key_width
    mlp = 3 * compute * layer.mlp_width
    if layer.experts:
        mlp += layer.experts_per_token * compute * (3 * layer.expert_width + shape.hidden) + 8 * layer.experts
    return Saved(
        2 * layer.wide_norms * compute * shape.hidden / sharing,
        (compute * attention + 4 * shape.heads) / engine.tensor_parallel_size,
        mlp / engine.tensor_parallel_size,
    )


def training_moments(
    engine: Megatron,
    shape: ModelShape,
    *,
    tokens: float,
    counted: float,
    compute: int,
    has_head: bool,
    reads_entropy: bool,
    terms: MemoryTerms = OWN,
) -> Iterator[Moment]:
    """Of a forward and a backward pass of micro-batches.

    Args:
        tokens: of a micro-batch on this worker.
        counted: those of them whose log-probs are computed.
        compute: bytes of the compute type.
        has_head: whether there are logits; a critic has a value a token.
        reads_entropy: whether the loss has a gradient of the entropy.
        terms: what the framework that runs it holds.
    """
    sharing = engine.tensor_parallel_size if engine.sequence_parallel else 1
    fused = terms.fused_layers
    one = tokens * max(saved_bytes(engine, shape, kind, compute, fused=fused).all for kind in shape.kinds)
    kept = _kept(engine, shape, tokens, compute, fused=fused)
    width = max(kind.mlp_width + kind.experts_per_token * kind.expert_width for kind in shape.kinds)
    together = (engine.recompute_layers or 1) if _kept_by(engine) == "uniform" else 1
    again = together * one if _recomputes(engine) else 0.0
    yield Moment(
        0.0,
        _in_flight(engine) * kept
        + again
        + tokens * (2 * compute * width / engine.tensor_parallel_size + 4 * shape.hidden / sharing),
    )
    last = _in_flight_at_the_end(engine) * kept + tokens * shape.hidden * (4 + compute) / sharing
    if not has_head:
        yield Moment(0.0, last)
        return
    if terms.megatron_logits is not None:
        each = terms.megatron_logits.train_entropy if reads_entropy else terms.megatron_logits.train
        yield Moment(0.0, last, each * tokens * shape.vocabulary / engine.tensor_parallel_size)
        return
    wide = counted * shape.vocabulary / engine.tensor_parallel_size
    gradient = 4 * shape.vocabulary * shape.hidden / engine.tensor_parallel_size
    slope = 4 * (ENTROPY_SLOPE_NUMBERS if reads_entropy else SLOPE_NUMBERS) + compute
    both = last + 2 * counted * shape.hidden * compute
    yield Moment(0.0, both, (compute + 8) * min(PRODUCT_CHUNK, wide))
    yield Moment(0.0, both, slope * min(GRADIENT_CHUNK, wide) + gradient)


def _kept(engine: Megatron, shape: ModelShape, tokens: float, compute: int, *, fused: bool) -> float:
    """Bytes that autograd keeps of all layers of one micro-batch."""
    whole = tokens * sum(kind.count * _kept_of(engine, shape, kind, compute, fused=fused) for kind in shape.kinds)
    if not _kept_by(engine):
        return whole
    sharing = engine.tensor_parallel_size if engine.sequence_parallel else 1
    together = engine.recompute_layers or 1
    inputs = tokens * compute * shape.hidden / sharing * shape.layers
    if _kept_by(engine) == "uniform":
        return inputs / together
    chunks = (engine.virtual_pipeline_parallel_size or 1) * engine.pipeline_parallel_size
    share = min(together * chunks, shape.layers) / shape.layers
    return share * inputs + (1 - share) * whole


def _kept_by(engine: Megatron) -> str:
    """How whole layers are recomputed: each group of layers from its input, the first ones of a chunk, or none."""
    return (engine.recompute_method or "uniform") if engine.recompute_granularity == "full" else ""


def _kept_of(engine: Megatron, shape: ModelShape, layer: Layer, compute: int, *, fused: bool) -> float:
    """Bytes per token of one layer, without what recomputed modules give up."""
    saved = saved_bytes(engine, shape, layer, compute, fused=fused)
    modules = set(engine.recompute_modules) if engine.recompute_granularity == "selective" else set()
    if engine.moe.layer_recompute:
        modules.add("moe")
    given_up = 0.0
    if modules & {"mlp", "moe"} and ("mlp" in modules or layer.experts):
        given_up += saved.mlp
    elif "moe_act" in modules and layer.experts:
        given_up += saved.mlp / 3 if fused else 2 / 5 * saved.mlp
    if "layernorm" in modules:
        given_up += 2 * compute * shape.hidden / (engine.tensor_parallel_size if engine.sequence_parallel else 1)
    return saved.all - min(given_up, saved.all)


def _recomputes(engine: Megatron) -> bool:
    return engine.recompute_granularity in ("full", "selective") or engine.moe.layer_recompute


def _in_flight(engine: Megatron) -> float:
    """Activations that the first stage holds at once, in those of all layers of one micro-batch."""
    stages, chunks = engine.pipeline_parallel_size, engine.virtual_pipeline_parallel_size or 1
    return 1 + (stages - 1) / (stages * chunks) if chunks > 1 else 1


def _in_flight_at_the_end(engine: Megatron) -> float:
    """The same of the last stage when it computes its first loss, in the last of its chunks."""
    stages, chunks = engine.pipeline_parallel_size, engine.virtual_pipeline_parallel_size or 1
    return ((chunks - 1) * stages + 1) / (stages * chunks)
