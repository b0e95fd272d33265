"""The time of one step, simulated: responses are generated, log-probs computed, the policy trained, weights sent.

Generation, one iteration after the other, with n sequences that are not finished:

    iteration   max(weights and cache read / (bandwidth DECODING), operations / (FLOP/s TRAINING)) + launches + collectives
    weights     all that a token is multiplied with; of n tokens' experts, the share 1 - (1 - k/E)^n
    cache       n x tokens so far
    launches    a layer's kernels: LAUNCH without CUDA graphs, a tenth of it with them; adapters take as long again for each
                of a layer's linear maps

A pass over micro-batches takes, on each device, the longer of operations / (FLOP/s TRAINING) and its launches, times the bubble
of a pipeline, plus the bytes that devices exchange. Roles that take turns move what they offload through the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlctl.planning.memory import fitted
from rlctl.planning.memory.gpus import Gpu
from rlctl.planning.memory.lengths import Lengths
from rlctl.planning.models import ModelShape

GRAPH = 0.1
"""Time of a launch inside a CUDA graph, as a share of one outside."""
ACTIVATION = 2
"""Bytes of a number between layers."""
MOE_KERNELS = 3
"""Kernels of an MoE layer, in those of a dense one: routing, sorting, and products by expert."""
ADAPTED_MAPS = 7
"""Linear maps of a layer that have adapters: four of attention, three of the MLP."""
LATENCY, LATENCY_BETWEEN_NODES = 2e-5, 8e-5
"""Seconds of an all-reduce of a few bytes."""
NETWORK, HOST = 50.0, 32.0
"""10^9 bytes a second between nodes (400 Gbit/s a device) and between a device and its host (PCIe 4)."""


@dataclass(frozen=True, slots=True)
class Generation:
    """How responses are generated."""

    shape: ModelShape
    responses: int
    """Of a step, over all engines."""
    group: int
    """Responses of one prompt."""
    engines: int
    devices: int
    """Of one engine."""
    at_once: int
    """Most sequences of an engine."""
    bytes_each: float
    """Of a weight."""
    cache: float
    """Bytes of an engine's KV cache."""
    eager: bool = False
    adapted: bool = False
    """Whether adapters are computed beside the weights."""
    cache_each: float = 2
    """Bytes of a number in the cache."""


