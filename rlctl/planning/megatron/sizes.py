"""How much of a model, its gradients, optimizer state and activations one worker of Megatron holds: numbers, not bytes.

dense weights   over tensor; norms and the router of experts are whole on every worker
experts         over expert * expert_tensor
layers          over pipeline; the first stage has the embedding, the last the final norm and the head (a copy of the
                embedding where they are tied and there is more than one stage)
optimizer       over the replicas too where it is distributed: tensor * pipeline * context of them hold one copy
activations     of as many micro-batches at once as there are stages, each of a stage's share of the layers; under virtual
                pipelining (1 + (p - 1) / (p v)) of all layers (Korthikanti et al., arXiv:2205.05198, section 4.2.3)
"""

from __future__ import annotations

from dataclasses import dataclass

from rlctl.config.sections.train import Megatron
from rlctl.planning.models import ModelShape


@dataclass(frozen=True, slots=True)
class Held:
    """Numbers that a worker holds."""

    dense: float
    """Of what replicas have in common but experts."""
    experts: float

    @property
    def all(self) -> float:
        """Both."""
        return self.dense + self.experts


def held(engine: Megatron, shape: ModelShape, *, value_head: bool = False) -> Held:
    """Parameters of the worker that has most of them."""
    stages = [_stage(engine, shape, stage, value_head=value_head) for stage in {0, engine.pipeline - 1}]
    return max(stages, key=lambda each: each.all)


def _stage(engine: Megatron, shape: ModelShape, stage: int, *, value_head: bool) -> Held:
    share = 1 / engine.pipeline
    experts = shape.expert_parameters / (engine.expert * (engine.expert_tensor or engine.tensor))
    embedding = padded_vocabulary(shape.vocabulary, engine.tensor) * shape.hidden / engine.tensor
    tied = shape.tied and not value_head
    ends = embedding if stage == 0 else 0.0
    if stage == engine.pipeline - 1:
        head = shape.hidden + 1 if value_head else 0.0 if tied and engine.pipeline == 1 else embedding
        ends += shape.hidden + head
    return Held(share * _layers(engine, shape) + ends, share * experts)


def _layers(engine: Megatron, shape: ModelShape) -> float:
    """Of all layers but experts."""
    whole = shape.norm_parameters + shape.router_parameters
    blocks = shape.parameters - shape.embedding_parameters - shape.hidden - shape.expert_parameters
    return (blocks - whole) / engine.tensor + whole


def padded_vocabulary(size: int, tensor: int) -> int:
    """Rows of the embedding in Megatron: the next multiple of the tensor size."""
    return -(-size // tensor) * tensor


def optimizer_shares(engine: Megatron, devices: int) -> tuple[int, int]:
    """Workers that share the optimizer's state of dense weights, and of experts."""
    if not engine.distributed_optimizer:
        return 1, 1
    experts = engine.expert * (engine.expert_tensor or engine.tensor) * engine.pipeline
    return max(1, devices // (engine.tensor * engine.pipeline)), max(1, devices // experts)


FULL_LAYER = 34
"""Bytes of 16 bit activations a hidden number and token, one layer, without the attention matrix: equation 2 there."""
NOT_SHARED = 10
"""Of them, those that tensor parallelism alone does not share: layer norms, their inputs, dropout."""
RECOMPUTED = {"mlp": 17, "moe": 17, "moe_act": 8, "layernorm": 4, "shared_experts": 0, "core_attn": 0, "mla_up_proj": 0}
"""Of them, those that are computed again when a module is: the matrix of core_attn is never held."""


def activation_bytes(engine: Megatron, shape: ModelShape, tokens: float) -> float:
    """Bytes of activations at 16 bit: of ``tokens`` tokens of a micro-batch on this worker."""
    each = shape.hidden * tokens
    sharing = engine.tensor if engine.sequence_parallel else 1
    layer = each * ((FULL_LAYER - NOT_SHARED) / engine.tensor + NOT_SHARED / sharing)
    at_once = shape.layers * _in_flight(engine)
    if engine.recompute_granularity == "full":
        together = engine.recompute_layers or 1
        if engine.recompute_method == "block":
            again = min(together * (engine.virtual_pipeline or 1) * engine.pipeline, shape.layers) / shape.layers
            return layer + at_once * (again * 2 * each / sharing + (1 - again) * layer)
        return layer * together + at_once / together * 2 * each / sharing
    if engine.recompute_granularity == "selective" or engine.moe.layer_recompute:
        modules = {*engine.recompute_modules, *(("moe",) if engine.moe.layer_recompute else ())}
        saved = min(sum(RECOMPUTED.get(module, 0) for module in modules), FULL_LAYER - 2) / FULL_LAYER
        return layer + at_once * layer * (1 - saved)
    return at_once * layer


def _in_flight(engine: Megatron) -> float:
    """Activations that the first stage holds at once, in those of all layers of one micro-batch."""
    stages, chunks = engine.pipeline, engine.virtual_pipeline or 1
    return 1 + (stages - 1) / (stages * chunks) if chunks > 1 else 1