def generation_seconds(what: Generation, lengths: Lengths, gpu: Gpu) -> float:
    """Seconds until the last response of a step is finished."""
    each = -(-what.responses // what.engines)
    one = what.cache_each * what.shape.cache_values(round(lengths.mean))
    rows = max(1, min(each, what.at_once, int(what.cache / one) if one else each))
    return _prefill_seconds(what, lengths, gpu, each) + _decoding_seconds(what, lengths, gpu, each, rows)


def _decoding_seconds(what: Generation, lengths: Lengths, gpu: Gpu, count: int, rows: int) -> float:
    """Iterations of full batches, while responses wait, and then the tail, in which fewer and fewer are left."""
    waiting = max(0, count - rows) * lengths.response / rows
    found = waiting * _iteration(what, gpu, rows, lengths.prompt + lengths.response / 2)
    before = 0.0
    stops = lengths.responses
    for place, length in enumerate(stops):
        left = max(1.0, rows * (1 - place / len(stops)))
        found += (length - before) * _iteration(what, gpu, left, lengths.prompt + (before + length) / 2)
        before = length
    return found


def _iteration(what: Generation, gpu: Gpu, rows: float, tokens: float) -> float:
    """Seconds of one decoding iteration."""
    shape = what.shape
    bandwidth = gpu.terabytes_per_second * 1e12 * fitted.DECODING * what.devices
    cache = what.cache_each * rows * shape.cache_values(round(tokens))
    reads = (what.bytes_each * touched_parameters(shape, rows) + cache) / bandwidth
    operations = 2 * rows * shape.active_parameters / (what.devices * gpu.tflops * 1e12 * fitted.TRAINING)
    return max(reads, operations) + _launches(what) + _collectives(what, gpu, rows)


def _launches(what: Generation) -> float:
    each = fitted.LAUNCH * (1 if what.eager else GRAPH)
    return what.shape.layers * each * _kernels(what.shape) * (1 + ADAPTED_MAPS if what.adapted else 1)


def _collectives(what: Generation, gpu: Gpu, rows: float) -> float:
    """Two all-reduces a layer over the devices of an engine."""
    if what.devices == 1:
        return 0.0
    speed = link(gpu, what.devices)
    latency = LATENCY if what.devices <= gpu.linked else LATENCY_BETWEEN_NODES
    return 2 * what.shape.layers * (latency + 2 * ACTIVATION * rows * what.shape.hidden / speed)


def _prefill_seconds(what: Generation, lengths: Lengths, gpu: Gpu, count: int) -> float:
    """Prompts, each computed once for its group."""
    tokens = lengths.prompt * -(-count // what.group)
    return 2 * tokens * what.shape.active_parameters / (what.devices * gpu.tflops * 1e12 * fitted.TRAINING)


def touched_parameters(shape: ModelShape, rows: float) -> float:
    """Parameters that an iteration reads: all but those of experts that no token is sent to."""
    unused = 0.0
    for kind in shape.kinds:
        if kind.experts:
            share = float((1 - kind.experts_per_token / kind.experts) ** rows)
            unused += share * kind.count * kind.experts * kind.expert_parameters
    embedding = 0 if shape.tied else shape.vocabulary * shape.hidden
    return shape.parameters - shape.vision_parameters - embedding - unused


def sync_seconds(shape: ModelShape, bytes_each: int, devices: int, gpu: Gpu) -> float:
    """Seconds to send all weights once: every device of training gathers each tensor whole."""
    return bytes_each * shape.parameters / link(gpu, devices)


def link(gpu: Gpu, devices: int) -> float:
    """Bytes a second that each of some devices exchanges with the others."""
    return fitted.LINK * 1e9 * (gpu.link if devices <= gpu.linked else min(gpu.link, NETWORK))


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over all sequences of a step."""

    shape: ModelShape
    operations: float
    """Of one forward pass over all tokens, on all devices together."""
    forwards: float
    """Forward passes that it is worth: a backward pass is two."""
    devices: int
    micro_batches: float
    """Of one replica."""
    tokens: float
    """Of one replica, over all micro-batches."""
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    sharded: bool = False
    """Whether weights are gathered for each micro-batch, as FSDP does."""
    chunks: int = 1
    """Of a virtual pipeline."""


def pass_seconds(what: Pass, gpu: Gpu) -> float:
    """Seconds of a pass."""
    computed = what.forwards * what.operations / (what.devices * gpu.tflops * 1e12 * fitted.TRAINING)
    layers = what.shape.layers / what.pipeline
    launched = what.micro_batches * what.forwards * layers * fitted.LAUNCH * _kernels(what.shape)
    bubble = 1 + (what.pipeline - 1) / (what.chunks * max(what.micro_batches, 1))
    return max(computed, launched) * bubble + _exchanged(what, gpu, computed) * bubble


def _kernels(shape: ModelShape) -> int:
    """Kernels of a layer, in those of a dense one."""
    return MOE_KERNELS if shape.experts else 1


def _exchanged(what: Pass, gpu: Gpu, computed: float) -> float:
    """Seconds that devices exchange bytes, as far as they wait: weights are gathered while products run at the GPU's peak."""
    shape = what.shape
    layers = shape.layers / what.pipeline
    wide = 2 * what.tokens / what.context * shape.hidden
    found = 0.0
    if what.tensor > 1:
        found += 2 * layers * wide * what.forwards / link(gpu, what.tensor)
    if what.expert > 1:
        speed = link(gpu, what.tensor * what.expert)
        sent = 2 * wide * shape.experts_per_token * (1 - 1 / what.expert) / what.tensor
        found += layers * sent * what.forwards / speed
    if what.sharded:
        speed = link(gpu, what.devices)
        gathered = 2 * shape.parameters * what.micro_batches * what.forwards / 2 / speed
        found += max(0.0, gathered - fitted.TRAINING * computed)
    return found
